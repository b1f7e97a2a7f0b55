//! Copies pages of programs into the store, with all processors, and compares them.
//!
//! Where the store lies in the page cache the kernel copies straight into its mapping. On DAX
//! pages go through a buffer that stays in the processor's cache, and past the caches into the
//! store, so that no line has to be written back one by one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ptrace::Pid;
use crate::store::format::checksum;
use crate::store::medium::Medium;
use crate::store::{MappedFile, MediumKind, Placement, Store};
use crate::track::PageRange;

use super::read::{PAGE, Part, Reader, Source};

/// Pages that one system call copies: large enough to be cheap, small enough to stay in the
/// second-level cache until their checksums are taken.
const UNIT_PAGES: usize = 64;
/// Below this a second thread costs more than it helps.
const PARALLEL_PAGES: usize = 256;

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
        let (mut buffer, mut reader) = (Buffer::new(), Reader::default());
        loop {
            // The lock is held for one step of an iterator: nothing that can panic.
            let unit = todo.lock().ok().and_then(|mut todo| todo.next());
            let Some(unit) = unit else { break };
            if stop.load(Ordering::Relaxed) {
                let all = unit.first..unit.first + unit.checksums.len();
                failed.lock().iter_mut().for_each(|f| f.extend(all.clone()));
                continue;
            }
            let lost = copy_unit(medium, unit, &mut buffer, &mut reader);
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

/// Reads once more, in this thread, what [`copy`] could not read, and takes it out of `failed` where that
/// succeeds. Pages that a program has protected from reading are readable only for the very thread that traces
/// it where the kernel is so configured (`CONFIG_PROC_MEM_FORCE_PTRACE`, `proc_mem.force_override=ptrace`, since
/// Linux 6.12): for the one that has stopped the program.
pub fn copy_as_tracer(medium: &MappedFile, jobs: &[Job<'_>], copied: &mut Copied) {
    let positions = std::mem::take(&mut copied.failed);
    let again = jobs_of(jobs, &positions);
    let mut checksums = vec![0; positions.len()];
    let (mut buffer, mut reader) = (Buffer::new(), Reader::default());
    let mut lost = Vec::new();
    for unit in units(&again, &mut checksums) {
        lost.extend(copy_unit(medium, unit, &mut buffer, &mut reader));
    }
    copied.failed = lost.into_iter().map(|index| positions[index]).collect();
    for (position, checksum) in positions.into_iter().zip(checksums) {
        copied.checksums[position] = checksum;
    }
}

/// The parts of jobs that lie at these positions (ascending) among the pages of all of them.
fn jobs_of<'a>(jobs: &[Job<'a>], positions: &[usize]) -> Vec<Job<'a>> {
    let mut parts = Vec::new();
    let mut positions = positions.iter().copied().peekable();
    let mut first = 0;
    for job in jobs {
        let end = first + job.placement.count as usize;
        while let Some(from) = positions.next_if(|position| *position < end) {
            let mut to = from + 1;
            while to < end && positions.next_if_eq(&to).is_some() {
                to += 1;
            }
            parts.push(Job {
                source: job.source,
                placement: job.placement.part(from - first, to - first),
            });
        }
        first = end;
    }
    parts
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

fn copy_unit(
    medium: &MappedFile,
    unit: Unit<'_, '_>,
    buffer: &mut Buffer,
    reader: &mut Reader,
) -> Vec<usize> {
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
    let lost = reader.read(&unit.parts, &local);
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
        if !direct {
            medium.write(part.offset, content);
        }
        at += part.count;
    }
    if direct {
        // Scattered pages often lie side by side in the store: one call for them.
        let ends = |part: &Part<'_>| part.offset + (part.count * PAGE) as u64;
        for run in unit.parts.chunk_by(|one, next| ends(one) == next.offset) {
            if let [first, ..] = run {
                let bytes = run.iter().map(|part| part.count * PAGE).sum::<usize>();
                medium.written(first.offset, bytes as u64);
            }
        }
    }
    lost.into_iter().map(|index| unit.first + index).collect()
}

/// Which of these pages differ from `stored` (one checksum for each), or cannot be read.
pub fn differing(source: Source<'_>, page: u64, stored: &[Option<u64>]) -> Vec<u64> {
    let (mut buffer, mut reader) = (Buffer::new(), Reader::default());
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
        let lost = reader.read(&[part], &[local]);
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
        let part = |from: usize, to: usize| job.placement.part(from, to);
        let mut from = 0;
        while let Some(position) = failed.next_if(|position| *position < at + count) {
            let index = position - at;
            if index > from {
                store.stored(&part(from, index), &copied.checksums[at + from..at + index]);
            }
            store.abandon(&part(index, index + 1));
            if let Source::Process { pid, .. } = job.source {
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
