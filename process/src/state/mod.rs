//! The description of a process tree: plain data, its encoding, its checks.
//!
//! It holds everything that the kernel knows about the tree, except the contents of its pages.
//!
//! ```text
//!  ┌──────────┬─────────┬──────────────────────────────────────────────┐
//!  │ "DMPT"   │ version │ Tree, encoded with postcard                   │
//!  │ 4 bytes  │ u16 LE  │                                               │
//!  └──────────┴─────────┴──────────────────────────────────────────────┘
//!   Tree ─┬─ clocks, kernel, vdso
//!         ├─ processes ─┬─ threads       registers, signals, credentials, scheduling
//!         │             ├─ mappings ─────┐
//!         │             └─ descriptors ──┼──► files ──► sockets, pipes, …
//!         ├─ images  ◄───────────────────┘    (files on disk, by path and identity)
//!         └─ objects                          (shared memory; pages in the store)
//! ```
//!
//! A description comes from a medium that was without power: [`Tree::decode`] trusts nothing in
//! it, and what it returns holds the promises of `check::validate`.

mod check;
mod files;
mod filters;
mod ghosts;
mod ipc;
mod memory;
mod posix_queues;
mod task;
mod terminal;
mod uring;

pub use check::{Invalid, TASK_END};
pub use files::*;
pub use filters::*;
pub use ghosts::*;
pub use ipc::*;
pub use memory::*;
pub use posix_queues::*;
pub use task::*;
pub use terminal::*;
pub use uring::*;

use serde::{Deserialize, Serialize};

const MAGIC: [u8; 4] = *b"DMPT";
/// Of the encoding below. A change to any of the types needs another one.
const VERSION: u16 = 10;
/// Longer descriptions are refused: 1 GiB.
const BYTES_MAX: usize = 1 << 30;

/// A process tree at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// What the tree's clocks showed.
    pub clocks: Clocks,
    /// The kernel that it ran on.
    pub kernel: Kernel,
    /// Number of the root's parent, which is the tracker unless it was attached to the program; 0: a process
    /// of another PID namespace.
    pub parent: i32,
    /// The processes: parents before their children.
    pub processes: Vec<Process>,
    /// Open file descriptions that descriptors refer to by index.
    pub files: Vec<File>,
    /// Files on disk that mappings and descriptions refer to by index.
    pub images: Vec<Image>,
    /// Files that it has written and closed: in a restore they must be as they were.
    pub written: Vec<Image>,
    /// Shared-memory objects, by index.
    pub objects: Vec<Object>,
    /// Pipes, by index.
    pub pipes: Vec<Pipe>,
    /// Sockets, by index.
    pub sockets: Vec<Socket>,
    /// Names that were removed: directories before what is in them.
    pub ghosts: Vec<Ghost>,
    /// Processes that have ended, of which files of /proc are open.
    pub dead: Vec<i32>,
    /// Filters of system calls, by index.
    pub filters: Vec<Filter>,
    /// Rings of asynchronous I/O contexts, by index.
    pub rings: Vec<Ring>,
    /// Rings of io_uring, by index.
    pub urings: Vec<IoUring>,
    /// System V semaphores.
    pub semaphores: Vec<SemaphoreSet>,
    /// System V message queues.
    pub queues: Vec<MessageQueue>,
    /// POSIX message queues, by index.
    pub posix_queues: Vec<PosixQueue>,
    /// Pseudo-terminals of which it has the master side.
    pub terminals: Vec<Terminal>,
    /// Directories of files that belong to it.
    pub data: Vec<Data>,
}

/// A directory of files that must be as they were, whether or not the program has them open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// Its path.
    pub path: String,
    /// Of names, types, lengths and times of change below.
    pub digest: u64,
}

/// Clocks as the tree saw them, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: i64,
    /// `CLOCK_BOOTTIME`.
    pub boottime_ns: i64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: i64,
}

/// What must be the same when the tree is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// xxh3 of the vdso's bytes; 0: the tree has none.
    pub vdso_digest: u64,
    /// Bits of the extended register state that the CPU has enabled (xcr0).
    pub xstate_features: u64,
}

/// A description that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not ours.
    #[error("this is not the description of a process tree (it begins with {0:02x?})")]
    Magic(Vec<u8>),
    /// Written by another version.
    #[error(
        "the description has version {found}, this program reads version {VERSION}: restore it with \
         the dormouse that wrote it"
    )]
    Version {
        /// The version in the description.
        found: u16,
    },
    /// Absurdly long.
    #[error("the description is {0} bytes long, more than the limit of {BYTES_MAX}")]
    TooLong(usize),
    /// Damaged.
    #[error("the description is damaged: {0}")]
    Encoding(#[from] postcard::Error),
    /// Bytes after its end.
    #[error("the description is damaged: {0} bytes follow its end")]
    Trailing(usize),
    /// Well-formed, but it contradicts itself.
    #[error("the description contradicts itself: {0}")]
    Invalid(#[from] Invalid),
}

impl Tree {
    /// A tree with nothing in it.
    pub fn empty() -> Self {
        Self {
            clocks: Clocks {
                monotonic_ns: 0,
                boottime_ns: 0,
                realtime_ns: 0,
            },
            kernel: Kernel {
                release: String::new(),
                vdso_digest: 0,
                xstate_features: 0,
            },
            parent: 0,
            processes: Vec::new(),
            files: Vec::new(),
            images: Vec::new(),
            written: Vec::new(),
            objects: Vec::new(),
            pipes: Vec::new(),
            sockets: Vec::new(),
            ghosts: Vec::new(),
            dead: Vec::new(),
            filters: Vec::new(),
            rings: Vec::new(),
            urings: Vec::new(),
            semaphores: Vec::new(),
            queues: Vec::new(),
            posix_queues: Vec::new(),
            terminals: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The bytes to store.
    ///
    /// # Panics
    /// Never: all types can be encoded.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        postcard::to_extend(self, bytes).expect("plain data has an encoding")
    }

    /// Reads and checks stored bytes.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > BYTES_MAX {
            return Err(DecodeError::TooLong(bytes.len()));
        }
        let Some((head, body)) = bytes.split_at_checked(MAGIC.len() + 2) else {
            return Err(DecodeError::Magic(bytes.to_vec()));
        };
        if head[..MAGIC.len()] != MAGIC {
            return Err(DecodeError::Magic(head[..MAGIC.len()].to_vec()));
        }
        let found = u16::from_le_bytes([head[MAGIC.len()], head[MAGIC.len() + 1]]);
        if found != VERSION {
            return Err(DecodeError::Version { found });
        }
        let (tree, rest) = postcard::take_from_bytes::<Self>(body)?;
        if !rest.is_empty() {
            return Err(DecodeError::Trailing(rest.len()));
        }
        check::validate(&tree)?;
        ghosts::validate(&tree)?;
        filters::validate(&tree)?;
        ipc::validate(&tree)?;
        posix_queues::validate(&tree)?;
        terminal::validate(&tree)?;
        uring::validate(&tree)?;
        Ok(tree)
    }
}

#[cfg(test)]
mod tests;
