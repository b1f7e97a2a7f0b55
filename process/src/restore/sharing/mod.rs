//! Memory that processes share copy-on-write: which pages a parent gets before it creates its
//! children, and what each of them then does with what it has inherited.
//!
//! ```text
//!  parent      map the area ─ get shared pages ─┬─ keep its parts, get or drop the other pages
//!  child                                        └─ keep its parts, get or drop the other pages
//! ```
//!
//! The store has the pages of each process by itself, and does not know what was shared. Pages at
//! the same address with the same contents, in mappings that a child can have inherited from its
//! parent, are shared afterwards. Whatever is chosen here, each process has its own contents in the
//! end.

mod areas;
mod choice;
mod pages;
pub mod ranges;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

pub use areas::Area;
use areas::{Family, families, parents};
pub use pages::Fill;
use pages::{Work, work};
use ranges::clip;

use crate::state::Tree;
use crate::store::Snapshot;

/// A replaced range of this length is dropped and filled while the program runs; a shorter one is
/// replaced before.
const LAZY_BYTES: u64 = 64 << 10;
/// System calls that drop memory, in all processes: they have to fit into the restore plan.
const DROPS_MAX: usize = 1 << 19;

/// What processes do to share memory.
#[derive(Debug, Default)]
pub struct Sharing {
    /// By index of the process.
    processes: HashMap<usize, Shares>,
}

/// What one process does.
#[derive(Debug, Default)]
pub struct Shares {
    /// It maps these areas before it creates children.
    pub areas: Vec<Area>,
    /// It gets these pages before it creates children.
    pub fills: Vec<Fill>,
    /// By index: mappings that are parts of areas, and the protection that they have first.
    pub parts: BTreeMap<usize, u8>,
    /// Pages that are there as they are to be; ascending.
    pub there: Vec<Range<u64>>,
    /// Pages that are there, and are to be replaced before it runs; ascending.
    pub replaced: Vec<Range<u64>>,
    /// Pages that it drops.
    pub dropped: Vec<Range<u64>>,
}

impl Shares {
    /// Whether the process does something before it creates children.
    pub fn begins_early(&self) -> bool {
        !self.areas.is_empty() || !self.fills.is_empty()
    }
}

impl Sharing {
    /// Finds what can be shared. `made_by_others`: processes that their parents do not create. `copy_all`:
    /// nothing is filled while the program runs.
    pub fn find(
        tree: &Tree,
        snapshot: &dyn Snapshot,
        made_by_others: &HashSet<usize>,
        copy_all: bool,
    ) -> Self {
        let parents = parents(tree, made_by_others);
        let mut found: Vec<(Family, Vec<Work>)> = families(tree, snapshot, &parents)
            .into_iter()
            .filter_map(|family| {
                let work = work(tree, snapshot, &parents, &family)?;
                Some((family, work))
            })
            .collect();
        let shared_bytes = |(_, works): &(Family, Vec<Work>)| {
            let there = works.iter().flat_map(|work| &work.there);
            there.map(|range| range.end - range.start).sum::<u64>()
        };
        found.sort_by_cached_key(|found| std::cmp::Reverse(shared_bytes(found)));
        let mut sharing = Self::default();
        let mut chosen: Vec<Area> = Vec::new();
        let mut drops = 0;
        for (family, works) in found {
            let area = &family.area;
            let in_the_way = |other: &Area| {
                area.range.start < other.range.end
                    && other.range.start < area.range.end
                    && (descends(&parents, area.root, other.root)
                        || descends(&parents, other.root, area.root))
            };
            let dropped = |work: &Work| {
                let wrong = work.wrong.iter().filter(|range| waits(range, copy_all));
                work.gone.len() + wrong.count()
            };
            let with_these = drops + works.iter().map(dropped).sum::<usize>();
            if with_these > DROPS_MAX || chosen.iter().any(in_the_way) {
                continue;
            }
            drops = with_these;
            chosen.push(area.clone());
            sharing.add(tree, &family, works, copy_all);
        }
        for shares in sharing.processes.values_mut() {
            shares.there.sort_by_key(|range| range.start);
            shares.replaced.sort_by_key(|range| range.start);
        }
        sharing
    }

    /// What a process does, if there is anything.
    pub fn of(&self, process: usize) -> Option<&Shares> {
        self.processes.get(&process)
    }

    fn add(&mut self, tree: &Tree, family: &Family, works: Vec<Work>, copy_all: bool) {
        let root = self.processes.entry(family.area.root).or_default();
        root.areas.push(family.area.clone());
        for ((process, parts), work) in family.parts.iter().zip(works) {
            let shares = self.processes.entry(*process).or_default();
            shares.fills.extend(work.fills);
            for part in parts {
                let mapping = &tree.processes[*process].mappings[*part];
                let range = mapping.start..mapping.end;
                shares.parts.insert(*part, family.area.protection);
                shares.there.extend(clip(&work.there, &range));
                shares.dropped.extend(clip(&work.gone, &range));
                for wrong in clip(&work.wrong, &range) {
                    if waits(&wrong, copy_all) {
                        shares.dropped.push(wrong);
                    } else {
                        shares.replaced.push(wrong);
                    }
                }
            }
        }
    }
}

/// Whether pages that a process has changed are dropped first, and filled while it runs.
fn waits(changed: &Range<u64>, copy_all: bool) -> bool {
    !copy_all && changed.end - changed.start >= LAZY_BYTES
}

/// Whether a process is another one, or descends from it.
fn descends(parents: &[Option<usize>], process: usize, from: usize) -> bool {
    std::iter::successors(Some(process), |at| parents[*at]).any(|at| at == from)
}

#[cfg(test)]
mod tests;
