//! Memory on a single node.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// A huge page: fewer TLB misses, whose page walks would be measured, too.
pub const HUGE: usize = 2 << 20;
/// `MPOL_BIND`: only memory of this node.
const BIND: libc::c_int = 2;
/// Memory left free on a node: without any, the kernel kills processes.
const SPARE: u64 = 64 << 20;

/// Why memory is not available.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// There is no such node.
    #[error("there is no node {0}; see /sys/devices/system/node")]
    NoNode(u32),
    /// A node without memory, or a full one.
    #[error("node {node} has {free_mib} MiB free; {wanted_mib} MiB are needed")]
    Full {
        node: u32,
        free_mib: u64,
        wanted_mib: u64,
    },
    /// The kernel refused it.
    #[error("memory of node {node}: {error}")]
    Refused { node: u32, error: io::Error },
}

/// Readable and writable memory of a node, fully populated; zero at first.
#[derive(Debug)]
pub struct NodeMemory {
    start: NonNull<u8>,
    bytes: usize,
    map: NonNull<u8>,
    map_bytes: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for NodeMemory {}

impl NodeMemory {
    /// Allocates this many bytes, rounded up to huge pages.
    ///
    /// # Errors
    /// The node does not exist or has too little free memory, or the kernel refuses it.
    pub fn on(node: u32, bytes: usize) -> Result<Self, MemoryError> {
        let bytes = bytes.max(1).next_multiple_of(HUGE);
        let free = free_bytes(node)?;
        if free < bytes as u64 + SPARE {
            return Err(MemoryError::Full {
                node,
                free_mib: free >> 20,
                wanted_mib: (bytes as u64 + SPARE) >> 20,
            });
        }
        let map_bytes = bytes + HUGE;
        let refused = |error: io::Error| MemoryError::Refused { node, error };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map =
            unsafe { mmap_anonymous(ptr::null_mut(), map_bytes, protection, MapFlags::PRIVATE) }
                .map_err(|error| refused(error.into()))?;
        let map = NonNull::new(map.cast::<u8>()).expect("a mapping is not at 0");
        let skipped = map.as_ptr().align_offset(HUGE);
        // SAFETY: within the mapping, which is longer by a huge page.
        let start = unsafe { map.add(skipped) };
        let memory = Self {
            start,
            bytes,
            map,
            map_bytes,
        };
        memory.bind(node).map_err(refused)?;
        // SAFETY: advice does not change the content of new memory.
        unsafe {
            // It works without huge pages, more slowly.
            let _ = madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage);
            madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)
        }
        .map_err(|error| refused(not_populated(error)))?;
        Ok(memory)
    }

    fn bind(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; 16];
        let word = mask.get_mut(node as usize / 64);
        *word.ok_or(io::ErrorKind::InvalidInput)? = 1 << (node % 64);
        // The kernel uses one bit less than the given number.
        let bits = mask.len() * 64 + 1;
        // SAFETY: the mask has this many bits; the range is ours.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                BIND,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Its first byte, aligned to a huge page.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no longer used.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

/// Explains why memory was not populated: an older kernel's error for unknown advice does not.
fn not_populated(error: Errno) -> io::Error {
    let plain = io::Error::from(error);
    match error {
        Errno::INVAL => {
            let why = format!("{plain} (MADV_POPULATE_WRITE: Linux 5.14 or newer is needed)");
            io::Error::new(plain.kind(), why)
        }
        _ => plain,
    }
}

/// Free memory of a node, in bytes.
///
/// # Errors
/// There is no such node.
pub fn free_bytes(node: u32) -> Result<u64, MemoryError> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(path).map_err(|_| MemoryError::NoNode(node))?;
    let line = text.lines().find(|line| line.contains("MemFree:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(3)?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_on_the_node_that_was_asked_for() {
        let memory = NodeMemory::on(0, 1).unwrap();
        assert_eq!(memory.bytes(), HUGE);
        assert_eq!(memory.start().align_offset(HUGE), 0);
        let mut node = -1i32;
        // MPOL_F_NODE | MPOL_F_ADDR: the node on which the page at this address is.
        // SAFETY: the kernel writes one number.
        let done = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                ptr::null::<u64>(),
                0,
                memory.start(),
                3,
            )
        };
        assert_eq!((done, node), (0, 0));
    }

    #[test]
    fn a_node_that_is_not_there_or_too_small_is_named() {
        let said = |node, bytes| NodeMemory::on(node, bytes).unwrap_err().to_string();
        assert!(said(999, 1).contains("no node 999"));
        assert!(said(0, 1 << 50).contains("MiB free"));
    }

    #[test]
    fn an_old_kernel_gets_an_error_with_the_needed_version() {
        let said = |error| not_populated(error).to_string();
        assert!(said(Errno::INVAL).contains("Linux 5.14"));
        assert!(!said(Errno::NOMEM).contains("Linux"));
    }
}
