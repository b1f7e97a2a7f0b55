//! An owner of memory, as plain data: a process, a file system, the kernel; and the kinds of
//! memory.

use serde::{Deserialize, Serialize};

use crate::bytes::human;

/// Maximum number of owners in a message.
const NAMED: usize = 5;

/// What kind of memory it is; for memory that stayed in DRAM, why it stayed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Anonymous memory; it moves.
    #[default]
    Anonymous,
    /// Anonymous or shared memory that may not be swapped out (`mlock`); it moves.
    Mlocked,
    /// Pages of files on a disk.
    File,
    /// Mapped shared memory: System V, POSIX, memfd, tmpfs.
    SharedMemory,
    /// Held by a device, io_uring or another program: it cannot move.
    Pinned,
    /// From the hugetlb pool; stays where the CXL node has no contiguous memory for it.
    Hugetlb,
    /// `memfd_secret(2)`: the kernel never moves it.
    Secretmem,
    /// The kernel's own pages that a process maps: rings of io_uring, perf, packet sockets.
    KernelBuffer,
    /// It would have moved, but the CXL node was full.
    NoRoom,
    /// Files in tmpfs that no process maps.
    Tmpfs,
    /// System V shared memory that no process has attached.
    SysvShm,
    /// A memfd that is open and that no process maps.
    Memfd,
    /// Free pages of the hugetlb pool.
    HugetlbPool,
    /// Compressed swap.
    Zram,
    /// Everything else of the kernel's.
    Kernel,
}

impl MemoryKind {
    /// The name in `--json`, for messages too.
    pub fn name(self) -> String {
        let value = serde_json::to_value(self).expect("a name is plain data");
        value.as_str().unwrap_or_default().to_owned()
    }
}

/// Somebody's memory of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owner {
    /// None: no process owns it (a tmpfs, the kernel).
    pub pid: Option<i32>,
    /// The program, the mount point, the segment.
    pub name: String,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// Memory that several processes share counts for each of them.
    pub bytes: u64,
}

impl Owner {
    /// An owner that is not a process.
    pub fn without_process(name: impl Into<String>, kind: MemoryKind, bytes: u64) -> Owner {
        Owner {
            pid: None,
            name: name.into(),
            kind,
            bytes,
        }
    }
}

/// `redis-server (431) 512.0 MiB anonymous, /dev/shm 64.0 MiB tmpfs`, the largest ones.
pub fn describe(owners: &[Owner]) -> String {
    let one = |owner: &Owner| {
        let pid = owner.pid.map(|pid| format!(" ({pid})")).unwrap_or_default();
        let (bytes, kind) = (human(owner.bytes), owner.kind.name());
        format!("{}{pid} {bytes} {kind}", owner.name)
    };
    let names: Vec<String> = owners.iter().take(NAMED).map(one).collect();
    names.join(", ")
}
