//! Copies pages of programs into the store, with all processors, and compares them.
//!
//! Where the store lies in the page cache the kernel copies straight into its mapping. On DAX
//! pages go through a buffer that stays in the processor's cache, and past the caches into the
//! store, so that no line has to be written back one by one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ptrace::Pid;
use crate::store::format::checksum;
use crate::store::medium::Medium;
use crate::store::{MappedFile, MediumKind, PAGE_BYTES, Placement, Store};
use crate::track::PageRange;

const PAGE: usize = PAGE_BYTES as usize;
/// Pages that one system call copies: large enough to be cheap, small enough to stay in the
/// second-level cache until their checksums are taken.
const UNIT_PAGES: usize = 64;
/// Below this a second thread costs more than it helps.
const PARALLEL_PAGES: usize = 256;

/// Where pages are read from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The memory of a process; addresses.
    Process(i32),
    /// A file (shared memory); offsets.
    File(&'a File),
}

/// Pages of one source, and where they go.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Where from.
    pub source: Source<'a>,
    /// Which, and where to.
    pub placement: Placement,
}

/// The result for the pages of all jobs, in their order.
#[derive(Debug)]
pub struct Copied {
    /// One for each page.
    pub checksums: Vec<u64>,
    /// Positions in `checksums` of pages that could not be read, or were not reached.
    pub failed: Vec<usize>,
}

struct Part<'a> {
    source: Source<'a>,
    page: u64,
    offset: u64,
    count: usize,
}

struct Unit<'a, 'b> {
    parts: Vec<Part<'a>>,
    first: usize,
    checksums: &'b mut [u64],
}

fn units<'a, 'b>(jobs: &[Job<'a>], mut checksums: &'b mut [u64]) -> Vec<Unit<'a, 'b>> {
    let mut units: Vec<Unit<'a, 'b>> = Vec::new();
    let (mut parts, mut pages, mut first) = (Vec::new(), 0, 0);
    let mut close = |parts: &mut Vec<Part<'a>>, pages: &mut usize, first: &mut usize| {
        let (mine, rest) = std::mem::take(&mut checksums).split_at_mut(*pages);
        checksums = rest;
        units.push(Unit {
            parts: std::mem::take(parts),
            first: *first,
            checksums: mine,
        });
        *first += *pages;
        *pages = 0;
    };
    for job in jobs {
        let mut done = 0;
        while done < job.placement.count as usize {
            let count = (job.placement.count as usize - done).min(UNIT_PAGES - pages);
            parts.push(Part {
                source: job.source,
                page: job.placement.page + done as u64,
                offset: job.placement.offset() + (done * PAGE) as u64,
                count,
            });
            pages += count;
            done += count;
            if pages == UNIT_PAGES {
                close(&mut parts, &mut pages, &mut first);
            }
        }
    }
    if pages > 0 {
        close(&mut parts, &mut pages, &mut first);
    }
    units
}

/// Copies all pages; a set `stop` ends it early, what was not reached counts as failed.
pub fn copy(medium: &MappedFile, jobs: &[Job<'_>], threads: usize, stop: &AtomicBool) -> Copied {
    let pages = jobs.iter().map(|job| job.placement.count as usize).sum();
    let mut checksums = vec![0; pages];
    let failed = Mutex::new(Vec::new());
    let todo = Mutex::new(units(jobs, &mut checksums).into_iter());
    let work = || {
        let mut buffer = Buffer::new();
        loop {
            // The lock is held for one step of an iterator: nothing that can panic.
            let unit = todo.lock().ok().and_then(|mut todo| todo.next());
            let Some(unit) = unit else { break };
            if stop.load(Ordering::Relaxed) {
                let all = unit.first..unit.first + unit.checksums.len();
                failed.lock().iter_mut().for_each(|f| f.extend(all.clone()));
                continue;
            }
            let lost = copy_unit(medium, unit, &mut buffer);
            if !lost.is_empty() {
                failed.lock().iter_mut().for_each(|f| f.extend(&lost));
            }
        }
    };
    let threads = if pages < PARALLEL_PAGES { 1 } else { threads };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    drop(todo);
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_unstable();
    Copied { checksums, failed }
}

/// Room for one unit, aligned to a page.
struct Buffer {
    bytes: Vec<u8>,
    skip: usize,
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; (UNIT_PAGES + 1) * PAGE];
        let skip = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, skip }
    }

    fn pages(&mut self, count: usize) -> &mut [u8] {
        &mut self.bytes[self.skip..][..count * PAGE]
    }
}

