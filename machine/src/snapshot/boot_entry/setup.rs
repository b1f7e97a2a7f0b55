//! `dormouse setup-boot-entry`: makes the entry, and takes it back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use dormouse_image::digest::xxh64;
use dormouse_system::Root;
use dormouse_system::file::{Durability, replace};
use serde_json::json;

use super::image::{self, Parts};
use super::{FILE, IMAGE, IMAGE_FOR_FIRMWARE, Record, efi, hexadecimal, settings_digest};
use crate::error::SleepError;
use crate::snapshot::seal::Settings;
use crate::snapshot::{self, facts};

const LABEL: &str = "Dormouse wake";
/// Where distributions mount the EFI system partition.
const USUAL_PLACES: [&str; 3] = ["/efi", "/boot/efi", "/boot"];

/// Make a boot entry of UEFI that wakes this machine without waiting for the distribution's initramfs
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  dormouse setup-boot-entry          # then reboot once: the entry's first run must see the head
  dormouse setup-boot-entry --undo

The entry is a unified kernel image on the EFI system partition: the kernel that runs, dormouse-wake
and the modules of persistent memory. It is outside of firmware's boot order; `dormouse sleep` has
firmware start it once, at the next power-on. Where it cannot wake the machine, it resets it, and the
usual boot decides. After a kernel update, or after other settings, a sleep does not use the entry
and says so: make it anew. Where images are sealed, or NVDIMMs are locked with keys of ndctl, no
entry can be made: the usual boot opens them.
Needs the packages systemd-boot-efi, binutils, cpio and efibootmgr.
Exit codes: 0 done; 1 refused; 2 wrong usage; 3 this machine lacks something.")]
pub struct BootEntryArgs {
    /// Where the EFI system partition is mounted; usually found
    #[arg(long, value_name = "DIRECTORY")]
    pub esp: Option<PathBuf>,

    /// Remove the entry, its image and what is recorded of it
    #[arg(long)]
    pub undo: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb: prints what was done (or the error) and returns the exit code.
pub fn run(args: &BootEntryArgs) -> u8 {
    let root = Root::host();
    let done = match args.undo {
        true => undo(&root),
        false => set_up(&root, args),
    };
    match done {
        Ok(text) => {
            if args.json {
                println!("{}", json!({"done": true, "text": text}));
            } else {
                println!("{text}");
            }
            0
        }
        Err(error) => {
            if args.json {
                println!(
                    "{}",
                    json!({"done": false, "reason": error.reason(), "error": error.to_string()})
                );
            }
            eprintln!("dormouse setup-boot-entry: {error}");
            error.exit_code()
        }
    }
}

fn refuse(detail: impl Into<String>) -> SleepError {
    let detail = detail.into();
    SleepError::BootEntry { detail }
}

fn lacks(detail: impl Into<String>) -> SleepError {
    let detail = detail.into();
    SleepError::NoBootEntry { detail }
}

/// What an entry cannot do, or this machine has not.
fn check(root: &Root, path: &str) -> Result<(), SleepError> {
    if !efi::is_there(root) {
        return Err(lacks(format!(
            "/{} is empty: this machine was not booted by UEFI, or efivarfs is not mounted there",
            efi::FOLDER
        )));
    }
    if efi::is_secure_boot(root) {
        return Err(refuse(
            "Secure Boot is on, and firmware would start no image that is not signed",
        ));
    }
    let missing = image::missing(root, path);
    if !missing.is_empty() {
        return Err(lacks(format!("install {}", missing.join(", "))));
    }
    let settings = Settings::read(root).map_err(|detail| SleepError::Key { detail })?;
    if settings.is_some() {
        return Err(refuse(
            "images are sealed, and the entry has no key: the usual boot opens them",
        ));
    }
    let keys = root.list("etc/ndctl/keys");
    if keys.iter().any(|name| name.ends_with(".blob")) {
        return Err(refuse(
            "NVDIMMs are unlocked with the keys in /etc/ndctl/keys, which the entry does not do",
        ));
    }
    Ok(())
}

/// The partition that holds the image.
#[derive(Debug, PartialEq, Eq)]
struct Partition {
    mounted_at: PathBuf,
    /// Major and minor number.
    device: String,
}

/// From /proc/self/mountinfo: the FAT file system at the directory, or at the first usual place.
fn partition(mounts: &str, asked: Option<&Path>) -> Option<Partition> {
    let at = |place: &Path| {
        mounts.lines().find_map(|line| {
            let (first, second) = line.split_once(" - ")?;
            let words: Vec<&str> = first.split(' ').collect();
            let is_it = Path::new(*words.get(4)?) == place && second.starts_with("vfat ");
            is_it.then(|| Partition {
                mounted_at: place.to_owned(),
                device: words[2].to_owned(),
            })
        })
    };
    match asked {
        Some(place) => at(place),
        None => USUAL_PLACES.iter().find_map(|place| at(Path::new(place))),
    }
}

/// The disk's file in /dev and the number of the partition on it.
fn disk(root: &Root, partition: &Partition) -> Result<(String, String), SleepError> {
    let link = format!("sys/dev/block/{}", partition.device);
    let no_partition = || {
        lacks(format!(
            "{} is not on a partition of a disk",
            partition.mounted_at.display()
        ))
    };
    let number = root.read(&format!("{link}/partition"));
    let number = number.map_err(|_| no_partition())?;
    let place = fs::canonicalize(root.path(&link)).map_err(|_| no_partition())?;
    let disk = place.parent().and_then(Path::file_name);
    let disk = disk.ok_or_else(no_partition)?.to_string_lossy();
    Ok((format!("/dev/{disk}"), number))
}

/// The kernel's file.
fn kernel_file(root: &Root, release: &str) -> Result<PathBuf, SleepError> {
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
        format!("lib/modules/{release}/vmlinuz"),
    ];
    let found = places.iter().find(|path| root.exists(path));
    found.map(|path| root.path(path)).ok_or_else(|| {
        lacks(format!(
            "the kernel that runs has no file: neither /{} nor /{}",
            places[0], places[1]
        ))
    })
}

