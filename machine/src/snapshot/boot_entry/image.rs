//! The entry's image: the initramfs of `dormouse-wake` and its modules, and the unified kernel image that
//! firmware starts. Programs of the distribution do what they are for: kmod finds modules, cpio packs,
//! objcopy puts the parts behind systemd's stub.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_image::digest::Xxh64;
use dormouse_system::Root;

use super::{ID, PROGRAM, hexadecimal};
use crate::snapshot::cxl_regions;

/// Persistent memory, and the variables in which the entry leaves what it saw. Not kmem.
const MODULES: [&str; 6] = [
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "dax_hmem",
    "device_dax",
    "efivarfs",
];
/// Where regions of CXL memory are recorded; the last one passes the kernel's guard over it.
const CXL_MODULES: [&str; 6] = [
    "cxl_port",
    "cxl_acpi",
    "cxl_pci",
    "cxl_mem",
    "cxl_pmem",
    "dormouse_snapshot",
];
const STUB: &str = "usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// Where the modules lie in the initramfs, and in which order they are loaded.
pub(super) const MODULE_FOLDER: &str = "modules";
pub(super) const ORDER: &str = "modules/order";
const PAGE_BYTES: u64 = 4096;

/// The programs that are called, and the packages that have them.
pub(super) const NEEDED: [(&str, &str); 4] = [
    ("modprobe", "kmod"),
    ("cpio", "cpio"),
    ("objcopy", "binutils"),
    ("efibootmgr", "efibootmgr"),
];

/// Whether the program is in one of these folders.
pub(super) fn is_installed(path: &str, program: &str) -> bool {
    std::env::split_paths(path).any(|folder| folder.join(program).is_file())
}

/// What cannot be called, with the packages to install; empty where all is there.
pub(super) fn missing(root: &Root, path: &str) -> Vec<String> {
    let programs = NEEDED.iter().filter(|(one, _)| !is_installed(path, one));
    let mut found: Vec<String> = programs
        .map(|(program, package)| format!("{program} (package {package})"))
        .collect();
    if !root.exists(STUB) {
        found.push(format!("/{STUB} (package systemd-boot-efi)"));
    }
    if !root.exists(PROGRAM) {
        found.push(format!("/{PROGRAM} (package dormouse)"));
    }
    found
}

/// Runs a program; its output, or what it complained of.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("{name}: {}: {}", done.status, said.trim()));
    }
    Ok(done.stdout)
}

/// A module in the order of loading.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Module {
    file: PathBuf,
    options: String,
}

/// From `modprobe --show-depends`: what is to be loaded, dependencies first.
fn modules_in(listing: &str) -> Vec<Module> {
    let lines = listing.lines();
    let insert = lines.filter_map(|line| line.trim().strip_prefix("insmod "));
    insert
        .map(|rest| {
            let (file, options) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            Module {
                file: file.into(),
                options: options.trim().to_owned(),
            }
        })
        .collect()
}

/// The modules with all that they need. One that this kernel has not is passed over: what the entry sees
/// at its first run shows whether they suffice.
fn modules(release: &str, with_cxl: bool) -> Result<Vec<Module>, String> {
    let cxl = CXL_MODULES.iter().filter(|_| with_cxl);
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for name in cxl.chain(&MODULES) {
        // Without modprobe's configuration: ndctl has a command of its own run in the place of libnvdimm.
        let mut command = Command::new("modprobe");
        command.args(["-C", "/dev/null", "-S", release, "--show-depends", name]);
        let Ok(listing) = output(&mut command) else {
            continue;
        };
        let found = modules_in(&String::from_utf8_lossy(&listing));
        all.extend(
            found
                .into_iter()
                .filter(|one| seen.insert(one.file.clone())),
        );
    }
    Ok(all)
}

/// The name without what says how it is compressed, and the program that undoes that.
fn plain_name(file: &Path) -> (String, Option<&'static str>) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for (ending, program) in [(".xz", "xz"), (".zst", "zstd"), (".gz", "gzip")] {
        if let Some(plain) = name.strip_suffix(ending) {
            return (plain.to_owned(), Some(program));
        }
    }
    (name.into_owned(), None)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn contents(file: &Path) -> Result<Vec<u8>, String> {
    match plain_name(file).1 {
        Some(program) => output(Command::new(program).arg("-dc").arg(file)),
        None => read(file),
    }
}

/// What the image is made of.
pub(super) struct Parts {
    pub release: String,
    pub kernel: PathBuf,
    pub cmdline: String,
}

/// A file of the initramfs.
struct Placed {
    path: String,
    mode: u32,
    bytes: Vec<u8>,
}