fn copy_unit(medium: &MappedFile, unit: Unit<'_, '_>, buffer: &mut Buffer) -> Vec<usize> {
    let direct = medium.kind() == MediumKind::PageCache;
    let pages = unit.checksums.len();
    let mut local = Vec::with_capacity(if direct { unit.parts.len() } else { 1 });
    if direct {
        for part in &unit.parts {
            let bytes = part.count * PAGE;
            local.push(libc::iovec {
                iov_base: medium.pointer(part.offset, bytes as u64).cast(),
                iov_len: bytes,
            });
        }
    } else {
        let buffer = buffer.pages(pages);
        local.push(libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        });
    }
    let lost = read_pages(&unit.parts, &local);
    let mut at = 0;
    for part in &unit.parts {
        let bytes = part.count * PAGE;
        let content = if direct {
            medium.read(part.offset, bytes as u64)
        } else {
            &buffer.pages(pages)[at * PAGE..][..bytes]
        };
        for (sum, page) in unit.checksums[at..].iter_mut().zip(content.chunks(PAGE)) {
            *sum = checksum(page);
        }
        if direct {
            medium.written(part.offset, bytes as u64);
        } else {
            medium.write(part.offset, content);
        }
        at += part.count;
    }
    lost.into_iter().map(|index| unit.first + index).collect()
}

