//! The copy plan for random bitmaps, fragmentation and sizes.

use dormouse_image::plan::{Bitmap, Copy, CxlFull, Plan, clear_range, set_range};
use proptest::prelude::*;

/// A bitmap made of runs, from single bits up to several words, so that all edges occur.
fn runs_bitmap(max_bits: u64) -> impl Strategy<Value = (Vec<u64>, u64)> {
    let run = prop_oneof![4 => 1u64..4, 2 => 1u64..70, 1 => 60u64..300];
    (
        prop::collection::vec(run, 0..60),
        any::<bool>(),
        1..=max_bits,
    )
        .prop_map(move |(runs, mut set, bits)| {
            // One word more than needed, full of noise: it must not be read.
            let mut words = vec![0u64; bits.div_ceil(64) as usize];
            let mut at = 0;
            for count in runs {
                let count = count.min(bits - at);
                if set {
                    set_range(&mut words, at, count);
                }
                at += count;
                set = !set;
            }
            words.push(0xdead_beef_dead_beef);
            if bits % 64 != 0 {
                words[bits as usize / 64] |= u64::MAX << (bits % 64);
            }
            (words, bits)
        })
}

fn bit(words: &[u64], index: u64) -> bool {
    words[index as usize / 64] >> (index % 64) & 1 == 1
}

fn set_bits(words: &[u64], bits: u64) -> Vec<u64> {
    (0..bits).filter(|&index| bit(words, index)).collect()
}

fn plan(dram: &(Vec<u64>, u64), cxl: &(Vec<u64>, u64), first: u64) -> Vec<Result<Copy, CxlFull>> {
    Plan::new(
        Bitmap::new(&dram.0, dram.1),
        Bitmap::new(&cxl.0, cxl.1),
        first,
    )
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_plan_pairs_each_set_page_with_the_next_free_one_and_nothing_else(
        dram in runs_bitmap(3000), cxl in runs_bitmap(4000), first in 0u64..4200,
    ) {
        let wanted = set_bits(&dram.0, dram.1);
        let free: Vec<u64> = (first..cxl.1).filter(|&page| !bit(&cxl.0, page)).collect();
        let pieces = plan(&dram, &cxl, first);
        let full = pieces.last() == Some(&Err(CxlFull));
        prop_assert_eq!(full, wanted.len() > free.len());

        let pairs: Vec<(u64, u64)> = pieces.iter().flatten()
            .flat_map(|copy| (0..copy.pages).map(|i| (copy.dram_page + i, copy.cxl_page + i)))
            .collect();
        let expected: Vec<(u64, u64)> = wanted.into_iter().zip(free).collect();
        prop_assert_eq!(pairs, expected);
    }

    #[test]
    fn each_piece_is_as_long_as_it_can_be(
        dram in runs_bitmap(3000), cxl in runs_bitmap(4000), first in 0u64..100,
    ) {
        let pieces: Vec<Copy> = plan(&dram, &cxl, first).into_iter().flatten().collect();
        for pair in pieces.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            prop_assert!(a.pages > 0);
            let both_go_on = a.dram_page + a.pages == b.dram_page && a.cxl_page + a.pages == b.cxl_page;
            prop_assert!(!both_go_on, "{:?} and {:?} are one piece", a, b);
        }
    }

    #[test]
    fn restoring_undoes_saving_and_leaves_occupied_pages_alone(
        dram in runs_bitmap(800), cxl in runs_bitmap(2000), first in 0u64..50,
    ) {
        // A page is one number here: its content.
        let before: Vec<u64> = (0..dram.1).map(|page| page + 1_000_000).collect();
        let mut saved: Vec<u64> = (0..cxl.1).map(|page| page + 9_000_000).collect();
        let user = saved.clone();
        let mut memory = before.clone();
        let pieces = plan(&dram, &cxl, first);
        prop_assume!(pieces.last() != Some(&Err(CxlFull)));

        for copy in pieces.iter().flatten() {
            for i in 0..copy.pages {
                saved[(copy.cxl_page + i) as usize] = memory[(copy.dram_page + i) as usize];
            }
        }
        memory.fill(0);
        for copy in plan(&dram, &cxl, first).iter().flatten() {
            for i in 0..copy.pages {
                memory[(copy.dram_page + i) as usize] = saved[(copy.cxl_page + i) as usize];
            }
        }
        for page in 0..dram.1 {
            let expected = if bit(&dram.0, page) { before[page as usize] } else { 0 };
            prop_assert_eq!(memory[page as usize], expected);
        }
        for page in 0..cxl.1 {
            if page < first || bit(&cxl.0, page) {
                prop_assert_eq!(saved[page as usize], user[page as usize]);
            }
        }
    }

    #[test]
    fn bitmap_walks_agree_with_looking_at_each_bit(map in runs_bitmap(700), from in 0u64..800) {
        let bitmap = Bitmap::new(&map.0, map.1);
        let find = |value| (from..map.1).find(|&i| bit(&map.0, i) == value).unwrap_or(map.1);
        prop_assert_eq!(bitmap.next_set(from), find(true));
        prop_assert_eq!(bitmap.next_clear(from), find(false));
        let count = (from..map.1).filter(|&i| bit(&map.0, i)).count() as u64;
        prop_assert_eq!(bitmap.count(from), count);
    }

    #[test]
    fn setting_and_clearing_touch_exactly_their_bits(
        words in prop::collection::vec(any::<u64>(), 8), first in 0u64..512, count in 0u64..512,
    ) {
        let count = count.min(512 - first);
        let (mut set, mut clear) = (words.clone(), words.clone());
        set_range(&mut set, first, count);
        clear_range(&mut clear, first, count);
        for i in 0..512 {
            let inside = (first..first + count).contains(&i);
            prop_assert_eq!(bit(&set, i), inside || bit(&words, i));
            prop_assert_eq!(bit(&clear, i), !inside && bit(&words, i));
        }
    }
}

#[test]
fn nothing_to_save_is_an_empty_plan_even_when_cxl_is_full() {
    assert_eq!(plan(&(vec![0], 64), &(vec![!0], 64), 0), []);
}

#[test]
fn a_full_device_ends_the_plan_with_one_error() {
    let one = |page| {
        Ok(Copy {
            dram_page: page,
            cxl_page: 63,
            pages: 1,
        })
    };
    assert_eq!(
        plan(&(vec![6], 64), &(vec![!0 >> 1], 64), 0),
        [one(1), Err(CxlFull)]
    );
    assert_eq!(plan(&(vec![1], 64), &(vec![0], 64), 64), [Err(CxlFull)]);
    assert_eq!(
        plan(&(vec![1], 64), &(vec![0], 64), u64::MAX),
        [Err(CxlFull)]
    );
}
