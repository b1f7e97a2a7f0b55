//! Rings of io_uring: what the kernel shows of them to nobody but a debugger, and how to make one.
//!
//! `fdinfo` does not show whether a request is under way in a ring (io_uring/fdinfo.c). The kernel counts
//! the requests of a ring (Linux 6.16), and a BPF program may read its memory; the kernel describes
//! the types of that (BTF). So the tracker reads what the kernel itself knows, and changes nothing.

mod context;
mod kernel;
mod ring;
mod types;

pub(crate) use context::{Context, Unreadable};
pub(crate) use ring::{Counters, Ring, Setup, contents, usable};

/// `anon_inode:[io_uring]`, as /proc names descriptors and mappings of a ring.
pub(crate) const LINK: &str = "anon_inode:[io_uring]";
/// Offset at which the entries for submission are mapped (`IORING_OFF_SQES`).
const OFFSET_SQES: u64 = 0x1000_0000;
/// All offsets; the first two, of the queues, have the same memory.
pub(crate) const OFFSETS: [u64; 3] = [0, 0x800_0000, OFFSET_SQES];

/// `IORING_SETUP_*`.
pub(crate) mod setup {
    pub const IOPOLL: u32 = 1;
    pub const SQPOLL: u32 = 1 << 1;
    pub const CQSIZE: u32 = 1 << 3;
    pub const CLAMP: u32 = 1 << 4;
    pub const ATTACH_WQ: u32 = 1 << 5;
    pub const R_DISABLED: u32 = 1 << 6;
    pub const SUBMIT_ALL: u32 = 1 << 7;
    pub const COOP_TASKRUN: u32 = 1 << 8;
    pub const TASKRUN_FLAG: u32 = 1 << 9;
    pub const SQE128: u32 = 1 << 10;
    pub const CQE32: u32 = 1 << 11;
    pub const SINGLE_ISSUER: u32 = 1 << 12;
    pub const DEFER_TASKRUN: u32 = 1 << 13;
    pub const NO_MMAP: u32 = 1 << 14;
    pub const NO_SQARRAY: u32 = 1 << 16;
}

#[cfg(test)]
mod tests;
