//! Where the contents of the CXL device (and of a disk to hibernate to) are kept: on tmpfs where
//! there is room, because a file on a disk costs a fault and an allocation for each page that the
//! machine writes there (measured: sleeping with 768 MiB takes 7.2 s instead of 1.9 s). The
//! machine's folder then holds a link.
//!
//! Removing that folder by hand leaves the memory behind; so each new machine removes contents
//! without a link.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dormouse_system::arguments::Size;
use rustix::fs::{statfs, statvfs};
use sha2::{Digest, Sha256};

use crate::error::{Doing, LabError};

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "dormouse-";
const CONTENTS: &str = "cxl.mem";
/// Holds the path of the link to the contents.
const OWNER: &str = "owner";
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// What must be left beside the machine's memory: for the emulator, which keeps up to 1 GiB of
/// translated code, and for the programs of the host.
const SPARE_BYTES: u64 = 2 << 30;

/// Prepares `link` for contents of up to `bytes` beside a machine of `dram_bytes`: makes it a
/// link to a place on tmpfs, or leaves it to become a file.
///
/// # Errors
/// The place or the link cannot be made.
pub fn prepare(link: &Path, bytes: u64, dram_bytes: u64) -> Result<(), LabError> {
    let root = Path::new(SHARED_MEMORY);
    sweep(root);
    remove(link);
    if has_room(root, bytes.saturating_add(dram_bytes)) {
        return place(root, link);
    }
    tracing::warn!(
        "there is no memory for {} beside a machine of {}: it lies on the disk, and times are longer",
        Size(bytes),
        Size(dram_bytes)
    );
    Ok(())
}

/// Removes the contents and the link to them.
pub fn remove(link: &Path) {
    if let Ok(contents) = fs::read_link(link)
        && let Some(place) = contents.parent()
        && is_place(place)
    {
        let _ = fs::remove_dir_all(place);
    }
    let _ = fs::remove_file(link);
}

fn is_place(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
        && path.join(OWNER).is_file()
}

/// Whether `root` is a tmpfs with room for `bytes`, and the host has the memory for it.
fn has_room(root: &Path, bytes: u64) -> bool {
    let Some(available) = memory("MemAvailable:") else {
        return false;
    };
    let wanted = bytes.saturating_add(SPARE_BYTES);
    let is_tmpfs = statfs(root).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC);
    let room = statvfs(root).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    is_tmpfs && room >= wanted && available >= wanted
}

/// Bytes, from a line of `/proc/meminfo`.
fn memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn place(root: &Path, link: &Path) -> Result<(), LabError> {
    let owner = std::path::absolute(link).doing(format!("find {}", link.display()))?;
    let place = place_of(root, &owner);
    // The link first: from the moment at which there is an owner, a sweep looks for it.
    let contents = place.join(CONTENTS);
    symlink(&contents, link).doing(format!("link {} to {SHARED_MEMORY}", link.display()))?;
    let doing = format!("make {}", place.display());
    fs::create_dir_all(&place).doing(&doing)?;
    fs::write(place.join(OWNER), owner.as_os_str().as_encoded_bytes()).doing(&doing)?;
    Ok(())
}

fn place_of(root: &Path, owner: &Path) -> PathBuf {
    let hash = Sha256::digest(owner.as_os_str().as_encoded_bytes());
    let digits: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    root.join(format!("{PREFIX}{digits}"))
}

/// Removes contents to which no link leads any more.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let place = entry.path();
        if !is_place(&place) {
            continue;
        }
        let Ok(owner) = fs::read_to_string(place.join(OWNER)) else {
            continue;
        };
        let is_linked = fs::read_link(owner).is_ok_and(|contents| contents == place.join(CONTENTS));
        if !is_linked {
            let _ = fs::remove_dir_all(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Placed {
        root: tempfile::TempDir,
        folder: tempfile::TempDir,
        link: PathBuf,
    }

    /// A machine's file with contents.
    fn placed() -> Placed {
        let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = folder.path().join("cxl.mem");
        place(root.path(), &link).unwrap();
        fs::write(&link, "contents").unwrap();
        Placed { root, folder, link }
    }

    #[test]
    fn contents_go_with_their_link() {
        let Placed {
            root,
            folder: _folder,
            link,
        } = placed();
        sweep(root.path());
        assert_eq!(fs::read(&link).unwrap(), b"contents");
        remove(&link);
        assert!(fs::symlink_metadata(&link).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn contents_of_a_folder_that_was_removed_by_hand_are_swept() {
        let Placed { root, folder, .. } = placed();
        fs::write(root.path().join("dormouse-of-others"), "").unwrap();
        drop(folder);
        sweep(root.path());
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "dormouse-of-others");
    }

    #[test]
    fn a_plain_file_is_removed_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("cxl.mem");
        fs::write(&link, "contents").unwrap();
        remove(&link);
        assert!(!link.exists());
        assert!(folder.path().exists());
    }

    #[test]
    fn no_file_system_has_room_for_everything() {
        assert!(!has_room(Path::new(SHARED_MEMORY), u64::MAX));
        assert!(!has_room(Path::new("/proc"), 0));
    }
}
