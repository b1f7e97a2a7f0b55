//! Selects the processes that are sampled for hot pages, and adds up the samples. Sampling itself
//! is behind [`Sampler`]: [`crate::hotness::damon`] on this machine, numbers in tests.

use dormouse_system::Root;
use thiserror::Error;

use crate::hotness::{self, HotRange, ProcessHotness};
use crate::processes;
use crate::system::pages::PAGE_BYTES;
use crate::system::state::Entry;

/// Regions that are watched at most: one for each page up to 2 GiB. Each costs the kernel 64
/// bytes and, in each window, two page-table walks.
pub const MAX_REGIONS: u64 = 512 << 10;

/// Of what is watched, at least this part must be there: an address space with large holes (arenas
/// that are only reserved) would take most of the looks for nothing.
const MIN_PRESENT: u64 = 16;

/// A process to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub pid: i32,
    pub start_ticks: u64,
    /// Address space that is watched, holes included.
    pub span_pages: u64,
}

/// Where the kernel saw accesses to a target in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Index of the target.
    pub target: usize,
    pub range: HotRange,
}

/// Why it is not known which pages are hot. Migrating back then follows process order.
#[derive(Debug, Error)]
pub enum Unavailable {
    #[error("this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS, CONFIG_DAMON_VADDR)")]
    NoDamon,
    #[error("the tracepoint damon:damon_aggregated cannot be read: mount tracefs at {0}")]
    NoTracepoint(String),
    #[error("another program uses DAMON; pages are watched when it is free")]
    Busy,
    #[error("DAMON does not start: {0}")]
    Failed(String),
}

impl Unavailable {
    /// A stable name for events.
    pub fn name(&self) -> &'static str {
        match self {
            Unavailable::NoDamon => "no-damon",
            Unavailable::NoTracepoint(_) => "no-tracepoint",
            Unavailable::Busy => "damon-busy",
            Unavailable::Failed(_) => "damon-failed",
        }
    }
}

/// How to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Somebody waits for the end of the first window.
    Hurried,
    /// Programs and pages that migrate back need the processors more.
    Gentle,
}

/// Watches processes.
pub trait Sampler: Sync {
    /// Begins to watch, in windows that follow each other until the result is dropped.
    ///
    /// # Errors
    /// See [`Unavailable`]; nothing is left switched on.
    fn start(&self, targets: &[Target], pace: Pace) -> Result<Box<dyn Sampling + '_>, Unavailable>;

    /// Switches off what a dormouse that was killed left switched on.
    fn clean_up(&self);
}

/// Processes that are being watched; dropping it switches everything off.
pub trait Sampling {
    /// What was seen in the windows that ended since the last call.
    fn take(&mut self) -> Vec<Seen>;
}

/// The targets among the processes, which stand in process order: all of them that are dense, as
/// far as the regions go, most recently running first.
pub fn targets(root: &Root, order: &[Entry], not: i32) -> Vec<Target> {
    let mut regions = 0;
    order
        .iter()
        .filter(|process| process.pid != not)
        .filter_map(|process| {
            let maps = root.read(&format!("proc/{}/maps", process.pid)).ok()?;
            let span_pages = span_pages(&maps);
            let rss_bytes = processes::identify(root, process.pid)?.rss_bytes;
            let dense = rss_bytes / PAGE_BYTES * MIN_PRESENT >= span_pages;
            (span_pages > 0 && dense).then_some(Target {
                pid: process.pid,
                start_ticks: process.start_ticks,
                span_pages,
            })
        })
        .take_while(|target| {
            let first = regions == 0;
            regions += target.span_pages.min(MAX_REGIONS);
            first || regions <= 2 * MAX_REGIONS
        })
        .collect()
}

