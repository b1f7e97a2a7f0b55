//! Whole sleeps on a made-up machine.

pub mod fake;
mod machine;
mod migrating_back;
mod refusals;
mod sleeping;

use dormouse_system::Root;

/// A machine of which only the boot is known.
pub fn machine_in_boot(id: &str) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    reboot(&root, id);
    (directory, root)
}

/// From now on it is another boot.
pub fn reboot(root: &Root, id: &str) {
    let text = format!("{id}\n");
    root.create("proc/sys/kernel/random/boot_id", &text)
        .unwrap();
}
