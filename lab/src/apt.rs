//! Fetches distribution packages through the machine's own apt configuration, without root and
//! without touching the system's own package state.

use thiserror::Error;

/// Why the package archive did not give what was asked for.
#[derive(Debug, Error)]
pub enum AptError {
    /// No Debian archive is configured.
    #[error("no Debian archive in this machine's apt configuration ({detail}): see /etc/apt")]
    NoArchive { detail: String },
}
