//! The kinds of hard-to-move memory that a process of the emulated machine can hold while it
//! sleeps.

/// A kind, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardToMoveKind {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for the list.
    pub meaning: &'static str,
    /// Part of `all`: it neither fills the machine nor prevents the sleep.
    pub in_all: bool,
}

const fn kind(name: &'static str, meaning: &'static str) -> HardToMoveKind {
    HardToMoveKind {
        name,
        meaning,
        in_all: true,
    }
}

const fn alone(name: &'static str, meaning: &'static str) -> HardToMoveKind {
    HardToMoveKind {
        name,
        meaning,
        in_all: false,
    }
}

/// All of them, in the order in which they are set up.
pub const HARD_TO_MOVE_KINDS: [HardToMoveKind; 27] = [
    // Contiguous memory first, while there is some.
    kind("hugetlb", "huge pages of the hugetlb pool"),
    kind("thp", "transparent huge pages; they must stay whole"),
    kind("mlock", "locked by mlock"),
    kind("map-locked", "mapped with MAP_LOCKED and MAP_POPULATE"),
    kind("pinned", "buffers registered with io_uring"),
    kind("file-private", "a private mapping of a file, written"),
    kind("file-shared", "a shared mapping of a file, written"),
    kind("sysv", "a System V segment that four processes map"),
    kind("posix", "POSIX shared memory that four processes map"),
    kind("tmpfs", "a file in tmpfs that no process maps"),
    kind("memfd", "a sealed memfd, open, that no process maps"),
    kind("pipe", "a pipe full of data"),
    kind("socket", "a Unix socket with unread data"),
    kind("ksm", "pages that the kernel has merged"),
    kind("uffd", "memory provided and tracked by userfaultfd"),
    kind("cpuset", "a control group that may not use the CXL node"),
    kind("memcg", "a control group at its memory limit"),
    kind("dontfork", "memory that children do not inherit"),
    kind("secret", "memory of memfd_secret"),
    kind("poison", "memory with a poisoned page"),
    // The one with the lower priority first, or it would get nothing.
    kind("swap", "pages swapped out to the disk"),
    kind("zram", "pages swapped out to zram"),
    kind("fork", "a process that forks all the time"),
    kind("exec", "a process that starts programs all the time"),
    kind("mmap", "a process that maps and unmaps all the time"),
    alone(
        "stuck",
        "a process in uninterruptible sleep: it prevents the sleep",
    ),
    // It fills what the others have left.
    alone(
        "dram-full",
        "anonymous memory and page cache until 95 % of DRAM are used",
    ),
];

/// The kind of this name.
pub fn by_name(name: &str) -> Option<HardToMoveKind> {
    HARD_TO_MOVE_KINDS
        .into_iter()
        .find(|kind| kind.name == name)
}
