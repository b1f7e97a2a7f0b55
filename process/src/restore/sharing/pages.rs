//! Finds the pages of a family that its processes can share, and what each process then has to do.

use std::iter::Peekable;
use std::ops::Range;

use super::areas::Family;
use super::choice::Choice;
use super::ranges::push;
use crate::state::Tree;
use crate::store::{Extent, PAGE_BYTES, Snapshot, SpaceId};

/// Pages that a process gets before it creates children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill {
    /// Where they are in the store: the space of a process that has them.
    pub space: SpaceId,
    /// Their addresses, the same in both.
    pub range: Range<u64>,
    /// The protection of the memory there by then.
    pub protection: u8,
}

/// What one process does with an area.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// It gets these pages before it creates children.
    pub fills: Vec<Fill>,
    /// It then has these pages as they are to be.
    pub there: Vec<Range<u64>>,
    /// It has others there than its own.
    pub wrong: Vec<Range<u64>>,
    /// It has pages there, and is to have none.
    pub gone: Vec<Range<u64>>,
}

/// The pages of one process, from an address on.
struct Pages<'snapshot> {
    space: SpaceId,
    extents: Peekable<Box<dyn Iterator<Item = Extent> + 'snapshot>>,
}

impl Pages<'_> {
    /// Where the page at an address lies in the store, and up to where the same holds: pages lie
    /// side by side, or there are none.
    fn at(&mut self, address: u64) -> (Option<u64>, u64) {
        let past = |extent: &Extent| extent.start + extent.bytes <= address;
        while self.extents.next_if(past).is_some() {}
        match self.extents.peek() {
            None => (None, u64::MAX),
            Some(extent) if address < extent.start => (None, extent.start),
            Some(extent) => (
                Some(extent.offset + (address - extent.start)),
                extent.start + extent.bytes,
            ),
        }
    }
}

impl Work {
    /// Adds what it does with what lies behind all of this.
    fn extend(&mut self, next: Self) {
        for fill in next.fills {
            push_fill(&mut self.fills, fill);
        }
        for (all, more) in [
            (&mut self.there, next.there),
            (&mut self.wrong, next.wrong),
            (&mut self.gone, next.gone),
        ] {
            more.into_iter().for_each(|range| push(all, range));
        }
    }
}

/// Adds pages behind all others.
fn push_fill(fills: &mut Vec<Fill>, fill: Fill) {
    match fills.last_mut() {
        Some(last) if last.space == fill.space && last.range.end == fill.range.start => {
            last.range.end = fill.range.end;
        }
        _ => fills.push(fill),
    }
}

/// Pages of all processes below which another thread costs more than it helps.
const PART_PAGES_MIN: u64 = (16 << 20) / PAGE_BYTES;

/// What each process of a family does, in the order of its parts; `None`: there is nothing to share.
/// Equal pages are found by their checksums, and compared, by all processors.
pub fn work(
    tree: &Tree,
    snapshot: &dyn Snapshot,
    parents: &[Option<usize>],
    family: &Family,
) -> Option<Vec<Work>> {
    let range = &family.area.range;
    let pages = (range.end - range.start) / PAGE_BYTES * family.parts.len() as u64;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = (pages / PART_PAGES_MIN).clamp(1, threads as u64);
    work_by(parts, tree, snapshot, parents, family)
}

/// The same, by so many threads.
pub fn work_by(
    threads: u64,
    tree: &Tree,
    snapshot: &dyn Snapshot,
    parents: &[Option<usize>],
    family: &Family,
) -> Option<Vec<Work>> {
    let processes: Vec<usize> = family.parts.keys().copied().collect();
    let parents: Vec<Option<usize>> = processes
        .iter()
        .map(|process| {
            let parent = parents[*process].filter(|_| *process != family.area.root)?;
            processes.binary_search(&parent).ok()
        })
        .collect();
    let whole = &family.area.range;
    let length = ((whole.end - whole.start) / threads).next_multiple_of(PAGE_BYTES);
    let mut parts = (whole.start..whole.end)
        .step_by(length.max(PAGE_BYTES) as usize)
        .map(|start| start..(start + length).min(whole.end));
    let in_part = |part: Range<u64>| work_in(&part, tree, snapshot, (&processes, &parents), family);
    let works = std::thread::scope(|scope| {
        let in_part = &in_part;
        let first = parts.next().unwrap_or(whole.start..whole.start);
        let others: Vec<_> = parts
            .map(|part| scope.spawn(move || in_part(part)))
            .collect();
        let mut works = in_part(first);
        for other in others {
            let next = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (work, next) in works.iter_mut().zip(next) {
                work.extend(next);
            }
        }
        works
    });
    works
        .iter()
        .any(|work| !work.fills.is_empty())
        .then_some(works)
}

