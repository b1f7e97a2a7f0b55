//! Files of /dev/shm (`shm_open`, `sem_open`), made before it is known whether the restore succeeds.
//!
//! A file that lies at the place already is the program's own only if it is the very file that the
//! program had (device and inode number), or one that an earlier restore has made of it, which bears
//! a mark. It is not touched: the new file has another name until the restore is proven, and then
//! replaces it in one step.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Error;

use crate::procfs;

/// Names the file that a restored one stands for: device and inode number. Only privileged programs
/// see it.
const MARK: &str = "trusted.dormouse";

/// Files that were made. Unless they take their places, they are removed again.
#[derive(Debug, Default)]
pub struct MadeFiles {
    files: Vec<Made>,
}

#[derive(Debug)]
struct Made {
    path: String,
    /// Where it is until the restore is proven, if another file has its place.
    aside: Option<String>,
}

impl MadeFiles {
    /// Makes an empty file for one that was `file` (device and inode number).
    ///
    /// # Errors
    /// Its place is taken by a file that is not the program's, or that another program uses.
    pub fn make(
        &mut self,
        path: &str,
        mode: u32,
        owner: (u32, u32),
        file: (u64, u64),
    ) -> Result<OwnedFd, Error> {
        let open = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let aside = match fs::symlink_metadata(path) {
            Err(_) => None,
            Ok(found) => {
                is_left_behind(Path::new(path), &found, file).map_err(open)?;
                Some(format!("{path}.dormouse-{}", std::process::id()))
            }
        };
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        options.custom_flags(libc::O_NOFOLLOW);
        let made = options.open(aside.as_deref().unwrap_or(path));
        let made = made.map_err(open)?;
        self.files.push(Made {
            path: path.to_owned(),
            aside,
        });
        std::os::unix::fs::fchown(&made, Some(owner.0), Some(owner.1)).map_err(open)?;
        made.set_permissions(fs::Permissions::from_mode(mode))
            .map_err(open)?;
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::fsetxattr(&made, MARK, mark_of(file).as_bytes(), flags) {
            tracing::debug!("{path} cannot be marked as restored: {error}");
        }
        Ok(made.into())
    }

    /// Where the file for this path is now.
    pub fn path_of<'path>(&'path self, path: &'path str) -> &'path str {
        let made = self.files.iter().find(|made| made.path == path);
        made.and_then(|made| made.aside.as_deref()).unwrap_or(path)
    }

    /// The restore is proven: the files replace those that the program has left behind.
    pub fn take_places(&mut self) {
        for made in self.files.drain(..) {
            if let Some(aside) = made.aside
                && let Err(error) = fs::rename(&aside, &made.path)
            {
                tracing::error!("{aside} could not be renamed to {}: {error}", made.path);
            }
        }
    }
}

impl Drop for MadeFiles {
    fn drop(&mut self) {
        for made in self.files.drain(..) {
            let _ = fs::remove_file(made.aside.unwrap_or(made.path));
        }
    }
}

fn mark_of(file: (u64, u64)) -> String {
    format!("{}:{}", file.0, file.1)
}

/// Whether a file is what the program has left behind when it was killed, and nobody uses it.
fn is_left_behind(path: &Path, found: &fs::Metadata, file: (u64, u64)) -> io::Result<()> {
    let mut mark = [0u8; 64];
    let marked = rustix::fs::lgetxattr(path, MARK, &mut mark);
    let marked = marked.is_ok_and(|bytes| mark[..bytes.min(64)] == *mark_of(file).as_bytes());
    let itself = (found.dev(), found.ino()) == file;
    if !found.is_file() || !itself && !marked {
        return Err(io::Error::other(
            "another file is there, which the program has not left behind; move or remove it",
        ));
    }
    match user_of(path, found) {
        Some(pid) => Err(io::Error::other(format!(
            "the program has left it behind, and process {pid} uses it"
        ))),
        None => Ok(()),
    }
}

/// A process other than this one that has a file mapped or open.
fn user_of(path: &Path, file: &fs::Metadata) -> Option<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut others = pids.filter(|pid| *pid != std::process::id());
    others.find(|pid| {
        let maps = procfs::bytes(format!("/proc/{pid}/maps")).unwrap_or_default();
        let name = path.as_os_str().as_bytes();
        let mut lines = maps.split(|byte| *byte == b'\n');
        if lines.any(|line| line.ends_with(name)) {
            return true;
        }
        let descriptors: Vec<PathBuf> = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        descriptors.iter().any(|link| {
            // Following a link to a device or a pipe could have an effect; its text has none.
            fs::read_link(link).is_ok_and(|target| target == path)
                && fs::metadata(link)
                    .is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
        })
    })
}

#[cfg(test)]
#[path = "shared_files_tests.rs"]
mod tests;
