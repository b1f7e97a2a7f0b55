//! Which page lies in which frame, and what has changed since the last epoch. Pure.
//!
//! One leaf holds 2 MiB of a space: 512 frame numbers, 0 where there is no page (frame 0 is the
//! superblock).

use std::collections::{BTreeMap, BTreeSet};

use super::SpaceId;
use super::format::{Checksums, Record, Run, SegmentWriter};

/// Pages of a leaf.
pub const LEAF_PAGES: u64 = 512;

const WORDS: usize = LEAF_PAGES as usize / 64;

/// Pages that lie side by side in a space and in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Address of the first in pages.
    pub page: u64,
    /// How many.
    pub count: u32,
    /// The frame of the first.
    pub frame: u32,
    /// The epoch that wrote them.
    pub written: u64,
}

/// 2 MiB of a space.
#[derive(Debug, Clone)]
pub struct Leaf {
    frames: [u32; LEAF_PAGES as usize],
    // Epochs below 2^32: at ten a second that is 13 years of one program's life.
    written: [u32; LEAF_PAGES as usize],
    changed: [u64; WORDS],
    present: u32,
    /// The chunk in which page n has frame n.
    pub home: Option<u32>,
}

impl Leaf {
    fn new() -> Self {
        Self {
            frames: [0; LEAF_PAGES as usize],
            written: [0; LEAF_PAGES as usize],
            changed: [0; WORDS],
            present: 0,
            home: None,
        }
    }

    /// Pages that it has.
    pub fn present(&self) -> u32 {
        self.present
    }

    /// The frame of its page `index`, if it has it.
    pub fn frame(&self, index: usize) -> Option<u32> {
        Some(self.frames[index]).filter(|frame| *frame != 0)
    }

    fn set(&mut self, index: usize, frame: u32, written: u64) -> Option<u32> {
        let old = self.frame(index);
        self.frames[index] = frame;
        self.written[index] = u32::try_from(written).unwrap_or(u32::MAX);
        self.present += u32::from(old.is_none());
        old
    }

    fn remove(&mut self, index: usize) -> Option<u32> {
        let old = self.frame(index)?;
        self.frames[index] = 0;
        self.present -= 1;
        Some(old)
    }
}

/// All spaces.
#[derive(Debug, Clone, Default)]
pub struct Index {
    spaces: BTreeMap<SpaceId, BTreeMap<u64, Box<Leaf>>>,
    changed: BTreeSet<(SpaceId, u64)>,
    forgotten: BTreeSet<SpaceId>,
    pages: u64,
}

impl Index {
    /// Pages in all spaces.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Nothing has changed since [`Index::changes_are_durable`].
    pub fn is_unchanged(&self) -> bool {
        self.changed.is_empty() && self.forgotten.is_empty()
    }

    /// Spaces that have pages, ascending.
    pub fn spaces(&self) -> Vec<SpaceId> {
        let present = |leaves: &BTreeMap<u64, Box<Leaf>>| leaves.values().any(|l| l.present > 0);
        let of = self.spaces.iter().filter(|(_, leaves)| present(leaves));
        of.map(|(space, _)| *space).collect()
    }

    /// The frame of a page.
    pub fn frame(&self, space: SpaceId, page: u64) -> Option<u32> {
        let leaf = self.spaces.get(&space)?.get(&(page / LEAF_PAGES))?;
        leaf.frame((page % LEAF_PAGES) as usize)
    }

    /// Which of these pages are in no frame: first page and number of them.
    pub fn missing(&self, space: SpaceId, page: u64, count: u64) -> Vec<(u64, u64)> {
        let mut missing: Vec<(u64, u64)> = Vec::new();
        let mut add = |page: u64, count: u64| match missing.last_mut() {
            Some(last) if last.0 + last.1 == page => last.1 += count,
            _ => missing.push((page, count)),
        };
        let leaves = self.spaces.get(&space);
        let end = page + count;
        let mut at = page;
        while at < end {
            let number = at / LEAF_PAGES;
            let next = ((number + 1) * LEAF_PAGES).min(end);
            match leaves.and_then(|leaves| leaves.get(&number)) {
                None => add(at, next - at),
                Some(leaf) if u64::from(leaf.present) == LEAF_PAGES => {}
                Some(leaf) => (at..next)
                    .filter(|page| leaf.frame((page % LEAF_PAGES) as usize).is_none())
                    .for_each(|page| add(page, 1)),
            }
            at = next;
        }
        missing
    }

