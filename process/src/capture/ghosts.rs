//! Names that were removed: of directories, named pipes, devices, symbolic links, and of files that have
//! another name. A restore makes them for a moment; nothing must be in their place.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::Builder;
use crate::ptrace::Pid;
use crate::state::{Ghost, GhostKind};

/// Directories above a removed one that were removed, too.
const DEPTH_MAX: usize = 16;

/// Of a directory that is only known because something in it was open.
const IN_BETWEEN: (u64, u64) = (0, 0);

/// The names that were met.
#[derive(Default)]
pub(super) struct Ghosts {
    /// What each led to: device and inode number.
    met: HashMap<String, (u64, u64)>,
}

impl Builder<'_> {
    /// Enters the removed name of something open. False: there is no way to make it again.
    pub(super) fn ghost(&mut self, link: &str, path: &str, metadata: &Metadata) -> bool {
        let identity = (metadata.dev(), metadata.ino());
        match self.ghosts.met.get(path) {
            Some(known) if *known == IN_BETWEEN && metadata.is_dir() => {
                let mut ghosts = self.tree.ghosts.iter_mut();
                if let Some(ghost) = ghosts.find(|ghost| ghost.path == path) {
                    ghost.mode = metadata.mode() & 0o7777;
                    ghost.owner = (metadata.uid(), metadata.gid());
                }
                self.ghosts.met.insert(path.to_owned(), identity);
                return true;
            }
            Some(known) => return *known == identity,
            None => {}
        }
        if !path.starts_with('/') || fs::symlink_metadata(path).is_ok() {
            return false;
        }
        let Some(above) = existing_above(path) else {
            return false;
        };
        let file_type = metadata.file_type();
        let kind = if file_type.is_dir() {
            GhostKind::Directory
        } else if file_type.is_fifo() {
            GhostKind::Pipe
        } else if file_type.is_char_device() {
            GhostKind::Device(metadata.rdev())
        } else if file_type.is_symlink() {
            match target_of(link) {
                Some(target) => GhostKind::Link(target),
                None => return false,
            }
        } else {
            match other_name(&above.0, identity) {
                Some(name) => GhostKind::Other(name),
                None => return false,
            }
        };
        if above.1 != metadata.dev() {
            return false;
        }
        self.missing_directories(path, metadata);
        self.ghosts.met.insert(path.to_owned(), identity);
        self.tree.ghosts.push(Ghost {
            path: path.to_owned(),
            kind,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
        });
        true
    }

    /// Directories between this one and the next that exists: before it in the list.
    fn missing_directories(&mut self, path: &str, metadata: &Metadata) {
        let above = Path::new(path).ancestors().skip(1);
        let missing: Vec<String> = above
            .take_while(|directory| fs::symlink_metadata(directory).is_err())
            .map(|directory| directory.to_string_lossy().into_owned())
            .collect();
        for directory in missing.into_iter().rev() {
            if self.ghosts.met.contains_key(&directory) {
                continue;
            }
            self.ghosts.met.insert(directory.clone(), IN_BETWEEN);
            self.tree.ghosts.push(Ghost {
                path: directory,
                kind: GhostKind::Directory,
                mode: 0o700,
                owner: (metadata.uid(), metadata.gid()),
            });
        }
    }

    /// The current directory of the process, if it was removed.
    pub(super) fn removed_directory(&mut self, pid: Pid, path: &str) -> bool {
        let link = format!("/proc/{pid}/cwd");
        let metadata = fs::metadata(&link);
        metadata.is_ok_and(|metadata| metadata.is_dir() && self.ghost(&link, path, &metadata))
    }
}

/// The next directory above a path that exists, and its device.
fn existing_above(path: &str) -> Option<(String, u64)> {
    let above = Path::new(path).ancestors().skip(1).take(DEPTH_MAX);
    for directory in above {
        let Ok(metadata) = fs::symlink_metadata(directory) else {
            continue;
        };
        let volatile = ["/proc", "/sys"]
            .iter()
            .any(|root| directory.starts_with(root));
        return (metadata.is_dir() && !volatile)
            .then(|| (directory.to_string_lossy().into_owned(), metadata.dev()));
    }
    None
}

fn target_of(link: &str) -> Option<String> {
    // The link of /proc leads to the symbolic link itself, which has an empty name below it.
    let opened = rustix::fs::open(
        link,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let target = rustix::fs::readlinkat(opened.ok()?, "", Vec::new()).ok()?;
    target.into_string().ok()
}

/// Another name of a file, in this directory.
fn other_name(directory: &str, (device, inode): (u64, u64)) -> Option<String> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let mut entries = entries.map(|entry| entry.path());
    let found = entries.find(|path| {
        let metadata = fs::symlink_metadata(path);
        metadata.is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
    });
    found?.to_str().map(str::to_owned)
}
