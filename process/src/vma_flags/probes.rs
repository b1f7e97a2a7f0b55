//! Mappings of our own, so that the flags a program can have are seen with their names.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::MemfdFlags;

use crate::track::uffd;

const PAGE: usize = 4096;
/// `MAP_DROPPABLE`, since Linux 6.11.
const DROPPABLE: i32 = 0x08;
/// `MADV_GUARD_INSTALL`, since Linux 6.13; from 6.19 on the mapping is marked, too.
const GUARD_INSTALL: i32 = 102;

const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_WRITE;
const EXECUTE: i32 = libc::PROT_EXEC;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const SHARED: i32 = libc::MAP_SHARED | libc::MAP_ANONYMOUS;

/// Mappings of one page by protection and `mmap` flags.
const ANONYMOUS: [(i32, i32); 9] = [
    (READ, PRIVATE),
    (READ | WRITE, PRIVATE),
    (READ | EXECUTE, PRIVATE),
    (READ | WRITE | EXECUTE, PRIVATE),
    (READ | WRITE, PRIVATE | libc::MAP_NORESERVE),
    (READ | WRITE, PRIVATE | libc::MAP_GROWSDOWN),
    (READ | WRITE, libc::MAP_ANONYMOUS | DROPPABLE),
    (READ, SHARED),
    (READ | WRITE, SHARED),
];
/// What is advised about one each that can be written to.
const ADVICE: [i32; 9] = [
    libc::MADV_DONTFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_DONTDUMP,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_MERGEABLE,
    libc::MADV_SEQUENTIAL,
    libc::MADV_RANDOM,
    GUARD_INSTALL,
];
/// With `mlock2`: all of it now, and what is touched.
const LOCKS: [u32; 2] = [0, libc::MLOCK_ONFAULT];
/// Mappings of a file by protection and `mmap` flags.
const OF_A_FILE: [(i32, i32); 4] = [
    (READ, libc::MAP_PRIVATE),
    (READ | EXECUTE, libc::MAP_PRIVATE),
    (READ, libc::MAP_SHARED),
    (READ | WRITE, libc::MAP_SHARED),
];
/// The last is registered with a userfaultfd, as a tracked program's memory is.
const PROBES: usize = ANONYMOUS.len() + ADVICE.len() + LOCKS.len() + 2 * OF_A_FILE.len() + 1;

/// The mappings, until dropped. Each is between two inaccessible pages: it cannot merge with others.
#[derive(Debug)]
pub struct Probes {
    start: usize,
    _uffd: Option<OwnedFd>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        // SAFETY: ours, and nothing points there.
        unsafe { libc::munmap(self.start as *mut c_void, Self::BYTES) };
    }
}

impl Probes {
    const BYTES: usize = (2 * PROBES + 1) * PAGE;

    /// Makes them. One that this kernel refuses is missing: the page stays inaccessible.
    ///
    /// # Errors
    /// There is no room for any, or no file in memory.
    pub fn new() -> io::Result<Self> {
        let start = map(None, Self::BYTES, libc::PROT_NONE, PRIVATE, -1)?;
        let mut probes = Self { start, _uffd: None };
        let file = rustix::fs::memfd_create("dormouse probe", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, PAGE as u64)?;
        let read_only = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let mut pages = (0..PROBES).map(|nth| start + (2 * nth + 1) * PAGE);
        let mut probe = |protection, flags, fd| {
            let page = pages.next().expect("there is one for each");
            map(Some(page), PAGE, protection, flags, fd)
                .ok()
                .map(|_| page)
        };
        for (protection, flags) in ANONYMOUS {
            probe(protection, flags, -1);
        }
        for advice in ADVICE {
            if let Some(page) = probe(READ | WRITE, PRIVATE, -1) {
                // SAFETY: our own page, which nothing points to. Where it is refused, nothing changes.
                unsafe { libc::madvise(page as *mut c_void, PAGE, advice) };
            }
        }
        for lock in LOCKS {
            if let Some(page) = probe(READ | WRITE, PRIVATE, -1) {
                // SAFETY: as above.
                unsafe { libc::mlock2(page as *const c_void, PAGE, lock) };
            }
        }
        for fd in [file.as_raw_fd(), read_only.as_raw_fd()] {
            for (protection, flags) in OF_A_FILE {
                probe(protection, flags, fd);
            }
        }
        if let Some(page) = probe(READ | WRITE, PRIVATE, -1) {
            probes._uffd = registered(page as u64..(page + PAGE) as u64).ok();
        }
        Ok(probes)
    }

    /// Where they are; the inaccessible pages between them are probes, too.
    pub fn range(&self) -> Range<u64> {
        self.start as u64..(self.start + Self::BYTES) as u64
    }
}

/// A new mapping, at an address of ours or where the kernel likes.
fn map(
    at: Option<usize>,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: RawFd,
) -> io::Result<usize> {
    let fixed = at.map_or(0, |_| libc::MAP_FIXED);
    let at = at.unwrap_or(0) as *mut c_void;
    // SAFETY: a fixed address is that of a page that is ours and in no use.
    let mapped = unsafe { libc::mmap(at, bytes, protection, flags | fixed, fd, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(mapped as usize)
}

fn registered(range: Range<u64>) -> io::Result<OwnedFd> {
    let uffd = uffd::open(libc::O_CLOEXEC)?;
    uffd::enable(&uffd, uffd::FEATURE_WP_ASYNC | uffd::FEATURE_WP_UNPOPULATED)?;
    uffd::register(&uffd, range.start, range.end, uffd::MODE_WP)?;
    Ok(uffd)
}