    /// A leaf, made when missing.
    pub fn leaf_mut(&mut self, space: SpaceId, leaf: u64) -> &mut Leaf {
        let leaves = self.spaces.entry(space).or_default();
        leaves.entry(leaf).or_insert_with(|| Box::new(Leaf::new()))
    }

    /// All leaves, to change what is not their pages.
    pub fn leaves_mut(&mut self) -> impl Iterator<Item = (u64, &mut Leaf)> {
        let leaves = self
            .spaces
            .values_mut()
            .flat_map(|leaves| leaves.iter_mut());
        leaves.map(|(number, leaf)| (*number, &mut **leaf))
    }

    /// Pages of a run are where it says now; `replaced` hears of each frame that held one before.
    pub fn set(&mut self, space: SpaceId, run: PageRun, mut replaced: impl FnMut(u32)) {
        let mut done = 0;
        while done < u64::from(run.count) {
            let page = run.page + done;
            let (number, index) = (page / LEAF_PAGES, (page % LEAF_PAGES) as usize);
            let here = (LEAF_PAGES - index as u64).min(u64::from(run.count) - done);
            let leaf = self.leaf_mut(space, number);
            let before = leaf.present;
            for step in 0..here as usize {
                let frame = run.frame + done as u32 + step as u32;
                if let Some(old) = leaf.set(index + step, frame, run.written) {
                    replaced(old);
                }
                leaf.changed[(index + step) / 64] |= 1 << ((index + step) % 64);
            }
            let added = leaf.present - before;
            self.pages += u64::from(added);
            self.changed.insert((space, number));
            done += here;
        }
    }

    /// Pages are gone; `dropped` hears of each frame that held one, and `homeless` of the home of
    /// each leaf that is empty now.
    pub fn forget(
        &mut self,
        space: SpaceId,
        page: u64,
        count: u64,
        mut dropped: impl FnMut(u32),
        mut homeless: impl FnMut(u32),
    ) {
        let Some(leaves) = self.spaces.get_mut(&space) else {
            return;
        };
        let end = page.saturating_add(count);
        for (number, leaf) in leaves.range_mut(page / LEAF_PAGES..end.div_ceil(LEAF_PAGES)) {
            let first = number * LEAF_PAGES;
            let from = page.saturating_sub(first).min(LEAF_PAGES) as usize;
            let to = (end - first).min(LEAF_PAGES) as usize;
            for index in from..to {
                if let Some(old) = leaf.remove(index) {
                    dropped(old);
                    self.pages -= 1;
                    leaf.changed[index / 64] |= 1 << (index % 64);
                    self.changed.insert((space, *number));
                }
            }
            if leaf.present == 0
                && let Some(home) = leaf.home.take()
            {
                homeless(home);
            }
        }
    }

    /// A space is gone, all of it.
    pub fn forget_space(
        &mut self,
        space: SpaceId,
        mut dropped: impl FnMut(u32),
        mut homeless: impl FnMut(u32),
    ) {
        let Some(leaves) = self.spaces.remove(&space) else {
            return;
        };
        for leaf in leaves.values() {
            self.pages -= u64::from(leaf.present);
            leaf.frames
                .iter()
                .filter(|f| **f != 0)
                .for_each(|f| dropped(*f));
            leaf.home.into_iter().for_each(&mut homeless);
        }
        self.changed.retain(|(of, _)| *of != space);
        self.forgotten.insert(space);
    }

