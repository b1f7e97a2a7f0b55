//! Result of one round of the background sync, and why a round fails.

use std::io;
use std::time::Duration;

use crate::ptrace::Pid;
use crate::store::StoreError;

/// Why pages cannot be copied to the store.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stopped program's page cannot be read.
    #[error(
        "page {address:#x} of process {pid} cannot be read (broken memory, a device's, or a \
         guard page): not supported"
    )]
    Unreadable {
        /// Whose.
        pid: Pid,
        /// Its address.
        address: u64,
    },
    /// A shared-memory object cannot be read.
    #[error("shared memory {device:x}:{inode} cannot be read: {source}")]
    Object {
        /// Its device.
        device: u64,
        /// Its inode.
        inode: u64,
        /// Why not.
        source: io::Error,
    },
}

/// How much a round moved, and how fast.
#[derive(Debug, Clone, Copy, Default)]
pub struct Round {
    /// Pages found written to since the round before.
    pub written_pages: u64,
    /// Pages compared with the store.
    pub compared_pages: u64,
    /// Pages written to the store.
    pub stored_pages: u64,
    /// Time of looking.
    pub scan: Duration,
    /// Time of comparing and copying.
    pub copy: Duration,
}
