//! Mappings that children have inherited from their parents. Pure.
//!
//! A process and its child may have changed a mapping since the fork: split, shortened, extended. So
//! mappings belong together if they overlap, and if they are of a kind that a process cannot
//! change without mapping anew.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::state::{Backing, Mapping, Tree, advice};
use crate::store::Snapshot;

/// An area of memory that a process maps before it has children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// The process: the ancestor of all others that have a part of it.
    pub root: usize,
    /// Addresses, so that all parts lie in it.
    pub range: Range<u64>,
    /// All that any of the parts allows.
    pub protection: u8,
    /// What it cannot change later.
    pub kind: Kind,
}

/// What `mprotect`, `madvise` and `munmap` do not change in a private mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The file that is mapped, and the distance from an offset in it to its address.
    pub image: Option<(u32, u64)>,
    /// The advice that only `mmap` can give.
    pub advice: u32,
}

impl Kind {
    /// Of a mapping that children inherit; `None` of another one.
    fn of(mapping: &Mapping) -> Option<Self> {
        let image = match mapping.backing {
            Backing::Anonymous => None,
            Backing::Image { image, .. } => {
                Some((image, mapping.start.wrapping_sub(mapping.offset)))
            }
            _ => return None,
        };
        let other = advice::DONT_FORK | advice::WIPE_ON_FORK | advice::DROPPABLE;
        let inherited =
            !mapping.shared && mapping.huge_page_bytes == 0 && mapping.advice & other == 0;
        inherited.then_some(Self {
            image,
            advice: mapping.advice & (advice::NO_RESERVE | advice::GROWS_DOWN),
        })
    }
}

/// Mappings that belong together, and the area that they become parts of.
#[derive(Debug)]
pub struct Family {
    /// The area.
    pub area: Area,
    /// By process: indices of its mappings. Parents stand before their children.
    pub parts: BTreeMap<usize, Vec<usize>>,
}

/// Of each process the one that creates it and is its parent, if there is one.
pub fn parents(tree: &Tree, made_by_others: &HashSet<usize>) -> Vec<Option<usize>> {
    let living = |at: &usize| tree.processes[*at].zombie.is_none();
    let indices = (0..tree.processes.len()).filter(living);
    let by_pid: HashMap<i32, usize> = indices.map(|at| (tree.processes[at].pid, at)).collect();
    let parent = |(at, process): (usize, &crate::state::Process)| {
        let own = process.zombie.is_none() && !made_by_others.contains(&at);
        by_pid.get(&process.parent).copied().filter(|_| own)
    };
    tree.processes.iter().enumerate().map(parent).collect()
}

/// The families of a tree. `parents`: see [`parents`].
pub fn families(tree: &Tree, snapshot: &dyn Snapshot, parents: &[Option<usize>]) -> Vec<Family> {
    let mut families = Families::default();
    let mut known: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut of = |at: usize| {
        let own = known.entry(at);
        own.or_insert_with(|| eligible(tree, snapshot, at)).clone()
    };
    for (child, parent) in parents.iter().enumerate() {
        let Some(parent) = *parent else {
            continue;
        };
        let (own, others) = (of(child), of(parent));
        let mapping = |process: usize, at: usize| &tree.processes[process].mappings[at];
        let mut first = 0;
        for &at in &own {
            let here = mapping(child, at);
            while first < others.len() && mapping(parent, others[first]).end <= here.start {
                first += 1;
            }
            for &other in &others[first..] {
                let there = mapping(parent, other);
                if there.start >= here.end {
                    break;
                }
                if Kind::of(here) == Kind::of(there) {
                    families.join((parent, other), (child, at));
                }
            }
        }
    }
    families.collect(tree)
}

/// Mappings of a process that children inherit, and that have pages of their own; ascending.
fn eligible(tree: &Tree, snapshot: &dyn Snapshot, process: usize) -> Vec<usize> {
    let process = &tree.processes[process];
    let filled = |mapping: &Mapping| {
        let mut extents = snapshot.extents_in(process.space, mapping.start..mapping.end);
        extents.next().is_some()
    };
    let mappings = process.mappings.iter().enumerate();
    mappings
        .filter(|(_, mapping)| Kind::of(mapping).is_some() && filled(mapping))
        .map(|(at, _)| at)
        .collect()
}

/// Sets of mappings, each of a process; joined step by step.
#[derive(Default)]
struct Families {
    numbers: HashMap<(usize, usize), usize>,
    mappings: Vec<(usize, usize)>,
    /// Of each mapping another one of its set, or itself.
    leads: Vec<usize>,
}

impl Families {
    fn number(&mut self, mapping: (usize, usize)) -> usize {
        *self.numbers.entry(mapping).or_insert_with(|| {
            self.mappings.push(mapping);
            self.leads.push(self.leads.len());
            self.leads.len() - 1
        })
    }

    fn leader(&mut self, mut number: usize) -> usize {
        while self.leads[number] != number {
            self.leads[number] = self.leads[self.leads[number]];
            number = self.leads[number];
        }
        number
    }

    fn join(&mut self, one: (usize, usize), other: (usize, usize)) {
        let (one, other) = (self.number(one), self.number(other));
        let (one, other) = (self.leader(one), self.leader(other));
        self.leads[other] = one;
    }

    fn collect(mut self, tree: &Tree) -> Vec<Family> {
        let mut found: BTreeMap<usize, Family> = BTreeMap::new();
        for number in 0..self.mappings.len() {
            let leader = self.leader(number);
            let (process, at) = self.mappings[number];
            let mapping = &tree.processes[process].mappings[at];
            let Some(kind) = Kind::of(mapping) else {
                continue;
            };
            let family = found.entry(leader).or_insert_with(|| Family {
                area: Area {
                    root: process,
                    range: mapping.start..mapping.end,
                    protection: 0,
                    kind,
                },
                parts: BTreeMap::new(),
            });
            let area = &mut family.area;
            area.root = area.root.min(process);
            area.range.start = area.range.start.min(mapping.start);
            area.range.end = area.range.end.max(mapping.end);
            area.protection |= mapping.protection;
            family.parts.entry(process).or_default().push(at);
        }
        let mut found: Vec<Family> = found.into_values().collect();
        for parts in found
            .iter_mut()
            .flat_map(|family| family.parts.values_mut())
        {
            parts.sort_unstable();
        }
        found
    }
}
