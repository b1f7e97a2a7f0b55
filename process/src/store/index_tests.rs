use std::collections::BTreeMap;

use super::*;
use crate::store::segment::{Record, Segment, segment_records};

fn run(page: u64, count: u32, frame: u32) -> PageRun {
    PageRun {
        page,
        count,
        frame,
        written: 1,
    }
}

#[test]
fn pages_side_by_side_make_one_run_over_leaves() {
    let mut index = Index::default();
    index.set(SpaceId(1), run(500, 30, 100), |_| {
        panic!("nothing was there")
    });
    assert_eq!(index.pages(), 30);
    assert_eq!(
        index.runs(SpaceId(1)).collect::<Vec<_>>(),
        [run(500, 30, 100)]
    );
    let mut old = Vec::new();
    index.set(SpaceId(1), run(510, 2, 900), |frame| old.push(frame));
    assert_eq!(old, [110, 111]);
    let runs: Vec<_> = index.runs(SpaceId(1)).collect();
    assert_eq!(
        runs,
        [run(500, 10, 100), run(510, 2, 900), run(512, 18, 112)]
    );
    assert_eq!(index.frame(SpaceId(1), 511), Some(901));
    assert_eq!(index.frame(SpaceId(1), 530), None);
}

#[test]
fn an_emptied_leaf_gives_its_home_back() {
    let mut index = Index::default();
    index.set(SpaceId(1), run(512, 512, 512), |_| {});
    index.leaf_mut(SpaceId(1), 1).home = Some(1);
    let (mut dropped, mut homes) = (0, Vec::new());
    index.forget(
        SpaceId(1),
        0,
        1000,
        |_| dropped += 1,
        |home| homes.push(home),
    );
    assert_eq!((dropped, homes.len()), (488, 0));
    index.forget(
        SpaceId(1),
        1000,
        u64::MAX,
        |_| dropped += 1,
        |home| homes.push(home),
    );
    assert_eq!((dropped, homes), (512, vec![1]));
    assert_eq!((index.pages(), index.spaces().len()), (0, 0));
}

fn pages_of(index: &Index) -> BTreeMap<(u32, u64), u32> {
    let mut pages = BTreeMap::new();
    for space in index.spaces() {
        for run in index.runs(space) {
            for step in 0..run.count {
                pages.insert((space.0, run.page + u64::from(step)), run.frame + step);
            }
        }
    }
    pages
}

fn replay(index: &mut Index, segment: &Segment) {
    let sums = segment.sums.len() as u64 / 8;
    for record in segment_records(&segment.head, sums, 0).unwrap() {
        match record.unwrap() {
            Record::Run(r) => {
                let pages = run(r.page, r.count, r.frame);
                index.set(r.space, pages, |_| {});
            }
            Record::Forget { space, page, count } => {
                index.forget(space, page, count, |_| {}, |_| {});
            }
            Record::ForgetSpace(space) => index.forget_space(space, |_| {}, |_| {}),
        }
    }
}

proptest::proptest! {
    /// Against a plain map: what was there before is reported, page by page.
    #[test]
    fn every_frame_that_is_replaced_or_dropped_is_told(
        steps in proptest::collection::vec(
            (0u8..8, 1u32..3, 0u64..1600, 1u32..1200, 10u32..100_000),
            1..40,
        )
    ) {
        let mut index = Index::default();
        let mut plain = BTreeMap::new();
        for (kind, space, page, count, frame) in steps {
            // Leaves that are whole are a case of their own.
            let (page, count) = if kind % 2 == 0 { (page / 512 * 512, 512) } else { (page, count) };
            let (mut told, mut were) = (Vec::new(), Vec::new());
            let pages = page..page + u64::from(count);
            were.extend(pages.clone().filter_map(|page| plain.remove(&(space, page))));
            if kind < 5 {
                index.set(SpaceId(space), run(page, count, frame), |old| told.push(old));
                plain.extend(pages.zip(frame..).map(|(page, frame)| ((space, page), frame)));
            } else {
                let from = |old| told.push(old);
                index.forget(SpaceId(space), page, count.into(), from, |_| {});
            }
            proptest::prop_assert_eq!(&told, &were);
            proptest::prop_assert_eq!(&pages_of(&index), &plain);
            proptest::prop_assert_eq!(index.pages(), plain.len() as u64);
            let missing = index.missing(SpaceId(space), 0, 3000);
            let missing: u64 = missing.iter().map(|(_, count)| count).sum();
            let there = plain.keys().filter(|(of, _)| *of == space).count() as u64;
            proptest::prop_assert_eq!(missing, 3000 - there);
        }
    }

    /// All changes written down, applied in order, give the same index as the whole.
    #[test]
    fn changes_add_up_to_the_whole(
        steps in proptest::collection::vec(
            (0u8..10, 1u32..4, 0u64..1600, 1u32..700, 10u32..100_000),
            1..60,
        )
    ) {
        let zeros = |run: &PageRun, to: &mut Vec<u64>| to.resize(run.count as usize, 0);
        let mut index = Index::default();
        let mut copy = Index::default();
        for (kind, space, page, count, frame) in steps {
            let space = SpaceId(space);
            match kind {
                0..=4 => index.set(space, run(page, count, frame), |_| {}),
                5 | 6 => index.forget(space, page, count.into(), |_| {}, |_| {}),
                7 => index.forget_space(space, |_| {}, |_| {}),
                _ => {
                    let mut writer = SegmentWriter::new(0);
                    index.write_changes(&mut writer, zeros);
                    replay(&mut copy, &writer.finish());
                    index.changes_are_durable();
                    proptest::prop_assert_eq!(pages_of(&index), pages_of(&copy));
                }
            }
            proptest::prop_assert_eq!(index.pages(), pages_of(&index).len() as u64);
        }
        let mut writer = SegmentWriter::new(0);
        index.write_all(&mut writer, zeros);
        let mut whole = Index::default();
        replay(&mut whole, &writer.finish());
        proptest::prop_assert_eq!(pages_of(&index), pages_of(&whole));
    }
}
