//! Makes ext4 images from folders, without root, loop devices or mounts.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::BuildError;
use super::command::{find_program, run};

/// Seconds since 1970 that stand for "now" in images, so that equal contents give equal images.
const IMAGE_TIME_S: &str = "1700000000";
const BLOCK_BYTES: u64 = 4096;

/// What makes one image differ from another beside its contents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    /// At most 16 bytes.
    pub label: &'static str,
    pub uuid: &'static str,
    pub size_bytes: u64,
    /// A disk that is never written needs no journal.
    pub journal: bool,
}

/// Writes the contents of `folder`, owned by root, to a new image.
pub(crate) fn write(
    image: Image,
    folder: &Path,
    path: &Path,
    log: &Path,
) -> Result<(), BuildError> {
    let mke2fs = find_program("mke2fs", "e2fsprogs")?;
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new(mke2fs)
    } else {
        // Files of whoever builds appear as root's; nothing else is faked.
        let mut command = Command::new(find_program("fakeroot", "fakeroot")?);
        command.arg("--").arg(mke2fs);
        command
    };
    let _ = fs::remove_file(path);
    // No lazy initialisation: the kernel would write to the fresh disk in the background.
    let extended = format!(
        "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,hash_seed={}",
        image.uuid
    );
    command
        .args([
            "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-E", &extended,
        ])
        .args(["-L", image.label, "-U", image.uuid]);
    if image.journal {
        command.args(["-J", "size=8"]);
    } else {
        command.args(["-O", "^has_journal"]);
    }
    command
        .arg("-d")
        .arg(folder)
        .arg(path)
        .arg((image.size_bytes / BLOCK_BYTES).to_string())
        .env("E2FSPROGS_FAKE_TIME", IMAGE_TIME_S)
        .env("SOURCE_DATE_EPOCH", IMAGE_TIME_S);
    run(&mut command, "making a disk image", log)
}
