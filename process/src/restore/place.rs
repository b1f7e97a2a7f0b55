//! Where the path of a unix socket begins: in a directory of the program, or nowhere any more.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;
use super::error::system;
use super::socket_calls::unix_path;
use crate::state::Socket;

/// Does something from the directory where a socket's relative path begins, or, where its path does not
/// lead to it, in an empty file system.
pub(super) fn in_place<T: Send>(
    socket: &Socket,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    if socket.directory.is_empty() && !socket.detached {
        return work();
    }
    let empty = if socket.detached {
        Some(EmptyRoot::new(socket).map_err(system("make a place for a socket"))?)
    } else {
        None
    };
    let enter = || -> io::Result<()> {
        // A thread with a directory of its own: the tracker's stays.
        // SAFETY: no memory involved.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(empty) = &empty {
            std::os::unix::fs::chroot(&empty.0)?;
            return std::env::set_current_dir("/");
        }
        std::env::set_current_dir(&socket.directory)
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter().map_err(|source| Error::Open {
                path: socket.directory.clone(),
                source,
            })?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A directory with nothing but the directories of a socket's path. The file of the socket goes with
/// it: as the program had removed it.
struct EmptyRoot(PathBuf);

impl EmptyRoot {
    fn new(socket: &Socket) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dormouse-socket-{}-{number}", std::process::id());
        let root = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&root.0)?;
        let path = unix_path(&socket.address).unwrap_or_default();
        if let Some(parent) = std::path::Path::new(path.trim_start_matches('/')).parent() {
            std::fs::create_dir_all(root.0.join(parent))?;
        }
        Ok(root)
    }
}

impl Drop for EmptyRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
