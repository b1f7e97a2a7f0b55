//! Which page lies in which frame, and what has changed since the last epoch. Pure.
//!
//! One leaf holds 2 MiB of a space (`leaf`).

use std::collections::{BTreeMap, BTreeSet};

use super::SpaceId;
pub use super::leaf::{LEAF_PAGES, Leaf, PageRun};
use super::segment::SegmentWriter;

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
        let present = |leaves: &BTreeMap<u64, Box<Leaf>>| leaves.values().any(|l| l.present() > 0);
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
                Some(leaf) if u64::from(leaf.present()) == LEAF_PAGES => {}
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
        leaves.entry(leaf).or_default()
    }

    /// All leaves, to change what is not their pages.
    pub fn leaves_mut(&mut self) -> impl Iterator<Item = (u64, &mut Leaf)> {
        let leaves = self
            .spaces
            .values_mut()
            .flat_map(|leaves| leaves.iter_mut());
        leaves.map(|(number, leaf)| (*number, &mut **leaf))
    }

    /// Applies a run; `replaced` is called for each frame that held one of its pages before.
    pub fn set(&mut self, space: SpaceId, run: PageRun, mut replaced: impl FnMut(u32)) {
        let mut done = 0;
        while done < u64::from(run.count) {
            let page = run.page + done;
            let (number, index) = (page / LEAF_PAGES, (page % LEAF_PAGES) as usize);
            let here = (LEAF_PAGES - index as u64).min(u64::from(run.count) - done);
            let frame = run.frame + done as u32;
            let leaf = self.leaf_mut(space, number);
            let added = leaf.set(index, here as usize, frame, run.written, &mut replaced);
            self.pages += u64::from(added);
            self.changed.insert((space, number));
            done += here;
        }
    }

    /// Removes pages; `dropped` is called for each frame that held one, and `homeless` for the home of
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
            let gone = leaf.remove(from, to, &mut dropped);
            if gone > 0 {
                self.pages -= u64::from(gone);
                self.changed.insert((space, *number));
            }
            if leaf.present() == 0
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
            self.pages -= u64::from(leaf.present());
            leaf.frames().for_each(&mut dropped);
            leaf.home.into_iter().for_each(&mut homeless);
        }
        self.changed.retain(|(of, _)| *of != space);
        self.forgotten.insert(space);
    }

    /// The pages of a space in runs, ascending.
    pub fn runs(&self, space: SpaceId) -> impl Iterator<Item = PageRun> + '_ {
        let leaves = self.spaces.get(&space).into_iter().flatten();
        joined(leaves.flat_map(|(number, leaf)| leaf.runs(number * LEAF_PAGES, false)))
    }

    /// Writes down everything there is; `checksums` appends those of a run's frames.
    pub fn write_all(
        &self,
        writer: &mut SegmentWriter,
        mut checksums: impl FnMut(&PageRun, &mut Vec<u64>),
    ) {
        let mut sums = Vec::new();
        for space in self.spaces.keys() {
            for run in self.runs(*space) {
                sums.clear();
                checksums(&run, &mut sums);
                writer.run(*space, run.page, run.frame, run.written, &sums);
            }
        }
    }

    /// Writes down what has changed since [`Index::changes_are_durable`]; `checksums` as above.
    pub fn write_changes(
        &self,
        writer: &mut SegmentWriter,
        mut checksums: impl FnMut(&PageRun, &mut Vec<u64>),
    ) {
        let mut sums = Vec::new();
        for space in &self.forgotten {
            writer.forget_space(*space);
        }
        for (space, number) in &self.changed {
            let Some(leaf) = self.spaces.get(space).and_then(|l| l.get(number)) else {
                continue;
            };
            let first = number * LEAF_PAGES;
            for run in leaf.runs(first, true) {
                sums.clear();
                checksums(&run, &mut sums);
                writer.run(*space, run.page, run.frame, run.written, &sums);
            }
            let mut gone = (0..LEAF_PAGES as usize)
                .filter(|index| leaf.is_changed(*index) && leaf.frame(*index).is_none())
                .peekable();
            while let Some(start) = gone.next() {
                let mut count = 1;
                while gone.next_if_eq(&(start + count)).is_some() {
                    count += 1;
                }
                writer.forget(*space, first + start as u64, count as u64);
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
                leaf.changes_are_durable();
                if leaf.present() == 0 && leaf.home.is_none() {
                    leaves.remove(&number);
                }
            }
        }
        self.forgotten.clear();
    }
}

/// Joins runs that follow each other, in leaves side by side.
fn joined(runs: impl Iterator<Item = PageRun>) -> impl Iterator<Item = PageRun> {
    let mut runs = runs.peekable();
    std::iter::from_fn(move || {
        let mut open = runs.next()?;
        while let Some(next) = runs.next_if(|next| {
            open.page + u64::from(open.count) == next.page
                && open.frame + open.count == next.frame
                && open.written == next.written
        }) {
            open.count += next.count;
        }
        Some(open)
    })
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
