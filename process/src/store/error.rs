//! What can be wrong with a store: what, where, what next.

use std::io;
use std::path::PathBuf;

/// Why an operation on a store failed. None of these loses anything that the store held.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call on the store failed.
    #[error("{path}: cannot {doing}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, to follow "cannot".
        doing: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },

    /// There is no such store.
    #[error("{path}: there is no store here; `dormouse process run` makes one")]
    Missing {
        /// The file.
        path: PathBuf,
    },

    /// Another tracker writes it.
    #[error(
        "{path}: in use by {holder}; a store has one writer at a time \
         (`dormouse process status` shows it, `dormouse process persist` asks it)"
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// Process and name, as far as known.
        holder: String,
    },

    /// It belongs to another user.
    #[error(
        "{path}: belongs to user {owner}, and this is user {user}: a store holds all of a \
         program's memory, and is for its owner only; run as that user"
    )]
    OtherUser {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The calling user.
        user: u32,
    },

    /// The medium cannot be written.
    #[error("{path}: the file system is mounted read-only; choose another --store")]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },

    /// No room for what must be written.
    #[error(
        "{path}: full: {needed} more bytes are needed, {limit} bytes is all it may have; \
         the last complete epoch is kept. Give it more (--store-size, or room on the file system)"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// Bytes that could not be had.
        needed: u64,
        /// Bytes that the store may have.
        limit: u64,
    },

    /// Not a store at all.
    #[error("{path}: not a process store: {reason}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is missing.
        reason: String,
    },

    /// A store of another version.
    #[error(
        "{path}: format version {found}, this program knows {known}; restore it with the \
         version that wrote it, or remove it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },

    /// It holds another program.
    #[error(
        "{path}: holds `{holds}`, not `{wanted}`; give the name {holds}, or choose \
         another --store"
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// Its owner.
        holds: String,
        /// The wanted name.
        wanted: String,
    },

    /// A name that cannot be a file's.
    #[error("`{name}` cannot be a name: use letters, digits, dots, dashes and underscores")]
    Name {
        /// The name.
        name: String,
    },

    /// It was a store, and the medium has changed it.
    #[error("{path}: damaged: {reason}; it will not be restored from")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

/// What is wrong with bytes that were read, before anyone knows from which file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No magic number.
    #[error("{0} has no magic number")]
    Magic(&'static str),
    /// Another version.
    #[error("format version {0}")]
    Version(u32),
    /// Checksum wrong.
    #[error("{0} does not match its checksum")]
    Checksum(&'static str),
    /// Too short, or a number that points outside.
    #[error("{what}: {value} is out of bounds")]
    Bounds {
        /// Which field.
        what: &'static str,
        /// What it contains.
        value: u64,
    },
    /// A different store's.
    #[error("{0} belongs to another store")]
    Stranger(&'static str),
    /// Two things in one place.
    #[error("frame {0} is used twice")]
    Twice(u64),
}

/// An error of the kernel about a store; `doing` completes "cannot …".
pub(super) fn io_error(
    path: &std::path::Path,
    doing: &'static str,
    source: io::Error,
) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => StoreError::Missing { path },
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path },
        _ => StoreError::Io {
            path,
            doing,
            source,
        },
    }
}
