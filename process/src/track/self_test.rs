//! Tests at start, on memory of our own, that this kernel's scan reports what tracking relies on.
//!
//! Kernels differ: some do not report that a whole huge page was dropped, for instance. Tracking
//! finds missing pages by what exists, not by what was written, so most differences do no harm.
//! Where the test fails, all memory is compared.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use crate::store::PAGE_BYTES;

use super::areas::{Area, Kind};
use super::pagemap::{self, Protect, WRITTEN};
use super::uffd;

const PAGE: usize = PAGE_BYTES as usize;
const HUGE: usize = 2 << 20;

/// Why tracking is not trusted on this kernel.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// A call that is needed is not there, or not for us.
    #[error("{what}: {source}")]
    Missing {
        /// Which.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A scan reported something else than what was done.
    #[error("after {done}: pages {expected} should be reported, the scan reports {found}")]
    Wrong {
        /// What was done before.
        done: &'static str,
        /// What should be reported.
        expected: String,
        /// What was.
        found: String,
    },
}

/// Memory of our own, unmapped in the end.
struct Ground {
    start: usize,
    bytes: usize,
}

impl Ground {
    fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: at.addr(),
            bytes,
        })
    }

    fn write(&self, page: usize) {
        assert!((page + 1) * PAGE <= self.bytes);
        // SAFETY: inside of our mapping.
        unsafe { ((self.start + page * PAGE) as *mut u8).write_volatile(1) };
    }

    fn advise(&self, from: usize, bytes: usize, advice: i32) -> io::Result<()> {
        assert!(from + bytes <= self.bytes);
        // SAFETY: our own memory, in which nothing of Rust's lives.
        match unsafe { libc::madvise((self.start + from) as *mut libc::c_void, bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Moves `bytes` at `from` to `at` of another one of ours. Empty memory stays where they were:
    /// in a hole another thread could map something, which moving back would overwrite.
    fn move_part(&self, from: usize, bytes: usize, to: &Self, at: usize) -> io::Result<()> {
        assert!(from + bytes <= self.bytes && at + bytes <= to.bytes);
        // SAFETY: both ranges are ours, and nothing of Rust's lives there.
        let moved = unsafe {
            libc::mremap(
                (self.start + from) as *mut libc::c_void,
                bytes,
                bytes,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP,
                (to.start + at) as *mut libc::c_void,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // SAFETY: our own mapping, made in `new`.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }
}

struct Test {
    pagemap: File,
    uffd: OwnedFd,
}

type Pages = Vec<usize>;

impl Test {
    /// Pages that are there, and those of them that were written to.
    fn scan(&self, ground: &Ground, protect: Protect) -> io::Result<(Pages, Pages)> {
        let (mut there, mut written) = (Vec::new(), Vec::new());
        let area = Area {
            start: ground.start as u64,
            end: (ground.start + ground.bytes) as u64,
            kind: Kind::Anonymous,
            readable: true,
        };
        pagemap::scan(&self.pagemap, &area, protect, |region| {
            let first = (region.start - area.start) as usize / PAGE;
            let pages = first..first + pagemap::page_count(&region) as usize;
            if pagemap::is_private_content(&region) {
                there.extend(pages.clone());
                if region.has(WRITTEN) {
                    written.extend(pages);
                }
            }
        })?;
        Ok((there, written))
    }

    fn arm(&self, ground: &Ground) -> Result<(), SelfTestError> {
        let (start, end) = (ground.start as u64, (ground.start + ground.bytes) as u64);
        uffd::begin(&self.uffd, start, end).map_err(missing("UFFDIO_REGISTER"))
    }

    fn expect(
        &self,
        done: &'static str,
        ground: &Ground,
        there: &[usize],
        written: &[usize],
    ) -> Result<(), SelfTestError> {
        let (is_there, was_written) = self
            .scan(ground, Protect::Written)
            .map_err(missing("PAGEMAP_SCAN"))?;
        // More than was written is harmless; less is not.
        let enough = written.iter().all(|page| was_written.contains(page));
        if is_there == there && enough {
            return Ok(());
        }
        Err(SelfTestError::Wrong {
            done,
            expected: format!("{} there, {} written", brief(there), brief(written)),
            found: format!(
                "{} there, {} written",
                brief(&is_there),
                brief(&was_written)
            ),
        })
    }
}

fn brief(pages: &[usize]) -> String {
    match pages {
        [] => "none".to_owned(),
        [first, .., last] => format!("{} ({first}…{last})", pages.len()),
        [one] => format!("{one}"),
    }
}

fn missing(what: &'static str) -> impl Fn(io::Error) -> SelfTestError {
    move |source| SelfTestError::Missing { what, source }
}

/// Tries what tracking relies on.
///
/// # Errors
/// What it cannot rely on.
pub fn run() -> Result<(), SelfTestError> {
    let uffd = uffd::open(libc::O_CLOEXEC | libc::O_NONBLOCK).map_err(missing("userfaultfd"))?;
    let test = Test {
        pagemap: File::open("/proc/self/pagemap").map_err(missing("/proc/self/pagemap"))?,
        uffd,
    };
    uffd::enable(
        &test.uffd,
        uffd::FEATURE_WP_ASYNC | uffd::FEATURE_WP_UNPOPULATED,
    )
    .map_err(missing("asynchronous write-protection"))?;
    small_pages(&test)?;
    huge_pages(&test)?;
    lost_ranges(&test)?;
    moved_ranges(&test)
}

fn small_pages(test: &Test) -> Result<(), SelfTestError> {
    let ground = Ground::new(16 * PAGE).map_err(missing("mmap"))?;
    // Some kernels do not have huge pages to refuse.
    let _ = ground.advise(0, ground.bytes, libc::MADV_NOHUGEPAGE);
    (0..8).for_each(|page| ground.write(page));
    test.arm(&ground)?;
    let all: Vec<usize> = (0..8).collect();
    test.expect("the first writes", &ground, &all, &all)?;
    let (_, written) = test
        .scan(&ground, Protect::Written)
        .map_err(missing("PAGEMAP_SCAN"))?;
    if !written.is_empty() {
        return Err(SelfTestError::Wrong {
            done: "protecting",
            expected: "none".to_owned(),
            found: brief(&written),
        });
    }
    ground.write(3);
    test.expect("a write", &ground, &all, &[3])?;
    ground.write(12);
    let more = [0, 1, 2, 3, 4, 5, 6, 7, 12];
    test.expect("a write to a new page", &ground, &more, &[12])?;
    ground
        .advise(2 * PAGE, 2 * PAGE, libc::MADV_DONTNEED)
        .map_err(missing("madvise"))?;
    test.expect("MADV_DONTNEED", &ground, &[0, 1, 4, 5, 6, 7, 12], &[])?;
    ground.write(2);
    test.expect(
        "a write after MADV_DONTNEED",
        &ground,
        &[0, 1, 2, 4, 5, 6, 7, 12],
        &[2],
    )
}

fn huge_pages(test: &Test) -> Result<(), SelfTestError> {
    let ground = Ground::new(4 * HUGE).map_err(missing("mmap"))?;
    // Where there are no huge pages, the same is tried with small ones.
    let _ = ground.advise(0, ground.bytes, libc::MADV_HUGEPAGE);
    let first = ground.start.next_multiple_of(HUGE) - ground.start;
    let page = first / PAGE;
    (0..512).for_each(|index| ground.write(page + index));
    test.arm(&ground)?;
    let all: Vec<usize> = (page..page + 512).collect();
    test.expect("filling a huge page", &ground, &all, &all)?;
    ground.write(page + 77);
    test.expect("a write to a huge page", &ground, &all, &[page + 77])?;
    ground
        .advise(first, HUGE, libc::MADV_DONTNEED)
        .map_err(missing("madvise"))?;
    test.expect("MADV_DONTNEED of a huge page", &ground, &[], &[])
}

/// A new mapping in an old one's place must not look as if it were protected.
fn lost_ranges(test: &Test) -> Result<(), SelfTestError> {
    let ground = Ground::new(8 * PAGE).map_err(missing("mmap"))?;
    (0..8).for_each(|page| ground.write(page));
    test.arm(&ground)?;
    test.scan(&ground, Protect::Written)
        .map_err(missing("PAGEMAP_SCAN"))?;
    // SAFETY: our own mapping is replaced in its whole length.
    let again = unsafe {
        libc::mmap(
            ground.start as *mut libc::c_void,
            ground.bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if again == libc::MAP_FAILED {
        return Err(missing("mmap")(io::Error::last_os_error()));
    }
    ground.write(1);
    match test.scan(&ground, Protect::Written) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        Err(error) => Err(missing("PAGEMAP_SCAN")(error)),
        Ok((there, _)) => Err(SelfTestError::Wrong {
            done: "a new mapping in the old one's place",
            expected: "EPERM".to_owned(),
            found: brief(&there),
        }),
    }
}

/// A mapping that has moved is not registered any more, and neither is one that it merges with,
/// whose marks stay. What is written to them before they are registered again must be seen.
fn moved_ranges(test: &Test) -> Result<(), SelfTestError> {
    let ground = Ground::new(8 * PAGE).map_err(missing("mmap"))?;
    let room = Ground::new(4 * PAGE).map_err(missing("mmap"))?;
    (0..8).for_each(|page| ground.write(page));
    test.arm(&ground)?;
    test.scan(&ground, Protect::Written)
        .map_err(missing("PAGEMAP_SCAN"))?;
    let half = 4 * PAGE;
    ground
        .move_part(half, half, &room, 0)
        .map_err(missing("mremap"))?;
    room.write(2);
    test.arm(&room)?;
    test.expect("moving, and a write", &room, &[0, 1, 2, 3], &[2])?;
    room.move_part(0, half, &ground, half)
        .map_err(missing("mremap"))?;
    (1..8).step_by(2).for_each(|page| ground.write(page));
    test.arm(&ground)?;
    let all: Vec<usize> = (0..8).collect();
    test.expect("moving back, and writes", &ground, &all, &[1, 3, 5, 7])?;
    ground.write(0);
    test.expect("a write after moving back", &ground, &all, &[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where tracking cannot work, that is what it says; it never says that a scan is wrong on
    /// the kernels that we test on.
    #[test]
    fn this_kernel_reports_what_tracking_relies_on() {
        match run() {
            Ok(()) | Err(SelfTestError::Missing { .. }) => {}
            Err(error @ SelfTestError::Wrong { .. }) => panic!("{error}"),
        }
    }
}