    /// The pages of a space in runs, ascending.
    pub fn runs(&self, space: SpaceId) -> impl Iterator<Item = PageRun> + '_ {
        Runs {
            pages: self.spaces.get(&space).into_iter().flat_map(|leaves| {
                leaves.iter().flat_map(|(number, leaf)| {
                    (0..LEAF_PAGES as usize).filter_map(move |index| {
                        Some(PageRun {
                            page: number * LEAF_PAGES + index as u64,
                            count: 1,
                            frame: leaf.frame(index)?,
                            written: u64::from(leaf.written[index]),
                        })
                    })
                })
            }),
            open: None,
        }
    }

    /// Writes down everything there is; `checksums` has one for each frame.
    pub fn write_all(&self, writer: &mut SegmentWriter, checksums: &[u64]) {
        for space in self.spaces.keys() {
            for run in self.runs(*space) {
                push_run(writer, *space, run, checksums);
            }
        }
    }

    /// Writes down what has changed since [`Index::changes_are_durable`].
    pub fn write_changes(&self, writer: &mut SegmentWriter, checksums: &[u64]) {
        for space in &self.forgotten {
            writer.push(&Record::ForgetSpace(*space));
        }
        for (space, number) in &self.changed {
            let Some(leaf) = self.spaces.get(space).and_then(|l| l.get(number)) else {
                continue;
            };
            let changed = |index: &usize| leaf.changed[index / 64] >> (index % 64) & 1 == 1;
            let first = number * LEAF_PAGES;
            let runs = Runs {
                pages: (0..LEAF_PAGES as usize)
                    .filter(changed)
                    .filter_map(|index| {
                        Some(PageRun {
                            page: first + index as u64,
                            count: 1,
                            frame: leaf.frame(index)?,
                            written: u64::from(leaf.written[index]),
                        })
                    }),
                open: None,
            };
            for run in runs {
                push_run(writer, *space, run, checksums);
            }
            let mut gone = (0..LEAF_PAGES as usize)
                .filter(changed)
                .filter(|index| leaf.frame(*index).is_none())
                .peekable();
            while let Some(start) = gone.next() {
                let mut count = 1;
                while gone.next_if_eq(&(start + count)).is_some() {
                    count += 1;
                }
                writer.push(&Record::Forget {
                    space: *space,
                    page: first + start as u64,
                    count: count as u64,
                });
            }
        }
    }

    /// What [`Index::write_changes`] wrote is safe; empty leaves are dropped.
    pub fn changes_are_durable(&mut self) {
        for (space, number) in std::mem::take(&mut self.changed) {
            let Some(leaves) = self.spaces.get_mut(&space) else {
                continue;
            };
            if let Some(leaf) = leaves.get_mut(&number) {
                leaf.changed = [0; WORDS];
                if leaf.present == 0 && leaf.home.is_none() {
                    leaves.remove(&number);
                }
            }
        }
        self.forgotten.clear();
    }
}

fn push_run(writer: &mut SegmentWriter, space: SpaceId, run: PageRun, checksums: &[u64]) {
    let frames = run.frame as usize..run.frame as usize + run.count as usize;
    writer.push(&Record::Run(Run {
        space,
        page: run.page,
        frame: run.frame,
        written: run.written,
        checksums: Checksums::Numbers(&checksums[frames]),
    }));
}

/// Joins single pages to runs.
struct Runs<I> {
    pages: I,
    open: Option<PageRun>,
}

impl<I: Iterator<Item = PageRun>> Iterator for Runs<I> {
    type Item = PageRun;

    fn next(&mut self) -> Option<PageRun> {
        for next in self.pages.by_ref() {
            match &mut self.open {
                Some(open)
                    if open.page + u64::from(open.count) == next.page
                        && open.frame + open.count == next.frame
                        && open.written == next.written =>
                {
                    open.count += 1;
                }
                open => {
                    if let Some(done) = open.replace(next) {
                        return Some(done);
                    }
                }
            }
        }
        self.open.take()
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