fn placed(root: &Root, parts: &Parts) -> Result<Vec<Placed>, String> {
    let regions = root.path(cxl_regions::FILE);
    let mut files = vec![Placed {
        path: "init".to_owned(),
        mode: 0o755,
        bytes: read(&root.path(PROGRAM))?,
    }];
    if regions.exists() {
        files.push(Placed {
            path: cxl_regions::FILE.to_owned(),
            mode: 0o600,
            bytes: read(&regions)?,
        });
    }
    let mut order = String::new();
    for module in modules(&parts.release, regions.exists())? {
        let name = plain_name(&module.file).0;
        order += format!("{name} {}", module.options).trim_end();
        order.push('\n');
        files.push(Placed {
            path: format!("{MODULE_FOLDER}/{name}"),
            mode: 0o644,
            bytes: contents(&module.file)?,
        });
    }
    files.push(Placed {
        path: ORDER.to_owned(),
        mode: 0o644,
        bytes: order.into_bytes(),
    });
    Ok(files)
}

fn id(parts: &Parts, files: &[Placed], kernel: &[u8]) -> String {
    let mut digest = Xxh64::new();
    let mut add = |bytes: &[u8]| {
        digest.update(&(bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    add(parts.cmdline.as_bytes());
    add(kernel);
    for file in files {
        add(file.path.as_bytes());
        add(&file.bytes);
    }
    hexadecimal(digest.finish())
}

/// Writes the archive below `work`; gives the image's name.
fn initramfs(root: &Root, parts: &Parts, work: &Path, to: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt;
    let mut files = placed(root, parts)?;
    let id = id(parts, &files, &read(&parts.kernel)?);
    files.push(Placed {
        path: ID.to_owned(),
        mode: 0o644,
        bytes: id.clone().into_bytes(),
    });
    let tree = work.join("tree");
    let failed = |error: std::io::Error| format!("{}: {error}", tree.display());
    let mut names = String::from(".\n");
    let mut folders = BTreeSet::from(["dev", "proc", "sys", "run", "etc"].map(str::to_owned));
    for file in &files {
        let mut at = Path::new(&file.path);
        while let Some(folder) = at.parent().filter(|one| !one.as_os_str().is_empty()) {
            folders.insert(folder.to_string_lossy().into_owned());
            at = folder;
        }
    }
    // In this order a folder comes before what lies in it.
    for folder in &folders {
        fs::create_dir_all(tree.join(folder)).map_err(failed)?;
        names += &format!("{folder}\n");
    }
    for file in &files {
        let path = tree.join(&file.path);
        fs::write(&path, &file.bytes).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).map_err(failed)?;
        names += &format!("{}\n", file.path);
    }
    pack(&tree, &names, to)?;
    Ok(id)
}

fn pack(tree: &Path, names: &str, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cpio: {error}");
    let archive = fs::File::create(to).map_err(failed)?;
    let mut child = Command::new("cpio")
        .args(["--quiet", "--create", "--format=newc", "--owner=0:0"])
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(archive)
        .spawn()
        .map_err(failed)?;
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut input| input.write_all(names.as_bytes()));
    let status = child.wait().map_err(failed)?;
    written.map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cpio: {status}")),
    }
}

/// Where the next section may begin in a program for UEFI: behind all that it has, from its image base.
fn end_of_sections(program: &[u8]) -> Option<u64> {
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at.checked_add(bytes)?)?;
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(field);
        Some(u64::from_le_bytes(value))
    };
    let header = number(0x3c, 4)? as usize;
    if number(header, 4)? != u64::from(u32::from_le_bytes(*b"PE\0\0")) {
        return None;
    }
    let count = number(header + 6, 2)? as usize;
    let optional = header + 24;
    let base = number(optional + 24, 8)?;
    let first = optional + number(header + 20, 2)? as usize;
    let ends = (0..count).map(|index| {
        let section = first + 40 * index;
        let size = number(section + 8, 4)?.max(number(section + 16, 4)?);
        Some(number(section + 12, 4)? + size)
    });
    let end = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    Some(base + end.next_multiple_of(PAGE_BYTES))
}