fn set_up(root: &Root, args: &BootEntryArgs) -> Result<String, SleepError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SleepError::NotRoot);
    }
    check(root, &std::env::var("PATH").unwrap_or_default())?;
    snapshot::find(root)?;
    for place in USUAL_PLACES {
        // It may be mounted when somebody looks.
        let _ = fs::read_dir(root.path(place)).map(Iterator::count);
    }
    let mounts = root.read("proc/self/mountinfo").unwrap_or_default();
    let esp = partition(&mounts, args.esp.as_deref()).ok_or_else(|| match &args.esp {
        Some(place) => lacks(format!(
            "no FAT file system is mounted at {}",
            place.display()
        )),
        None => lacks(format!(
            "no EFI system partition is mounted at {}: mount it, or give --esp",
            USUAL_PLACES.join(", ")
        )),
    })?;
    let (disk, number) = disk(root, &esp)?;
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let parts = Parts {
        kernel: kernel_file(root, &release)?,
        cmdline: image::command_line(&root.read("proc/cmdline").unwrap_or_default()),
        release,
    };
    let file = esp.mounted_at.join(IMAGE);
    let id = make_image(root, &parts, &file).map_err(refuse)?;
    let entry = register(root, &disk, &number).map_err(refuse)?;
    let record = Record {
        number: entry,
        id,
        file_digest: hexadecimal(xxh64(
            &fs::read(&file).map_err(|error| refuse(format!("{}: {error}", file.display())))?,
        )),
        file,
        kernel: hexadecimal(facts::kernel_digest(root)),
        settings: settings_digest(root),
    };
    write(root, &record).map_err(refuse)?;
    // A run that is known to see nothing of this image would be in the way.
    efi::remove_mark(root).map_err(|error| refuse(format!("firmware's variables: {error}")))?;
    efi::set_boot_next(root, entry).map_err(|error| refuse(format!("BootNext: {error}")))?;
    Ok(format!(
        "Boot{entry:04X} wakes this machine from {}.\n\nNext: reboot once. Firmware starts the entry, \
         which finds no image and resets the machine into the usual boot; then `dormouse sleep \
         --dry-run` says whether the entry is used.",
        record.file.display()
    ))
}

/// Makes the image beside its place, and puts it there at once.
fn make_image(root: &Root, parts: &Parts, file: &Path) -> Result<String, String> {
    let work = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let made = work.path().join("wake.efi");
    let id = image::make(root, parts, work.path(), &made)?;
    let bytes = fs::read(&made).map_err(|error| format!("{}: {error}", made.display()))?;
    replace(file, &bytes, Durability::Disk).map_err(|error| error.to_string())?;
    Ok(id)
}

