//! What can go wrong inside the machine: always what was tried, and why it failed.

use std::io;

/// An error with what was being done.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Other(String),
}

/// Adds what was being done to an error of the system.
pub trait Doing<T> {
    /// `what` reads as the object of "failed": "mount /proc".
    fn doing(self, what: impl Into<String>) -> Result<T, GuestError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, GuestError> {
        self.map_err(|source| GuestError::Io {
            what: what.into(),
            source: source.into(),
        })
    }
}