/// Makes the unified image; gives its name.
pub(super) fn make(root: &Root, parts: &Parts, work: &Path, to: &Path) -> Result<String, String> {
    let stub = root.path(STUB);
    let program = read(&stub)?;
    let mut at = end_of_sections(&program)
        .ok_or_else(|| format!("{} is no program for UEFI", stub.display()))?;
    let cmdline = work.join("cmdline");
    fs::write(&cmdline, &parts.cmdline)
        .map_err(|error| format!("{}: {error}", cmdline.display()))?;
    let archive = work.join("initramfs");
    let id = initramfs(root, parts, work, &archive)?;
    let mut command = Command::new("objcopy");
    // The kernel last: it wants more room in memory than in the file.
    for (name, file) in [
        (".cmdline", &cmdline),
        (".initrd", &archive),
        (".linux", &parts.kernel),
    ] {
        let bytes = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
        command
            .arg("--add-section")
            .arg(format!("{name}={}", file.display()));
        command
            .arg("--change-section-vma")
            .arg(format!("{name}={at:#x}"));
        at += bytes.len().next_multiple_of(PAGE_BYTES);
    }
    output(command.arg(&stub).arg(to))?;
    Ok(id)
}

/// The command line of the entry: that of this boot, without what leads to a root file system. A failure
/// in the entry ends in a reset, and so in the usual boot.
pub(super) fn command_line(running: &str) -> String {
    let begins = [
        "BOOT_IMAGE=",
        "initrd=",
        "root",
        "resume",
        "rd.",
        "systemd.",
        "panic=",
        "init=",
    ];
    let is_ours = |word: &&str| {
        !begins.iter().any(|beginning| word.starts_with(beginning))
            && !["ro", "rw", "noresume", "nohibernate", "splash", "--"].contains(word)
    };
    let kept: Vec<&str> = running.split_ascii_whitespace().filter(is_ours).collect();
    [&kept[..], &["panic=10"]].concat().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_in_the_order_of_loading_with_their_options() {
        let listing = "insmod /lib/modules/6.12/libnvdimm.ko.xz \nbuiltin dax\ninstall /bin/true\n\
                       insmod /lib/modules/6.12/nfit.ko.xz force=1 x=2\n";
        let found = modules_in(listing);
        let names: Vec<String> = found.iter().map(|one| plain_name(&one.file).0).collect();
        assert_eq!(names, ["libnvdimm.ko", "nfit.ko"]);
        assert_eq!(found[1].options, "force=1 x=2");
        for (name, expected) in [
            ("a.ko", ("a.ko", None)),
            ("a.ko.zst", ("a.ko", Some("zstd"))),
            ("a.ko.gz", ("a.ko", Some("gzip"))),
        ] {
            let (plain, program) = plain_name(Path::new(name));
            assert_eq!((plain.as_str(), program), expected);
        }
    }

    #[test]
    fn the_entry_keeps_what_concerns_memory_and_console_only() {
        let line = command_line(
            "BOOT_IMAGE=/vmlinuz root=LABEL=r rootflags=x ro quiet console=ttyS0 \
             memhp_default_state=offline resume=/dev/sda2 panic=0 initrd=\\initrd mem=4G",
        );
        assert_eq!(
            line,
            "quiet console=ttyS0 memhp_default_state=offline mem=4G panic=10"
        );
    }

    /// A program of two sections, the first of which ends last.
    fn program(base: u64) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0x3c, &64u32.to_le_bytes());
        put(64, b"PE\0\0");
        put(70, &2u16.to_le_bytes());
        put(84, &240u16.to_le_bytes());
        put(88 + 24, &base.to_le_bytes());
        for (index, (size, address)) in [(0x2001u32, 0x4000u32), (0x10, 0x1000)].iter().enumerate()
        {
            let section = 88 + 240 + 40 * index;
            put(section + 8, &size.to_le_bytes());
            put(section + 12, &address.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn parts_come_behind_the_last_section_of_the_stub() {
        assert_eq!(end_of_sections(&program(0)), Some(0x7000));
        assert_eq!(end_of_sections(&program(1 << 32)), Some((1 << 32) + 0x7000));
        assert_eq!(end_of_sections(b"MZ"), None);
        for length in 0..512 {
            let _ = end_of_sections(&program(0)[..length]);
        }
        let mut wild = program(0);
        wild[0x3c..0x40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(end_of_sections(&wild), None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let text = missing(&root, "/nowhere").join(", ");
        for package in ["kmod", "cpio", "binutils", "efibootmgr", "systemd-boot-efi"] {
            assert!(text.contains(&format!("(package {package})")), "{text}");
        }
        root.create(STUB, "").unwrap();
        root.create(PROGRAM, "").unwrap();
        let bin = directory.path().join("bin");
        for (program, _) in NEEDED {
            root.create(&format!("bin/{program}"), "").unwrap();
        }
        assert!(missing(&root, &bin.to_string_lossy()).is_empty());
    }
}
