//! Which pages of a program are there, and which were written to since they were last protected.

use std::fs::File;
use std::io;

use dormouse_system::proc::pagemap::{self, FILE, PRESENT, SWAPPED, Scan, ZERO};
pub use dormouse_system::proc::pagemap::{Region, WRITTEN, open};

use super::areas::{Area, Kind};
use crate::store::PAGE_BYTES;

/// Whether a region holds bytes of a private page that zeros or a file do not give.
pub fn is_private_content(region: &Region) -> bool {
    region.has(PRESENT | SWAPPED) && !region.has(ZERO | FILE)
}

/// Length of a region in pages.
pub fn page_count(region: &Region) -> u64 {
    (region.end - region.start) / PAGE_BYTES
}

/// What a scan does besides reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    /// Nothing.
    Nothing,
    /// Nothing, but refuses as `Written` does.
    Registered,
    /// Protects what was written to, in the same instant; refuses with EPERM where the range is
    /// not registered for asynchronous write-protection.
    Written,
}

/// Reports the pages of a range that are there, ascending. [`FILE`] is not reported for memory
/// without a file: the kernel would read each page's own record, which is rarely in the cache.
///
/// # Errors
/// EPERM: see [`Protect`]. Anything else: there is no such process or system call.
pub fn scan(
    pagemap: &File,
    area: &Area,
    protect: Protect,
    each: impl FnMut(Region),
) -> io::Result<()> {
    let file = match area.kind {
        Kind::Anonymous => 0,
        Kind::PrivateFile => FILE,
    };
    let what = Scan {
        any_of: PRESENT | SWAPPED,
        reported: WRITTEN | file | PRESENT | SWAPPED | ZERO,
        protect: protect == Protect::Written,
        registered: protect == Protect::Registered,
        ..Scan::default()
    };
    pagemap::scan(pagemap, area.start..area.end, what, each)
}

/// As [`scan`], by several threads where there is enough to look at; in ascending order.
///
/// # Errors
/// As [`scan`], for any part; other parts may be protected then.
pub fn scan_by(
    threads: usize,
    pagemap: &File,
    area: &Area,
    protect: Protect,
) -> io::Result<Vec<Region>> {
    // Shorter than this, a scan takes about as long as starting a thread.
    const PART_MIN: u64 = 64 << 20;
    const HUGE_PAGE: u64 = 2 << 20;
    let bytes = area.end - area.start;
    let parts = (bytes / PART_MIN).clamp(1, threads as u64);
    let part = (bytes / parts).next_multiple_of(HUGE_PAGE);
    let regions = |start: u64| {
        let mut found = Vec::new();
        let part = Area {
            start,
            end: (start + part).min(area.end),
            ..*area
        };
        scan(pagemap, &part, protect, |region| found.push(region))?;
        Ok(found)
    };
    if parts < 2 {
        return regions(area.start);
    }
    let starts: Vec<u64> = (area.start..area.end).step_by(part as usize).collect();
    std::thread::scope(|scope| {
        let regions = &regions;
        let workers: Vec<_> = starts
            .into_iter()
            .map(|start| scope.spawn(move || regions(start)))
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            let found: io::Result<Vec<Region>> = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(found?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of our own of which every other huge page's first page, and its last page, is there.
    #[test]
    fn several_threads_find_what_one_finds() {
        const BYTES: usize = 200 << 20;
        const STEP: usize = 4 << 20;
        // SAFETY: a new mapping at a place of the kernel's choice, which only this test uses.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: inside of it.
        unsafe { libc::madvise(at, BYTES, libc::MADV_NOHUGEPAGE) };
        for offset in (0..BYTES).step_by(STEP).chain([BYTES - 4096]) {
            // SAFETY: inside of it.
            unsafe { at.cast::<u8>().add(offset).write_volatile(1) };
        }
        let area = Area {
            start: at.addr() as u64,
            end: (at.addr() + BYTES) as u64,
            kind: Kind::Anonymous,
            readable: true,
        };
        let pagemap = open(std::process::id() as i32).unwrap();
        let by = |threads| scan_by(threads, &pagemap, &area, Protect::Nothing);
        match by(1) {
            Ok(one) => {
                assert_eq!(one.len(), BYTES / STEP + 1);
                assert_eq!(by(2).unwrap(), one);
                assert_eq!(by(64).unwrap(), one);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY)),
        }
        // SAFETY: our own mapping; nothing refers to it any more.
        unsafe { libc::munmap(at, BYTES) };
    }
}
