//! The cache of everything built or fetched: one folder for each artefact, named by the hash of
//! its inputs, complete or absent.

use std::path::PathBuf;

use thiserror::Error;

/// Why the cache cannot be used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// A file of the cache could not be read or written.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}