/// Makes the entry, in the place of an earlier one; firmware's order stays as it is.
fn register(root: &Root, disk: &str, partition: &str) -> Result<u16, String> {
    unregister(root)?;
    let words = [
        "--quiet",
        "--create-only",
        "--disk",
        disk,
        "--part",
        partition,
    ];
    let mut command = Command::new("efibootmgr");
    command.args(words);
    image::output(command.args(["--label", LABEL, "--loader", IMAGE_FOR_FIRMWARE]))?;
    match efi::entries_of(root, IMAGE_FOR_FIRMWARE).as_slice() {
        [one] if efi::boot_order(root).contains(one) => Err(format!(
            "firmware put Boot{one:04X} into its boot order, where every boot would start it"
        )),
        [one] => Ok(*one),
        found => Err(format!(
            "firmware has {} entries for {IMAGE_FOR_FIRMWARE} after one was made",
            found.len()
        )),
    }
}

fn unregister(root: &Root) -> Result<(), String> {
    for number in efi::entries_of(root, IMAGE_FOR_FIRMWARE) {
        let digits = format!("{number:04X}");
        let mut command = Command::new("efibootmgr");
        image::output(command.args(["--quiet", "--bootnum", &digits, "--delete-bootnum"]))?;
        efi::clear_boot_next(root, number).map_err(|error| format!("BootNext: {error}"))?;
    }
    Ok(())
}

fn write(root: &Root, record: &Record) -> Result<(), String> {
    let text = toml::to_string(record).map_err(|error| error.to_string())?;
    let text = format!("# Written by `dormouse setup-boot-entry`.\n{text}");
    replace(&root.path(FILE), text.as_bytes(), Durability::Disk).map_err(|error| error.to_string())
}

fn undo(root: &Root) -> Result<String, SleepError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SleepError::NotRoot);
    }
    let record = Record::read(root).map_err(refuse)?;
    unregister(root).map_err(refuse)?;
    efi::remove_mark(root).map_err(|error| refuse(format!("firmware's variables: {error}")))?;
    let Some(record) = record else {
        return Ok("No boot entry was set up.".to_owned());
    };
    for path in [record.file, root.path(FILE)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refuse(format!("{}: {error}", path.display())));
            }
            _ => {}
        }
    }
    Ok("The boot entry is gone.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::boot_entry::efi::tests::put;

    const MOUNTS: &str = "22 1 253:0 / / rw - ext4 /dev/vda rw\n\
                          30 22 253:17 / /boot/efi rw,relatime - vfat /dev/vdb1 rw\n\
                          31 22 253:2 / /boot rw - ext4 /dev/vda2 rw\n";

    #[test]
    fn the_partition_is_the_fat_file_system_at_a_usual_place_or_where_it_is_said() {
        let found = partition(MOUNTS, None).unwrap();
        assert_eq!(found.device, "253:17");
        assert_eq!(partition(MOUNTS, Some(Path::new("/boot"))), None);
        assert_eq!(partition(MOUNTS, Some(Path::new("/boot/efi"))), Some(found));
        assert_eq!(partition("x\n- vfat", None), None);
    }

    #[test]
    fn disk_and_number_come_from_the_place_of_the_partition() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let found = partition(MOUNTS, None).unwrap();
        assert!(disk(&root, &found).is_err());
        root.create("sys/devices/pci/vdb/vdb1/partition", "1\n")
            .unwrap();
        fs::create_dir_all(root.path("sys/dev/block")).unwrap();
        let link = root.path("sys/dev/block/253:17");
        std::os::unix::fs::symlink("../../devices/pci/vdb/vdb1", link).unwrap();
        assert_eq!(
            disk(&root, &found).unwrap(),
            ("/dev/vdb".to_owned(), "1".to_owned())
        );
    }

    #[test]
    fn what_an_entry_cannot_do_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let said = || check(&root, "/nowhere").unwrap_err();
        assert!(said().to_string().contains("UEFI"));
        assert_eq!(said().exit_code(), 3);
        put(&root, "SecureBoot", &[1]);
        assert!(said().to_string().contains("Secure Boot"));
        put(&root, "SecureBoot", &[0]);
        assert!(said().to_string().contains("systemd-boot-efi"));
        assert_eq!(said().exit_code(), 3);
        for (program, _) in image::NEEDED {
            root.create(&format!("bin/{program}"), "").unwrap();
        }
        root.create("usr/lib/systemd/boot/efi/linuxx64.efi.stub", "")
            .unwrap();
        root.create("usr/lib/dormouse/dormouse-wake", "").unwrap();
        let path = root.path("bin").to_string_lossy().into_owned();
        check(&root, &path).unwrap();
        root.create("etc/ndctl/keys/nvdimm.blob", "").unwrap();
        let error = check(&root, &path).unwrap_err().to_string();
        assert!(error.contains("ndctl"), "{error}");
        root.create(crate::snapshot::seal::FILE, "key = \"key-file\"\n")
            .unwrap();
        let error = check(&root, &path).unwrap_err();
        assert!(error.to_string().contains("sealed"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
}
