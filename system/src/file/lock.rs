//! Lock files (`flock(2)`): the kernel releases a lock when its holder ends, however it ends.

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::FileError;

/// Takes an exclusive lock, and creates the file where it is missing. None if somebody else holds
/// it. The lock is held until the file is dropped.
///
/// # Errors
/// The file cannot be opened or locked.
pub fn try_lock(path: &Path) -> Result<Option<File>, FileError> {
    let file = open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(FileError::new(path, "locked")(error.into())),
    }
}

/// Takes an exclusive lock as [`try_lock`] does, and waits for it. `waiting` is called once before
/// the wait, if there is one.
///
/// # Errors
/// The file cannot be opened or locked.
pub fn lock(path: &Path, waiting: impl FnOnce()) -> Result<File, FileError> {
    if let Some(file) = try_lock(path)? {
        return Ok(file);
    }
    waiting();
    let file = open(path)?;
    flock(&file, FlockOperation::LockExclusive)
        .map_err(|error| FileError::new(path, "locked")(error.into()))?;
    Ok(file)
}

fn open(path: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(FileError::new(path, "opened"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::file::scratch;

    #[test]
    fn a_lock_has_one_holder_at_a_time() {
        let (directory, path) = scratch("lock");
        let held = try_lock(&path).unwrap().expect("it is free");
        assert!(try_lock(&path).unwrap().is_none());
        drop(held);
        assert!(try_lock(&path).unwrap().is_some());
        assert!(try_lock(&directory.path().join("no/lock")).is_err());
    }

    #[test]
    fn a_waiting_lock_is_taken_when_the_holder_lets_go() {
        let (_directory, path) = scratch("lock");
        let held = lock(&path, || panic!("it is free")).unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let path = &path;
            let other = scope.spawn(move || lock(path, || sender.send(()).unwrap()).is_ok());
            receiver.recv().unwrap();
            drop(held);
            assert!(other.join().unwrap());
        });
    }
}
