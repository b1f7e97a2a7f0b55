use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use super::pages::work_by;
use super::*;
use crate::state::{Backing, Mapping, Process, advice};
use crate::store::{DamagedPage, Extent, PAGE_BYTES, SpaceId};

/// Pages in memory: by space and page the byte that it is full of.
#[derive(Default)]
struct Pages {
    spaces: BTreeMap<SpaceId, BTreeMap<u64, u8>>,
    bytes: Vec<u8>,
}

impl Pages {
    fn new(spaces: BTreeMap<SpaceId, BTreeMap<u64, u8>>) -> Self {
        let pages = (0..=u8::MAX).flat_map(|byte| [byte; PAGE_BYTES as usize]);
        Self {
            spaces,
            bytes: pages.collect(),
        }
    }
}

impl Snapshot for Pages {
    fn epoch(&self) -> u64 {
        1
    }
    fn description(&self) -> &[u8] {
        &[]
    }
    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.keys().copied().collect()
    }
    fn extents(&self, space: SpaceId) -> Box<dyn Iterator<Item = Extent> + '_> {
        let pages = self.spaces.get(&space).into_iter().flatten();
        Box::new(pages.map(|(page, byte)| Extent {
            start: page * PAGE_BYTES,
            bytes: PAGE_BYTES,
            offset: u64::from(*byte) * PAGE_BYTES,
            written: 1,
        }))
    }
    fn bytes(&self, extent: &Extent) -> &[u8] {
        &self.bytes[extent.offset as usize..(extent.offset + extent.bytes) as usize]
    }
    /// Often the same for different pages.
    fn checksum(&self, offset: u64) -> Option<u64> {
        Some(offset / PAGE_BYTES % 2)
    }
    fn check(&self, _: SpaceId, _: &Extent) -> Result<(), DamagedPage> {
        Ok(())
    }
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn mapping(range: Range<u64>, protection: u8, advice: u32) -> Mapping {
    Mapping {
        start: range.start * PAGE_BYTES,
        end: range.end * PAGE_BYTES,
        protection,
        shared: false,
        backing: Backing::Anonymous,
        offset: 0,
        advice,
        huge_page_bytes: 0,
        name: None,
    }
}

/// By page the byte that it is full of.
type Memory = BTreeMap<u64, u8>;

/// Processes with the index of their parent, their mappings, and their pages.
fn tree_of(processes: Vec<(Option<usize>, Vec<Mapping>, Memory)>) -> (Tree, Pages) {
    let mut tree = Tree::empty();
    let mut spaces = BTreeMap::new();
    for (index, (parent, mappings, pages)) in processes.into_iter().enumerate() {
        let pid = |index: usize| 100 + index as i32;
        let space = SpaceId(index as u32 + 1);
        spaces.insert(space, pages);
        tree.processes.push(Process {
            space,
            mappings,
            ..Process::empty(pid(index), parent.map_or(0, pid))
        });
    }
    (tree, Pages::new(spaces))
}

fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end / PAGE_BYTES
}

/// Does what a restore does, and returns the pages of each process, and how many it inherited.
fn restored(tree: &Tree, pages: &Pages, sharing: &Sharing) -> Vec<(Memory, usize)> {
    let parents = parents(tree, &HashSet::new());
    let mut early: Vec<(Memory, Vec<Range<u64>>)> = Vec::new();
    let mut found = Vec::new();
    let none = Shares::default();
    for (index, process) in tree.processes.iter().enumerate() {
        let shares = sharing.of(index).unwrap_or(&none);
        let inherited = parents[index].map(|parent| early[parent].clone());
        let (mut memory, mut areas) = inherited.unwrap_or_default();
        for area in &shares.areas {
            let in_the_way =
                |other: &Range<u64>| other.start < area.range.end && area.range.start < other.end;
            assert!(
                !areas.iter().any(in_the_way),
                "an area in the place of another"
            );
            areas.push(area.range.clone());
        }
        for fill in &shares.fills {
            let mapped =
                |area: &Range<u64>| area.start <= fill.range.start && fill.range.end <= area.end;
            assert!(areas.iter().any(mapped), "pages where nothing is mapped");
            for page in pages_of(&fill.range) {
                memory.insert(page, pages.spaces[&fill.space][&page]);
            }
        }
        early.push((memory.clone(), areas.clone()));
        // Its parts stay.
        let parts: Vec<Range<u64>> = shares
            .parts
            .iter()
            .map(|(part, protection)| {
                let mapping = &process.mappings[*part];
                assert_eq!(mapping.protection & !protection, 0);
                mapping.start..mapping.end
            })
            .collect();
        for part in &parts {
            let within = |area: &Range<u64>| area.start <= part.start && part.end <= area.end;
            assert!(areas.iter().any(within), "a part of no area");
        }
        memory.retain(|page, _| parts.iter().any(|part| pages_of(part).contains(page)));
        for page in shares.dropped.iter().flat_map(pages_of) {
            assert!(memory.remove(&page).is_some(), "nothing to drop");
        }
        let own = &pages.spaces[&process.space];
        for page in shares.replaced.iter().flat_map(pages_of) {
            assert_ne!(memory.insert(page, own[&page]), None, "nothing to replace");
        }
        let there: Vec<u64> = shares.there.iter().flat_map(pages_of).collect();
        // Filled while it runs: what is there already stays.
        let kept = memory.len() - shares.replaced.iter().flat_map(pages_of).count();
        assert_eq!(kept, there.len());
        for (page, byte) in own {
            memory.entry(*page).or_insert(*byte);
        }
        found.push((memory, there.len()));
    }
    found
}