/// The pages between the first and the last mapping, without the two largest gaps: what DAMON
/// watches of a process (Linux, mm/damon/vaddr.c: heap, mappings, stack).
pub fn span_pages(maps: &str) -> u64 {
    let mut gaps = Vec::new();
    let (mut first, mut last_end) = (None, 0u64);
    for line in maps.lines() {
        let range = line.split_ascii_whitespace().next().unwrap_or_default();
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        else {
            continue;
        };
        // The vsyscall page is the kernel's.
        if start >= end || end > 1 << 56 || start < last_end {
            continue;
        }
        if first.is_some() {
            gaps.push(start - last_end);
        }
        first.get_or_insert(start);
        last_end = end;
    }
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let holes: u64 = gaps.iter().take(2).sum();
    (last_end - first.unwrap_or(last_end) - holes) / PAGE_BYTES
}

/// Adds up windows.
#[derive(Debug, Default)]
pub struct Collected {
    targets: Vec<Target>,
    ranges: Vec<Vec<HotRange>>,
}

impl Collected {
    pub fn new(targets: &[Target]) -> Collected {
        Collected {
            targets: targets.to_vec(),
            ranges: vec![Vec::new(); targets.len()],
        }
    }

    /// Adds what was seen; ranges that make no sense are left out.
    pub fn add(&mut self, seen: &[Seen]) {
        for one in seen {
            let range = one.range;
            let whole =
                range.start.is_multiple_of(PAGE_BYTES) && range.end.is_multiple_of(PAGE_BYTES);
            if let Some(ranges) = self.ranges.get_mut(one.target)
                && whole
                && range.start < range.end
                && range.end <= 1 << 56
                && range.hotness > 0
            {
                ranges.push(range);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.iter().all(Vec::is_empty)
    }

    /// The sum for each process in which anything was seen.
    pub fn hotness(&self) -> Vec<ProcessHotness> {
        self.targets
            .iter()
            .zip(&self.ranges)
            .filter(|(_, ranges)| !ranges.is_empty())
            .map(|(target, ranges)| ProcessHotness {
                pid: target.pid,
                start_ticks: target.start_ticks,
                ranges: hotness::sum(ranges),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_largest_gaps_are_not_watched_and_smaller_ones_are() {
        let maps = "00001000-00003000 r-xp 0 00:00 0 /bin/x\n\
                    00100000-00104000 rw-p 0 00:00 0 [heap]\n\
                    7f0000000000-7f0000002000 rw-p 0 00:00 0\n\
                    7f0000003000-7f0000004000 rw-p 0 00:00 0\n\
                    7fff00000000-7fff00001000 rw-p 0 00:00 0 [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]\n";
        // The text and the heap are 253 pages apart: the third largest gap, so it is watched.
        assert_eq!(span_pages(maps), 2 + 253 + 4 + 2 + 1 + 1 + 1);
        assert_eq!(span_pages(""), 0);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let target = Target {
            pid: 5,
            start_ticks: 6,
            span_pages: 10,
        };
        let mut collected = Collected::new(&[target]);
        let seen = |target, start, end, hotness| Seen {
            target,
            range: HotRange {
                start,
                end,
                hotness,
            },
        };
        collected.add(&[
            seen(1, 0x1000, 0x2000, 1),
            seen(0, 0x1001, 0x2000, 1),
            seen(0, 0x3000, 0x2000, 1),
            seen(0, 0, !0xfff, 1),
            seen(0, 0x1000, 0x2000, 0),
        ]);
        assert!(collected.is_empty() && collected.hotness().is_empty());
        collected.add(&[seen(0, 0x1000, 0x2000, 1), seen(0, 0x1000, 0x2000, 1)]);
        let hotness = collected.hotness();
        assert_eq!(
            (
                hotness[0].pid,
                hotness[0].start_ticks,
                hotness[0].ranges[0].hotness
            ),
            (5, 6, 2)
        );
    }

    proptest! {
        #[test]
        fn no_maps_make_the_parser_panic(text in "([ -~]|\n){0,200}", start: u64, end: u64) {
            let _ = span_pages(&text);
            let _ = span_pages(&format!("{start:x}-{end:x} r\n{end:x}-{start:x} r\n{text}"));
        }
    }
}
