//! Process 1 of the boot entry: mounts the kernel's file systems, loads the modules, looks for an image;
//! where it wakes nothing, it leaves why and hands on to the usual boot.

use std::convert::Infallible;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use dormouse_system::Root;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::image::{MODULE_FOLDER, ORDER};
use super::{ID, Left, efi, hexadecimal};
use crate::snapshot::seal::{Mark, NO_SEAL};
use crate::snapshot::wake::{self, Ended};
use crate::snapshot::{devices, facts, hibernation};

const MOUNTS: [(&str, &str); 4] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/run"),
];

/// In the mark of such a run.
const PLACE: &str = "boot-entry";

/// Whether the root file system is the entry's own: process 1 of a container is no boot.
pub(super) fn is_in_its_image(root: &Root) -> bool {
    [ID, ORDER].iter().all(|path| root.exists(path))
}

/// Wakes the machine, or resets it so that the usual boot follows. Never returns: process 1 must not.
pub fn run() -> ! {
    let root = Root::host();
    for (kind, target) in MOUNTS {
        let _ = fs::create_dir_all(target);
        if let Err(error) = mount(kind, target, kind, MountFlags::empty(), None) {
            eprintln!("dormouse: {target} cannot be mounted: {error}");
        }
    }
    wake::say(&root, 5, "this is the boot entry of dormouse");
    for trouble in load_modules(&root) {
        wake::say(&root, 4, &trouble);
    }
    let folder = format!("/{}", efi::FOLDER);
    if let Err(error) = mount("efivarfs", &folder, "efivarfs", MountFlags::empty(), None) {
        wake::say(&root, 3, &format!("{folder} cannot be mounted: {error}"));
    }
    let ended = wake::run_in_boot_entry(&root);
    wake::say(&root, 4, &ended.line());
    leave(&root, &ended);
    match hand_on(&root) {}
}

/// In the order that the image was made with.
fn load_modules(root: &Root) -> Vec<String> {
    let order = match root.read(ORDER) {
        Ok(order) => order,
        Err(error) => return vec![format!("/{ORDER}: {error}")],
    };
    let load = |line: &str| {
        let (name, options) = line.split_once(' ').unwrap_or((line, ""));
        let path = root.path(MODULE_FOLDER).join(name);
        load_module(&path, options).map_err(|error| format!("{}: {error}", path.display()))
    };
    order.lines().filter_map(|line| load(line).err()).collect()
}

fn load_module(path: &Path, options: &str) -> Result<(), std::io::Error> {
    let file = fs::File::open(path)?;
    let options = std::ffi::CString::new(options)?;
    match finit_module(file.as_fd(), &options, 0) {
        // The kernel may have asked for it by itself.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn left(root: &Root, ended: &Ended) -> Left {
    Left {
        mark: Mark {
            seal: NO_SEAL.to_owned(),
            trouble: None,
            memory: devices::seen(root),
            place: PLACE.to_owned(),
            snapshot: hibernation::takes_no_snapshot(root),
        },
        id: root.read(ID).unwrap_or_default(),
        kernel: hexadecimal(facts::kernel_digest(root)),
        map: hexadecimal(facts::firmware_map_digest(root)),
        said: ended.line(),
    }
}

fn leave(root: &Root, ended: &Ended) {
    if let Err(error) = efi::set_mark(root, &left(root, ended).text()) {
        wake::say(root, 3, &format!("firmware keeps no variable: {error}"));
    }
}

/// The entry to ask firmware for; none: its own order leads elsewhere already.
fn next_after(order: &[u16], current: Option<u16>) -> Option<u16> {
    let current = current?;
    if order.first() != Some(&current) {
        return None;
    }
    // Somebody put this entry first: without this it would follow itself for ever.
    order.iter().copied().find(|one| *one != current)
}

fn hand_on(root: &Root) -> Infallible {
    if let Some(number) = next_after(&efi::boot_order(root), efi::boot_current(root))
        && let Err(error) = efi::set_boot_next(root, number)
    {
        wake::say(root, 3, &format!("BootNext: {error}"));
    }
    wake::say(root, 5, "handing on to the usual boot");
    let error = reboot(RebootCommand::Restart).err();
    // A panic resets the machine, too.
    panic!("the machine cannot be reset: {error:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_somebody_put_first_does_not_follow_itself() {
        assert_eq!(next_after(&[3, 0], Some(7)), None);
        assert_eq!(next_after(&[3, 7], Some(7)), None);
        assert_eq!(next_after(&[7, 3], Some(7)), Some(3));
        assert_eq!(next_after(&[7], Some(7)), None);
        assert_eq!(next_after(&[], Some(7)), None);
        assert_eq!(next_after(&[7, 3], None), None);
    }

    #[test]
    fn process_1_of_a_container_is_not_the_boot_entry() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert!(!is_in_its_image(&root));
        for path in [ID, ORDER] {
            root.create(path, "x\n").unwrap();
        }
        assert!(is_in_its_image(&root));
    }

    #[test]
    fn what_the_entry_leaves_names_image_kernel_map_and_outcome() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        root.create(ID, "0123\n").unwrap();
        let ended = Ended::Nothing("dax0.0 is empty".to_owned());
        let found = left(&root, &ended);
        let read = Left::read(&found.text());
        assert_eq!(read, found);
        assert_eq!(read.id, "0123");
        assert!(read.said.contains("dax0.0 is empty"), "{}", read.said);
    }
}