const WRITE: u8 = 3;

#[test]
fn children_share_what_they_have_not_changed() {
    let own = |pages: Range<u64>, byte: u8| pages.map(move |page| (page, byte));
    let all: Memory = own(10..50, 1).collect();
    let mut changed = all.clone();
    changed.extend(own(20..25, 2));
    changed.remove(&30);
    let mut longer = all.clone();
    longer.extend(own(50..60, 3));
    let (tree, pages) = tree_of(vec![
        (None, vec![mapping(10..50, WRITE, 0)], all),
        (
            Some(0),
            vec![mapping(10..40, WRITE, 0), mapping(40..50, 1, 0)],
            changed,
        ),
        (Some(0), vec![mapping(10..60, WRITE, 0)], longer),
    ]);
    for copy_all in [false, true] {
        let sharing = Sharing::find(&tree, &pages, &HashSet::new(), copy_all);
        let root = sharing.of(0).expect("an area");
        assert_eq!(root.areas.len(), 1);
        assert_eq!(pages_of(&root.areas[0].range), 10..60);
        let shared: Vec<usize> = restored(&tree, &pages, &sharing)
            .iter()
            .map(|(_, shared)| *shared)
            .collect();
        assert_eq!(shared, [40, 34, 40]);
    }
    // Created by another process than their parent, they inherit nothing.
    let others = HashSet::from([1, 2]);
    assert!(
        Sharing::find(&tree, &pages, &others, false)
            .processes
            .is_empty()
    );
}

#[test]
fn nothing_is_done_early_where_nothing_is_shared() {
    let own = |byte: u8| (10..50).map(move |page| (page, byte)).collect();
    let other = advice::GROWS_DOWN;
    let (tree, pages) = tree_of(vec![
        (None, vec![mapping(10..50, WRITE, 0)], own(1)),
        (Some(0), vec![mapping(10..50, WRITE, 0)], own(3)),
        // Not inherited as it is.
        (Some(0), vec![mapping(10..50, WRITE, other)], own(1)),
        (
            Some(0),
            vec![mapping(10..50, WRITE, advice::WIPE_ON_FORK)],
            own(1),
        ),
        // Not of its family.
        (None, vec![mapping(10..50, WRITE, 0)], own(1)),
    ]);
    assert!(
        Sharing::find(&tree, &pages, &HashSet::new(), false)
            .processes
            .is_empty()
    );
}

