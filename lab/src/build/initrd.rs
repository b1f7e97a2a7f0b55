//! Makes the first file system: our init and the modules that reach the disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binaries::Binaries;
use super::command::{find_program, run};
use super::context::{Context, Made};
use super::kernel::Kernel;
use super::modules::{self, LOAD_ORDER, Wanted, if_present, required};
use super::{BuildError, Step, cpio};
use crate::cache::Key;

/// From the PCI bus to the root file system, and the emulator's configuration files.
const MODULES: [Wanted; 6] = [
    required("virtio_pci"),
    required("virtio_blk"),
    // ext4 asks for it by name through modprobe, which is not there.
    if_present("crc32c_generic"),
    required("ext4"),
    if_present("qemu_fw_cfg"),
    // For hibernation images; LZO is built in.
    if_present("lz4"),
];

/// Folders that init mounts on.
const FOLDERS: [&str; 7] = ["dev", "modules", "newroot", "proc", "run", "sys", "tmp"];

/// Persistent memory, from its ACPI tables to devices that can be mapped; not what puts it online.
const WAKE_MODULES: [Wanted; 4] = [
    if_present("nfit"),
    if_present("nd_pmem"),
    if_present("dax_pmem"),
    if_present("device_dax"),
];

/// Changes whenever this file makes something else from the same inputs.
const RECIPE: &str = "2";

pub(crate) fn initrd(
    context: &Context<'_>,
    kernel: &Kernel,
    binaries: &Binaries,
) -> Result<Made, BuildError> {
    let mut key = Key::new();
    key.text("recipe", RECIPE)
        .text("kernel", &kernel.made.key)
        .text("modules", &format!("{MODULES:?}"));
    binaries.add_guest_to(&mut key);
    context.make(Step::Initrd, &key, "init and modules", |running, work| {
        let mut archive = cpio::Archive::default();
        for path in FOLDERS {
            archive.folder(path);
        }
        // The kernel opens it for init before anything is mounted.
        archive.character_device("dev/console", 5, 1);
        archive.file("init", 0o755, &read(&binaries.guest)?);
        add_modules(&mut archive, "modules", kernel, &MODULES, work)?;
        let plain = work.join("initrd.cpio");
        fs::write(&plain, archive.finish()).map_err(BuildError::io("write", &plain))?;
        // Kernel and initrd of the generic flavour would not fit in the flash image otherwise.
        let mut gzip = Command::new(find_program("gzip", "gzip")?);
        gzip.args(["-9", "--no-name"]).arg(&plain);
        run(
            &mut gzip,
            "compressing the initial ram disk",
            &running.log()?,
        )
    })
}

/// The initrd with a second archive behind it: what looks for an image before any disk is mounted.
pub(crate) fn wake_initrd(
    context: &Context<'_>,
    kernel: &Kernel,
    initrd: &Made,
    binaries: &Binaries,
) -> Result<Made, BuildError> {
    let mut key = Key::new();
    key.text("recipe", RECIPE)
        .text("initrd", &initrd.key)
        .text("kernel", &kernel.made.key)
        .text("modules", &format!("{WAKE_MODULES:?}"));
    binaries.add_wake_to(&mut key);
    context.make(Step::WakeInitrd, &key, "dormouse-wake", |_, work| {
        let mut archive = cpio::Archive::default();
        archive.folder("wake");
        archive.file("wake/dormouse-wake", 0o755, &read(&binaries.wake)?);
        add_modules(&mut archive, "wake", kernel, &WAKE_MODULES, work)?;
        let mut both = read(&file(&initrd.path))?;
        // The kernel takes archives one behind the other, each from a word's boundary.
        both.resize(both.len().next_multiple_of(4), 0);
        both.extend(archive.finish());
        let path = file(work);
        fs::write(&path, both).map_err(BuildError::io("write", path))
    })
}

/// Puts modules into a folder of the archive, with the order in which they are loaded.
pub(super) fn add_modules(
    archive: &mut cpio::Archive,
    to: &str,
    kernel: &Kernel,
    wanted: &[Wanted],
    work: &Path,
) -> Result<(), BuildError> {
    let folder = work.join("modules");
    let order = modules::install(&kernel.modules(), wanted, &folder)?;
    let files = order.iter().map(|name| format!("{name}.ko"));
    for name in files.chain([LOAD_ORDER.into()]) {
        let bytes = read(&folder.join(&name))?;
        archive.file(&format!("{to}/{name}"), 0o644, &bytes);
    }
    fs::remove_dir_all(&folder).map_err(BuildError::io("remove", folder))
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(BuildError::io("read", path))
}

/// The archive in the step's artefact.
pub(crate) fn file(artefact: &Path) -> PathBuf {
    artefact.join("initrd.cpio.gz")
}
