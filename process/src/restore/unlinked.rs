//! Opens unlinked files once more. A description that was opened with `O_NOFOLLOW`, as Python's temporary files
//! are, cannot be made by way of /proc, which leads there by a link; so the file has a name meanwhile.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::descriptors::{open, reopen};
use crate::state::{FileKind, ObjectKind, Tree};

/// Names that unlinked files have for as long as this lives, by object.
#[derive(Default)]
pub(super) struct Names(HashMap<u32, PathBuf>);

impl Names {
    /// A new description of an object that the pool holds by a descriptor.
    pub(super) fn reopen(
        &mut self,
        (index, kind): (u32, &ObjectKind),
        number: RawFd,
        flags: u32,
    ) -> io::Result<OwnedFd> {
        let flags = flags & !(libc::O_TMPFILE as u32);
        match kind {
            ObjectKind::Unlinked { path, .. } if flags & libc::O_NOFOLLOW as u32 != 0 => {
                let name = self.name(index, number, path)?;
                let made = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_ASYNC;
                open(&name.to_string_lossy(), flags as i32 & !made)
            }
            _ => reopen(number, flags),
        }
    }

    /// Gives an object a name in the directory where its file was.
    fn name(&mut self, index: u32, number: RawFd, path: &str) -> io::Result<PathBuf> {
        if let Some(name) = self.0.get(&index) {
            return Ok(name.clone());
        }
        let directory = Path::new(path).parent().unwrap_or(Path::new("/"));
        let from = CString::new(format!("/proc/self/fd/{number}"))?;
        for attempt in 0.. {
            let own = format!(".dormouse-{}-{index}-{attempt}", std::process::id());
            let name = directory.join(own);
            match link(&from, &CString::new(name.as_os_str().as_bytes())?) {
                // Of a restore that was killed, or of a process with this number in another namespace.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => {
                    linked?;
                    self.0.insert(index, name.clone());
                    return Ok(name);
                }
            }
        }
        unreachable!("one of them is free")
    }
}

fn link(from: &CStr, to: &CStr) -> io::Result<()> {
    // SAFETY: both paths live.
    let linked = unsafe {
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow)
    };
    match linked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in self.0.values() {
            if let Err(error) = std::fs::remove_file(name) {
                tracing::warn!("{} cannot be removed: {error}", name.display());
            }
        }
    }
}

/// Flags with which an unlinked file is made, for the description that is kept as it was made.
pub(super) fn flags_of(tree: &Tree, object: u32) -> i32 {
    let own = tree.files.iter().find(|file| {
        matches!(file.kind, FileKind::Object(of) if of == object)
            && file.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE
    });
    own.map_or(0, |file| file.flags as i32 & libc::O_NOFOLLOW)
}