/// What the processes of a family do with a range of addresses. `processes`: their indices, and those of their
/// parents among them.
fn work_in(
    range: &Range<u64>,
    tree: &Tree,
    snapshot: &dyn Snapshot,
    (processes, parents): (&[usize], &[Option<usize>]),
    family: &Family,
) -> Vec<Work> {
    let mut pages: Vec<Pages<'_>> = processes
        .iter()
        .map(|process| {
            let space = tree.processes[*process].space;
            // Only pages of its parts: the area may be larger.
            let parts: Vec<Range<u64>> = family.parts[process]
                .iter()
                .map(|part| {
                    let mapping = &tree.processes[*process].mappings[*part];
                    mapping.start.max(range.start)..mapping.end.min(range.end)
                })
                .filter(|part| part.start < part.end)
                .collect();
            let extents = parts
                .into_iter()
                .flat_map(move |part| snapshot.extents_in(space, part));
            let extents: Box<dyn Iterator<Item = Extent> + '_> = Box::new(extents);
            Pages {
                space,
                extents: extents.peekable(),
            }
        })
        .collect();
    let spaces: Vec<SpaceId> = pages.iter().map(|pages| pages.space).collect();
    let mut works: Vec<Work> = processes.iter().map(|_| Work::default()).collect();
    let mut classes = Classes::new(snapshot, processes.len());
    let mut choice = Choice::default();
    let mut offsets = vec![None; processes.len()];
    let mut at = range.start;
    while at < range.end {
        let mut end = range.end;
        for (offset, pages) in offsets.iter_mut().zip(&mut pages) {
            let (here, until) = pages.at(at);
            *offset = here;
            end = end.min(until);
        }
        if offsets.iter().flatten().count() < 2 {
            at = end;
            continue;
        }
        while at < end {
            if classes.sort(&offsets) {
                choice.make(parents, &classes.of);
                let early = &choice.early;
                let protection = family.area.protection;
                add(
                    &mut works, parents, &classes, early, &spaces, protection, at,
                );
            }
            let there = offsets.iter_mut().flatten();
            there.for_each(|offset| *offset += PAGE_BYTES);
            at += PAGE_BYTES;
        }
    }
    works
}

/// Notes what each process does about the page at an address.
fn add(
    works: &mut [Work],
    parents: &[Option<usize>],
    classes: &Classes<'_>,
    early: &[Option<u32>],
    spaces: &[SpaceId],
    protection: u8,
    address: u64,
) {
    let page = address..address + PAGE_BYTES;
    for (at, work) in works.iter_mut().enumerate() {
        let inherited = parents[at].and_then(|parent| early[parent]);
        let Some(class) = early[at] else {
            continue;
        };
        if inherited != Some(class) {
            let space = spaces[classes.first[class as usize]];
            push_fill(
                &mut work.fills,
                Fill {
                    space,
                    range: page.clone(),
                    protection,
                },
            );
        }
        let to = match classes.of[at] {
            Some(own) if own == class => &mut work.there,
            Some(_) => &mut work.wrong,
            None => &mut work.gone,
        };
        push(to, page.clone());
    }
}

/// Numbers for the contents of the pages of several processes at the same address.
struct Classes<'snapshot> {
    snapshot: &'snapshot dyn Snapshot,
    /// Of each process; equal where contents are equal.
    of: Vec<Option<u32>>,
    /// Of each number the first process that has such contents.
    first: Vec<usize>,
    /// Of each number the checksum, and the place in the store.
    pages: Vec<(Option<u64>, u64)>,
}

impl<'snapshot> Classes<'snapshot> {
    fn new(snapshot: &'snapshot dyn Snapshot, processes: usize) -> Self {
        Self {
            snapshot,
            of: Vec::with_capacity(processes),
            first: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Compares the pages at these places in the store; whether any are equal.
    fn sort(&mut self, offsets: &[Option<u64>]) -> bool {
        self.of.clear();
        self.first.clear();
        self.pages.clear();
        let mut equal = false;
        for (at, offset) in offsets.iter().enumerate() {
            let Some(offset) = *offset else {
                self.of.push(None);
                continue;
            };
            // A damaged page is like no other, and found when it is filled.
            let sum = self.snapshot.checksum(offset);
            let same = |(other, place): &(Option<u64>, u64)| {
                sum.is_some()
                    && *other == sum
                    && (*place == offset || self.bytes(*place) == self.bytes(offset))
            };
            let class = self.pages.iter().position(same);
            equal |= class.is_some();
            let class = class.unwrap_or_else(|| {
                self.pages.push((sum, offset));
                self.first.push(at);
                self.pages.len() - 1
            });
            self.of.push(Some(class as u32));
        }
        equal
    }

    fn bytes(&self, offset: u64) -> &[u8] {
        self.snapshot.bytes(&Extent {
            start: 0,
            bytes: PAGE_BYTES,
            offset,
            written: 0,
        })
    }
}
