//! Folders of cgroups by inode, as [`super::pages`] reports them.
//!
//! The kernel finds a cgroup's folder by its inode directly (`open_by_handle_at` with a handle of
//! kernfs, `FILEID_KERNFS` in include/linux/exportfs.h), so no search is needed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `FILEID_KERNFS`: a 64-bit file number.
const KERNFS: libc::c_int = 0xfe;

/// `struct file_handle` with 8 bytes.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    id: [u8; 8],
}

/// A mounted hierarchy of version 2.
#[derive(Debug)]
pub struct Names {
    root: PathBuf,
    mount: File,
}

impl Names {
    /// The hierarchy that is mounted there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            mount: File::open(root)?,
        })
    }

    /// The inode of a cgroup's folder.
    pub fn inode(path: &Path) -> Option<u64> {
        fs::metadata(path).ok().map(|facts| facts.ino())
    }

    /// The folder with that inode, if it is below the root.
    pub fn path(&self, inode: u64) -> Option<PathBuf> {
        let mut handle = Handle {
            bytes: 8,
            kind: KERNFS,
            id: inode.to_ne_bytes(),
        };
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: the handle has the kernel's layout and lives until the call returns.
        let opened = unsafe {
            let handle = (&raw mut handle).cast();
            libc::open_by_handle_at(self.mount.as_raw_fd(), handle, flags)
        };
        if opened < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and has no other owner.
        let opened = unsafe { OwnedFd::from_raw_fd(opened) };
        let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let path = fs::read_link(link).ok()?;
        // The kernel appends a word to the name of a removed cgroup; a live one may have such a
        // name.
        let same = path.starts_with(&self.root) && Self::inode(&path) == Some(inode);
        same.then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where version 2 is mounted, with any controllers.
    fn mounted() -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut lines = mounts.lines().map(|line| line.split(' '));
        lines.find_map(|mut words| {
            let root = words.nth(1)?;
            (words.next()? == "cgroup2").then(|| PathBuf::from(root))
        })
    }

    #[test]
    fn a_cgroup_is_found_by_its_inode_until_it_is_gone() {
        let Some(root) = mounted() else {
            eprintln!("left out: version 2 of cgroups is not mounted");
            return;
        };
        let path = root.join(format!("dormouse-names-{}", std::process::id()));
        if fs::create_dir(&path).is_err() {
            eprintln!("left out: no cgroup can be made here");
            return;
        }
        let names = Names::open(&root).unwrap();
        let inode = Names::inode(&path).unwrap();
        let found = names.path(inode);
        fs::remove_dir(&path).unwrap();
        assert_eq!(found, Some(path.clone()));
        assert_eq!(names.path(inode), None);
        assert_eq!(names.path(u64::MAX), None);
        assert_eq!(Names::inode(&path), None);
    }

    #[test]
    fn outside_of_a_cgroup_hierarchy_nothing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::open(folder.path()).unwrap();
        assert_eq!(names.path(Names::inode(folder.path()).unwrap()), None);
        assert!(Names::open(Path::new("/nowhere")).is_err());
    }
}
