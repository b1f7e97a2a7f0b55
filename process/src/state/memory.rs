//! Mappings and their backing.

use serde::{Deserialize, Serialize};

use super::Ipc;
use crate::store::SpaceId;

/// A range of an address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// `PROT_*`.
    pub protection: u8,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// What is behind it.
    pub backing: Backing,
    /// Offset of the first byte in that, bytes.
    pub offset: u64,
    /// Bits of [`advice`].
    pub advice: u32,
    /// Size of its pages if it is of huge pages, else 0.
    pub huge_page_bytes: u64,
    /// Name given by `PR_SET_VMA_ANON_NAME`.
    pub name: Option<String>,
}

/// What is behind a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Nothing: its pages are in the store, or zero.
    Anonymous,
    /// A file on disk, by index. Of a private mapping, changed pages are in the store.
    Image {
        /// Which.
        image: u32,
        /// Opened for writing, too (a shared mapping may then be made writable).
        writable: bool,
    },
    /// A shared-memory object, by index.
    Object(u32),
    /// A piece of a System V segment that was attached.
    SystemV {
        /// Which object.
        object: u32,
        /// Attached for writing, too.
        writable: bool,
    },
    /// Code and data that the kernel provides.
    Kernel(KernelPart),
    /// The ring of an asynchronous I/O context with room for this many events.
    AioRing {
        /// As its header has it.
        events: u32,
        /// Which of the rings of the tree.
        ring: u32,
    },
    /// A ring of io_uring, by index.
    Uring(u32),
}

/// `struct aio_ring` before its events.
pub const AIO_HEADER_BYTES: u64 = 32;
/// `struct io_event`.
pub const AIO_EVENT_BYTES: u64 = 32;

/// What lies in the ring of an asynchronous I/O context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Where the next event is read.
    pub head: u32,
    /// Events that were not read, each a `struct io_event`, oldest first.
    pub unread: Vec<[u64; 4]>,
}

/// Which part of the kernel's own mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelPart {
    /// `[vdso]`.
    Vdso,
    /// `[vvar]`.
    Vvar,
    /// `[vvar_vclock]`.
    VvarClock,
}

/// What `madvise`, `mlock` and flags of `mmap` have set.
pub mod advice {
    /// `MADV_DONTFORK`.
    pub const DONT_FORK: u32 = 1;
    /// `MADV_WIPEONFORK`.
    pub const WIPE_ON_FORK: u32 = 1 << 1;
    /// `MADV_DONTDUMP`.
    pub const DONT_DUMP: u32 = 1 << 2;
    /// `MADV_HUGEPAGE`.
    pub const HUGE: u32 = 1 << 3;
    /// `MADV_NOHUGEPAGE`.
    pub const NO_HUGE: u32 = 1 << 4;
    /// `MADV_MERGEABLE`.
    pub const MERGEABLE: u32 = 1 << 5;
    /// `MADV_SEQUENTIAL`.
    pub const SEQUENTIAL: u32 = 1 << 6;
    /// `MADV_RANDOM`.
    pub const RANDOM: u32 = 1 << 7;
    /// `mlock`.
    pub const LOCKED: u32 = 1 << 8;
    /// `MAP_NORESERVE`.
    pub const NO_RESERVE: u32 = 1 << 9;
    /// `MAP_GROWSDOWN`.
    pub const GROWS_DOWN: u32 = 1 << 10;
    /// `MAP_DROPPABLE`.
    pub const DROPPABLE: u32 = 1 << 11;
    /// `MLOCK_ONFAULT`.
    pub const LOCKED_ON_FAULT: u32 = 1 << 12;
    /// A shared mapping that can never be made writable.
    pub const READ_ONLY: u32 = 1 << 13;
    /// `mseal`.
    pub const SEALED: u32 = 1 << 14;
}

/// A file on disk as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Absolute path.
    pub path: String,
    /// Length, bytes.
    pub bytes: u64,
    /// Time of the last change of its contents, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Type and permissions.
    pub mode: u32,
    /// Device number, of a device file.
    pub device: u64,
}

/// A shared-memory object. Its pages are in the store, under its own space, with offsets
/// as addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Names its pages.
    pub space: SpaceId,
    /// Length, bytes.
    pub bytes: u64,
    /// Extended attributes (`user.*`, access control lists) with their values.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// What it is.
    pub kind: ObjectKind,
}

/// Kinds of [`Object`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// `MAP_SHARED | MAP_ANONYMOUS`.
    SharedAnonymous,
    /// `memfd_create`.
    Memfd {
        /// Its name.
        name: String,
        /// `F_SEAL_*`.
        seals: u32,
        /// Permissions.
        mode: u32,
        /// Owner: user, group.
        owner: (u32, u32),
        /// Time of last access and of last change, nanoseconds since 1970.
        times_ns: (i64, i64),
    },
    /// A file that was unlinked while it was open.
    Unlinked {
        /// Where it was.
        path: String,
        /// Permissions.
        mode: u32,
        /// Owner: user, group.
        owner: (u32, u32),
        /// Time of last access and of last change, nanoseconds since 1970.
        times_ns: (i64, i64),
    },
    /// POSIX shared memory (`shm_open`, `sem_open`): a file of /dev/shm, which a power loss takes away.
    Posix {
        /// Where it is.
        path: String,
        /// Permissions.
        mode: u32,
        /// Owner: user, group.
        owner: (u32, u32),
        /// Time of last access and of last change, nanoseconds since 1970.
        times_ns: (i64, i64),
        /// Device and inode number.
        file: (u64, u64),
    },
    /// A System V segment.
    SystemV {
        /// Which.
        ipc: Ipc,
        /// It goes with the last process that has attached it (`IPC_RMID`).
        removed: bool,
    },
}