#[test]
fn a_run_that_is_replaced_is_filled_while_the_program_runs() {
    let all: Memory = (0..100).map(|page| (page, 1)).collect();
    let mut changed = all.clone();
    changed.extend((10..12).chain(40..80).map(|page| (page, 2)));
    let (tree, pages) = tree_of(vec![
        (None, vec![mapping(0..100, WRITE, 0)], all),
        (Some(0), vec![mapping(0..100, WRITE, 0)], changed),
    ]);
    let lazily = Sharing::find(&tree, &pages, &HashSet::new(), false);
    // The parent does not get them before its child is there.
    assert_eq!(lazily.of(0).expect("an area").fills.len(), 3);
    assert!(lazily.of(1).expect("parts").dropped.is_empty());
    let third = tree_of(vec![
        (
            None,
            vec![mapping(0..100, WRITE, 0)],
            pages.spaces[&SpaceId(1)].clone(),
        ),
        (
            Some(0),
            vec![mapping(0..100, WRITE, 0)],
            pages.spaces[&SpaceId(2)].clone(),
        ),
        (
            Some(0),
            vec![mapping(0..100, WRITE, 0)],
            pages.spaces[&SpaceId(1)].clone(),
        ),
    ]);
    let lazily = Sharing::find(&third.0, &third.1, &HashSet::new(), false);
    let child = lazily.of(1).expect("parts");
    let pages: Vec<u64> = child.dropped.iter().flat_map(pages_of).collect();
    assert_eq!(pages, (40..80).collect::<Vec<u64>>());
    let pages: Vec<u64> = child.replaced.iter().flat_map(pages_of).collect();
    assert_eq!(pages, [10, 11]);
    let at_once = Sharing::find(&third.0, &third.1, &HashSet::new(), true);
    assert!(at_once.of(1).expect("parts").dropped.is_empty());
}

#[test]
fn private_pages_of_a_file_are_shared_if_the_same_part_of_it_is_there() {
    let file = |image: u32, offset: u64| Mapping {
        backing: Backing::Image {
            image,
            writable: false,
        },
        offset: offset * PAGE_BYTES,
        ..mapping(10..50, WRITE, 0)
    };
    let own: Memory = (20..30).map(|page| (page, 1)).collect();
    for (other, shared) in [(file(0, 8), 10), (file(0, 9), 0), (file(1, 8), 0)] {
        let child = (Some(0), vec![other], own.clone());
        let (tree, pages) = tree_of(vec![(None, vec![file(0, 8)], own.clone()), child]);
        let sharing = Sharing::find(&tree, &pages, &HashSet::new(), false);
        assert_eq!(restored(&tree, &pages, &sharing)[1].1, shared);
    }
}

/// A random process: its parent, where its mappings begin and end, and a byte for each page.
fn process() -> impl proptest::strategy::Strategy<Value = (usize, Vec<(u8, u8)>, Vec<u8>)> {
    (
        0usize..8,
        proptest::collection::vec((0u8..12, 0u8..5), 1..6),
        proptest::collection::vec(0u8..4, 40),
    )
}

proptest::proptest! {
    /// Random trees with random mappings and pages.
    #[test]
    fn each_process_has_its_own_pages_in_the_end(
        processes in proptest::collection::vec(process(), 1..8),
        copy_all: bool,
        threads in 2u64..9,
    ) {
        let made = processes.into_iter().enumerate().map(|(index, (parent, cuts, bytes))| {
            let parent = (index > 0).then(|| parent % (index + 1)).filter(|parent| *parent < index);
            let mut mappings = Vec::new();
            let mut at = 0;
            for (length, kind) in cuts {
                let end = (at + u64::from(length)).min(40);
                let advice = match kind {
                    0 => advice::GROWS_DOWN,
                    1 => advice::DONT_FORK,
                    _ => 0,
                };
                // Some addresses are free.
                if at < end && kind != 2 {
                    mappings.push(mapping(at..end, if kind == 3 { 1 } else { WRITE }, advice));
                }
                at = end;
            }
            let mapped = |page: &u64| mappings.iter().any(|m| pages_of(&(m.start..m.end)).contains(page));
            let pages: Memory = (0..).zip(bytes)
                .filter(|(page, byte)| *byte != 0 && mapped(page))
                .collect();
            (parent, mappings, pages)
        });
        let (tree, pages) = tree_of(made.collect());
        let parents = parents(&tree, &HashSet::new());
        for family in families(&tree, &pages, &parents) {
            let by = |threads| work_by(threads, &tree, &pages, &parents, &family);
            proptest::prop_assert_eq!(by(threads), by(1));
        }
        let sharing = Sharing::find(&tree, &pages, &HashSet::new(), copy_all);
        let found = restored(&tree, &pages, &sharing);
        for (process, (memory, _)) in tree.processes.iter().zip(found) {
            proptest::prop_assert_eq!(&memory, &pages.spaces[&process.space]);
        }
    }
}