/// Reads pages to where `local` says; returns the positions of those that cannot be read.
fn read_pages(parts: &[Part<'_>], local: &[libc::iovec]) -> Vec<usize> {
    let mut lost = Vec::new();
    let mut at = 0;
    let mut index = 0;
    while index < parts.len() {
        // Parts of one process go together.
        let pid = match parts[index].source {
            Source::Process(pid) => pid,
            Source::File(file) => {
                let count = parts[index].count;
                let offset = parts[index].page * PAGE_BYTES;
                for page in 0..count {
                    let to = address_of(local, at + page);
                    // SAFETY: `local` describes memory of ours that nothing else uses.
                    let to = unsafe { std::slice::from_raw_parts_mut(to, PAGE) };
                    if read_file_page(file, offset + (page * PAGE) as u64, to).is_err() {
                        lost.push(at + page);
                    }
                }
                at += count;
                index += 1;
                continue;
            }
        };
        let same = parts[index..]
            .iter()
            .take_while(|part| matches!(part.source, Source::Process(other) if other == pid))
            .count();
        let mine = &parts[index..index + same];
        read_process(pid, mine, local, at, &mut lost);
        at += mine.iter().map(|part| part.count).sum::<usize>();
        index += same;
    }
    lost
}

/// The last page of a file may be short: the rest of it reads as zeros.
fn read_file_page(file: &File, offset: u64, to: &mut [u8]) -> io::Result<()> {
    let mut got = 0;
    while got < to.len() {
        match file.read_at(&mut to[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to[got..].fill(0);
    Ok(())
}

/// Where page number `page` of the vector lies.
fn address_of(local: &[libc::iovec], page: usize) -> *mut u8 {
    let mut skip = page * PAGE;
    for piece in local {
        if skip < piece.iov_len {
            return piece.iov_base.cast::<u8>().wrapping_add(skip);
        }
        skip -= piece.iov_len;
    }
    unreachable!("page {page} is past the end of what is read")
}

fn read_process(
    pid: i32,
    parts: &[Part<'_>],
    local: &[libc::iovec],
    first: usize,
    lost: &mut Vec<usize>,
) {
    let total: usize = parts.iter().map(|part| part.count).sum();
    let mut done = 0;
    while done < total {
        let remote = rest_of_remote(parts, done);
        let here = rest_of_local(local, first + done, total - done);
        // SAFETY: `local` describes memory of ours that nothing else uses; the remote vector is
        // only looked up by the kernel.
        let got = unsafe {
            libc::process_vm_readv(
                pid,
                here.as_ptr(),
                here.len() as libc::c_ulong,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        done += usize::try_from(got).unwrap_or(0) / PAGE;
        if done >= total {
            break;
        }
        // A page that this call cannot read: not readable for the program, or gone.
        let address = remote_address(parts, done);
        let to = address_of(local, first + done);
        // SAFETY: as above.
        let to = unsafe { std::slice::from_raw_parts_mut(to, PAGE) };
        if read_forced(pid, address, to).is_err() {
            lost.push(first + done);
        }
        done += 1;
    }
}

/// As a debugger would, whatever the page's protection is.
fn read_forced(pid: i32, address: u64, to: &mut [u8]) -> io::Result<()> {
    File::open(format!("/proc/{pid}/mem"))?.read_exact_at(to, address)
}

fn remote_address(parts: &[Part<'_>], mut skip: usize) -> u64 {
    for part in parts {
        if skip < part.count {
            return (part.page + skip as u64) * PAGE_BYTES;
        }
        skip -= part.count;
    }
    unreachable!("past the end of what is read")
}

fn rest_of_remote(parts: &[Part<'_>], mut skip: usize) -> Vec<libc::iovec> {
    let mut rest = Vec::with_capacity(parts.len());
    for part in parts {
        if skip >= part.count {
            skip -= part.count;
            continue;
        }
        rest.push(libc::iovec {
            iov_base: ((part.page + skip as u64) * PAGE_BYTES) as *mut libc::c_void,
            iov_len: (part.count - skip) * PAGE,
        });
        skip = 0;
    }
    rest
}

fn rest_of_local(local: &[libc::iovec], skip: usize, pages: usize) -> Vec<libc::iovec> {
    let (mut skip, mut left) = (skip * PAGE, pages * PAGE);
    let mut rest = Vec::with_capacity(local.len());
    for piece in local {
        if skip >= piece.iov_len {
            skip -= piece.iov_len;
            continue;
        }
        let bytes = (piece.iov_len - skip).min(left);
        if bytes == 0 {
            break;
        }
        rest.push(libc::iovec {
            iov_base: piece.iov_base.wrapping_byte_add(skip),
            iov_len: bytes,
        });
        skip = 0;
        left -= bytes;
    }
    rest
}

/// Which of these pages differ from `stored` (one checksum for each), or cannot be read.
pub fn differing(source: Source<'_>, page: u64, stored: &[Option<u64>]) -> Vec<u64> {
    let mut buffer = Buffer::new();
    let mut differing = Vec::new();
    for (unit, stored) in stored.chunks(UNIT_PAGES).enumerate() {
        let first = page + (unit * UNIT_PAGES) as u64;
        let part = Part {
            source,
            page: first,
            offset: 0,
            count: stored.len(),
        };
        let bytes = buffer.pages(stored.len());
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let lost = read_pages(&[part], &[local]);
        for (index, stored) in stored.iter().enumerate() {
            let content = &buffer.pages(UNIT_PAGES)[index * PAGE..][..PAGE];
            if *stored != Some(checksum(content)) || lost.contains(&index) {
                differing.push(first + index as u64);
            }
        }
    }
    differing
}

/// 1 MiB at a time.
pub fn pieces(range: &PageRange) -> impl Iterator<Item = PageRange> + use<> {
    const PIECE: u64 = 256;
    let range = *range;
    (0..range.count.div_ceil(PIECE)).map(move |index| PageRange {
        page: range.page + index * PIECE,
        count: PIECE.min(range.count - index * PIECE),
    })
}

/// Runs `work` on each piece, on several threads where there is enough of it; results in order.
pub fn parallel<T: Send>(
    pieces: &[PageRange],
    threads: usize,
    work: impl Fn(&PageRange) -> T + Sync,
) -> Vec<T> {
    let pages: u64 = pieces.iter().map(|piece| piece.count).sum();
    if threads < 2 || pages < 512 {
        return pieces.iter().map(work).collect();
    }
    let part = pieces.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = pieces
            .chunks(part)
            .map(|mine| scope.spawn(move || mine.iter().map(work).collect::<Vec<T>>()))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

/// Tells the store what was written where it was placed and what was not; returns the pages that
/// were not.
pub fn settle(store: &mut Store, jobs: &[Job<'_>], copied: &Copied) -> Vec<(Pid, u64)> {
    let mut lost = Vec::new();
    let mut failed = copied.failed.iter().copied().peekable();
    let mut at = 0;
    for job in jobs {
        let count = job.placement.count as usize;
        let part = |from: usize, to: usize| Placement {
            page: job.placement.page + from as u64,
            frame: job.placement.frame + from as u32,
            count: (to - from) as u32,
            ..job.placement
        };
        let mut from = 0;
        while let Some(position) = failed.next_if(|position| *position < at + count) {
            let index = position - at;
            if index > from {
                store.stored(&part(from, index), &copied.checksums[at + from..at + index]);
            }
            store.abandon(&part(index, index + 1));
            if let Source::Process(pid) = job.source {
                lost.push((pid, job.placement.page + index as u64));
            }
            from = index + 1;
        }
        if from < count {
            store.stored(&part(from, count), &copied.checksums[at + from..at + count]);
        }
        at += count;
    }
    lost
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
