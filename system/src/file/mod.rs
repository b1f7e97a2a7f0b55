//! Files that this project writes for itself: state that survives a crash, locks.

mod atomic;
mod lock;

use std::io;
use std::path::{Path, PathBuf};

pub use atomic::{Durability, read_json, replace, replace_json};
pub use lock::{lock, try_lock};

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be {doing}: {source}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What was tried, as a participle: `read`, `written`, `locked`.
    pub doing: &'static str,
    /// What the system reported.
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`: adds the path and what was tried.
    pub fn new(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> FileError {
        let path = path.to_owned();
        move |source| FileError {
            path: path.clone(),
            doing,
            source,
        }
    }
}

/// A path of a file that is not there yet, in a temporary directory.
#[cfg(test)]
fn scratch(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    (directory, path)
}
