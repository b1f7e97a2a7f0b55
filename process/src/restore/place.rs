//! Where the path of a unix socket begins: in a directory of the program, or nowhere any more; and where its
//! file is, if the program has renamed it.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;

use super::Error;
use super::descriptors::owned;
use super::error::system;
use super::socket_calls::{name, unix_path};
use crate::state::Socket;

/// Does something from the directory where a socket's relative path begins, or, where its path does not
/// lead to it, in an empty file system. A file that the program has renamed is put in its place afterwards.
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
            std::os::unix::fs::chroot(&empty.path)?;
            return std::env::set_current_dir("/");
        }
        std::env::set_current_dir(&socket.directory)
    };
    let done = std::thread::scope(|scope| {
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
    })?;
    if let (Some(empty), Some(path)) = (&empty, socket.renamed()) {
        empty.rename(socket, path)?;
    }
    Ok(done)
}

/// How the directories are named, before numbers that make them different.
const PREFIX: &str = ".dormouse-socket-";

/// A directory with nothing but the directories of a socket's path. The file of the socket goes with
/// it, as the program had removed it, unless it is renamed.
struct EmptyRoot {
    path: PathBuf,
    /// Locked for as long as it is in use: one that is not is left over from a restore that was killed.
    _lock: File,
}

impl EmptyRoot {
    fn new(socket: &Socket) -> io::Result<Self> {
        // On the file system of a file that is renamed.
        let above = socket.renamed().and_then(|path| Path::new(path).parent());
        let root = Self::make(above.unwrap_or(&std::env::temp_dir()))?;
        let path = unix_path(&socket.address).unwrap_or_default();
        if let Some(parent) = Path::new(path.trim_start_matches('/')).parent() {
            std::fs::create_dir_all(root.path.join(parent))?;
        }
        Ok(root)
    }

    fn make(above: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        remove_leftovers(above);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            let path = above.join(name);
            match std::fs::create_dir(&path) {
                // In a container, trackers have the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another restore may have taken it for a leftover before it was locked.
            if let Some(held) = lock(&path) {
                return Ok(Self { path, _lock: held });
            }
        }
    }

    /// Puts the file of a socket where the program has renamed it to.
    fn rename(&self, socket: &Socket, to: &str) -> Result<(), Error> {
        let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        address.extend_from_slice(to.as_bytes());
        address.push(0);
        let there = Socket {
            address,
            ..socket.clone()
        };
        let old = remove_stale(&there)?;
        let path = unix_path(&socket.address).unwrap_or_default();
        let from = self.path.join(path.trim_start_matches('/'));
        if let Some(old) = old {
            inherit(&from, &old);
        }
        std::fs::rename(from, to).map_err(|source| Error::Open {
            path: to.to_owned(),
            source,
        })
    }
}

impl Drop for EmptyRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Locks a directory, if nobody else has, and it is still there.
fn lock(path: &Path) -> Option<File> {
    let directory = File::open(path).ok()?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    let (opened, now) = (
        directory.metadata().ok()?,
        std::fs::symlink_metadata(path).ok()?,
    );
    ((opened.dev(), opened.ino()) == (now.dev(), now.ino())).then_some(directory)
}

/// Removes directories of restores that were killed.
fn remove_leftovers(above: &Path) {
    // SAFETY: no memory involved.
    let own = unsafe { libc::geteuid() };
    for entry in std::fs::read_dir(above).into_iter().flatten().flatten() {
        let named = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        let ours = || {
            let metadata = entry.metadata();
            metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own)
        };
        if named
            && ours()
            && let Some(_lock) = lock(&entry.path())
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The file of a unix socket outlives its process. Removes it if it is stale, and
/// returns its metadata.
pub(super) fn remove_stale(socket: &Socket) -> Result<Option<Metadata>, Error> {
    let Some(path) = unix_path(&socket.address) else {
        return Ok(None);
    };
    let Ok(metadata) = std::fs::symlink_metadata(&path) else {
        return Ok(None);
    };
    if !metadata.file_type().is_socket() {
        return Err(taken(
            socket,
            io::Error::from_raw_os_error(libc::EADDRINUSE),
        ));
    }
    // SAFETY: no memory involved.
    let probe = owned(unsafe {
        libc::socket(
            libc::AF_UNIX,
            socket.kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    })
    .map_err(system("make a socket"))?;
    // SAFETY: the address is valid for its length.
    let answered = unsafe {
        libc::connect(
            probe.as_raw_fd(),
            socket.address.as_ptr().cast(),
            socket.address.len() as u32,
        ) == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ECONNREFUSED)
    };
    if answered {
        return Err(taken(
            socket,
            io::Error::from_raw_os_error(libc::EADDRINUSE),
        ));
    }
    std::fs::remove_file(&path).map_err(|source| Error::Open { path, source })?;
    Ok(Some(metadata))
}

/// Gives the file of a socket the permissions and the owner of the one that was there.
pub(super) fn inherit(path: &Path, old: &Metadata) {
    let mode = PermissionsExt::from_mode(old.mode() & 0o7777);
    let _ = std::fs::set_permissions(path, mode);
    let _ = std::os::unix::fs::chown(path, Some(old.uid()), Some(old.gid()));
}

/// Another program has the address of a socket.
pub(super) fn taken(socket: &Socket, source: io::Error) -> Error {
    Error::Address {
        address: name(&socket.address),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_restores_that_were_killed_are_removed_and_those_in_use_stay() {
        let above = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let path = above.path().join(name);
            std::fs::create_dir_all(path.join("run/it")).expect("made");
            path
        };
        let left = make(".dormouse-socket-1-0");
        let in_use = make(".dormouse-socket-2-0");
        let of_others = make("socket-1-0");
        let held = lock(&in_use).expect("a lock");
        let root = EmptyRoot::make(above.path()).expect("a root");
        assert_eq!(
            [&left, &in_use, &of_others, &root.path].map(|path| path.exists()),
            [false, true, true, true]
        );
        // In use, it is nobody's to remove.
        remove_leftovers(above.path());
        assert!(root.path.exists());
        let path = root.path.clone();
        drop((root, held));
        assert!(!path.exists());
        // Another test may just have forked: until its child executes a program, it has the lock, too.
        let started = std::time::Instant::now();
        while in_use.exists() {
            assert!(started.elapsed() < std::time::Duration::from_secs(60));
            remove_leftovers(above.path());
            std::thread::yield_now();
        }
    }
}
