//! Which pages are hot, as plain data: address ranges of processes with a count of the sampling
//! windows in which they were touched. `sampler` finds them.

pub mod damon;
pub(crate) mod sampler;
pub(crate) mod saved;
pub(crate) mod watch;

use serde::{Deserialize, Serialize};

use crate::system::pages::{HUGE_PAGE_BYTES, PAGE_BYTES, Run};

/// A longer list is no list of ours: 8 million ranges are 32 GiB in single pages.
const MAX_RANGES: usize = 8 << 20;
/// End of the user half of the address space with five-level tables.
const USER_END: u64 = 1 << 56;

/// An address range that was touched in `hotness` windows; whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotRange {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// Windows with an access.
    pub hotness: u32,
}

/// The hot ranges of one process: sorted, disjoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessHotness {
    /// Process ID.
    pub pid: i32,
    /// With the pid, the identity of a process.
    pub start_ticks: u64,
    /// Its hot ranges.
    pub ranges: Vec<HotRange>,
}

impl ProcessHotness {
    /// Bytes in the ranges, whether pages are present there or not.
    pub fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}

/// Adds up what several windows saw: where ranges overlap, their hotness is the sum. The result is
/// sorted and disjoint, and equal neighbours are one.
pub fn sum(ranges: &[HotRange]) -> Vec<HotRange> {
    // A sweep over the ends: hotness rises at each start and falls at each end.
    let mut edges: Vec<(u64, i64)> = ranges
        .iter()
        .filter(|range| range.start < range.end)
        .flat_map(|range| {
            let hotness = i64::from(range.hotness);
            [(range.start, hotness), (range.end, -hotness)]
        })
        .collect();
    edges.sort_unstable_by_key(|(address, _)| *address);
    let mut summed: Vec<HotRange> = Vec::new();
    let (mut hotness, mut from) = (0, 0);
    for (address, change) in edges {
        if hotness > 0 && address > from {
            let now = hotness.min(i64::from(u32::MAX)) as u32;
            match summed.last_mut() {
                Some(last) if last.end == from && last.hotness == now => last.end = address,
                _ => summed.push(HotRange {
                    start: from,
                    end: address,
                    hotness: now,
                }),
            }
        }
        hotness += change;
        from = address;
    }
    summed
}

/// A page that is present, and its hotness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotPage {
    /// Virtual address.
    pub address: u64,
    /// Size in bytes; that of a huge page is larger.
    pub bytes: u64,
    /// Windows with an access.
    pub hotness: u32,
}

/// The pages among `runs` that a range touches; both sorted and disjoint. A huge page counts once,
/// whole, and is as hot as its hottest part.
pub fn present_pages(ranges: &[HotRange], runs: &[Run]) -> Vec<HotPage> {
    let mut pages: Vec<HotPage> = Vec::new();
    let mut first = 0;
    for run in runs {
        let unit = if run.huge {
            HUGE_PAGE_BYTES
        } else {
            PAGE_BYTES
        };
        while ranges
            .get(first)
            .is_some_and(|range| range.end <= run.start)
        {
            first += 1;
        }
        for range in ranges[first..]
            .iter()
            .take_while(|range| range.start < run.end)
        {
            let end = range.end.min(run.end);
            let mut address = range.start.max(run.start);
            while address < end {
                // A run may begin or end inside a huge page when the scan was cut there.
                let page_start = (address / unit * unit).max(run.start);
                let page_end = (address / unit + 1) * unit;
                match pages.last_mut() {
                    Some(last) if last.address == page_start => {
                        last.hotness = last.hotness.max(range.hotness)
                    }
                    _ => pages.push(HotPage {
                        address: page_start,
                        bytes: page_end.min(run.end) - page_start,
                        hotness: range.hotness,
                    }),
                }
                address = page_end;
            }
        }
    }
    pages
}

/// How hot in powers of two: a count of windows is no finer than that.
pub fn level(hotness: u32) -> u32 {
    hotness.max(1).ilog2()
}

/// The form of the file in /run while the machine sleeps: pages, not bytes; each start as the
/// distance from the last end.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    pid: i32,
    start_ticks: u64,
    /// Pages since the end of the range before, pages, hotness.
    ranges: Vec<(u64, u64, u32)>,
}

/// Text for [`decode`].
pub fn encode(processes: &[ProcessHotness]) -> String {
    let stored: Vec<Stored> = processes
        .iter()
        .map(|process| {
            let mut last_end = 0;
            let ranges = process
                .ranges
                .iter()
                .map(|range| {
                    let gap = range.start - last_end;
                    last_end = range.end;
                    let length = range.end - range.start;
                    (gap / PAGE_BYTES, length / PAGE_BYTES, range.hotness)
                })
                .collect();
            Stored {
                pid: process.pid,
                start_ticks: process.start_ticks,
                ranges,
            }
        })
        .collect();
    serde_json::to_string(&stored).expect("plain data serialises")
}

/// Reads what [`encode`] wrote. What does not make sense (no JSON, addresses beyond the address
/// space, too long) is nothing at all: hotness is advice, and wrong advice is worse than none.
pub fn decode(text: &str) -> Option<Vec<ProcessHotness>> {
    let stored: Vec<Stored> = serde_json::from_str(text).ok()?;
    if stored
        .iter()
        .map(|process| process.ranges.len())
        .sum::<usize>()
        > MAX_RANGES
    {
        return None;
    }
    stored
        .into_iter()
        .map(|process| {
            let mut last_end = 0u64;
            let ranges: Option<Vec<HotRange>> = process
                .ranges
                .into_iter()
                .map(|(gap, pages, hotness)| {
                    let start = gap.checked_mul(PAGE_BYTES)?.checked_add(last_end)?;
                    let end = pages.checked_mul(PAGE_BYTES)?.checked_add(start)?;
                    last_end = end;
                    (start < end && end <= USER_END && hotness > 0).then_some(HotRange {
                        start,
                        end,
                        hotness,
                    })
                })
                .collect();
            Some(ProcessHotness {
                pid: process.pid,
                start_ticks: process.start_ticks,
                ranges: ranges?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn range(start: u64, end: u64, hotness: u32) -> HotRange {
        HotRange {
            start: start * PAGE_BYTES,
            end: end * PAGE_BYTES,
            hotness,
        }
    }

    #[test]
    fn windows_add_up_where_they_overlap() {
        let summed = sum(&[
            range(0, 4, 1),
            range(2, 6, 2),
            range(6, 7, 2),
            range(9, 9, 5),
        ]);
        assert_eq!(summed, [range(0, 2, 1), range(2, 4, 3), range(4, 7, 2)]);
    }

    #[test]
    fn a_huge_page_is_taken_whole_once_and_is_as_hot_as_its_hottest_part() {
        let runs = [
            Run {
                start: 0,
                end: 2 * HUGE_PAGE_BYTES,
                huge: true,
            },
            Run {
                start: 2 * HUGE_PAGE_BYTES,
                end: 2 * HUGE_PAGE_BYTES + 3 * PAGE_BYTES,
                huge: false,
            },
        ];
        let pages = present_pages(
            &[range(5, 6, 1), range(7, 9, 4), range(1024, 9999, 2)],
            &runs,
        );
        assert_eq!(pages.len(), 4);
        assert_eq!(
            (pages[0].address, pages[0].bytes, pages[0].hotness),
            (0, HUGE_PAGE_BYTES, 4)
        );
        assert!(
            pages[1..]
                .iter()
                .all(|page| page.bytes == PAGE_BYTES && page.hotness == 2)
        );
    }

    #[test]
    fn what_was_damaged_in_the_state_is_no_advice() {
        for text in [
            "",
            "[",
            "{}",
            r#"[{"pid":1,"start_ticks":1,"ranges":[[1,0,1]]}]"#,
            r#"[{"pid":1,"start_ticks":1,"ranges":[[1,1,0]]}]"#,
            r#"[{"pid":1,"start_ticks":1,"ranges":[[18446744073709551615,1,1]]}]"#,
            r#"[{"pid":1,"start_ticks":1,"ranges":[[1,17592186044416,1]]}]"#,
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    fn ranges() -> impl Strategy<Value = Vec<HotRange>> {
        prop::collection::vec((0u64..600, 1u64..40, 1u32..9), 0..40).prop_map(|list| {
            list.into_iter()
                .map(|(start, pages, hotness)| range(start, start + pages, hotness))
                .collect()
        })
    }

    /// The hotness of each page by counting.
    fn by_page(ranges: &[HotRange]) -> BTreeMap<u64, u32> {
        let mut pages = BTreeMap::new();
        for range in ranges {
            for page in range.start / PAGE_BYTES..range.end / PAGE_BYTES {
                *pages.entry(page).or_default() += range.hotness;
            }
        }
        pages
    }

    proptest! {
        #[test]
        fn summing_loses_no_hotness_and_leaves_sorted_disjoint_ranges(ranges in ranges()) {
            let summed = sum(&ranges);
            prop_assert_eq!(by_page(&summed), by_page(&ranges));
            prop_assert!(summed.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }

        #[test]
        fn exactly_the_present_pages_that_are_hot_are_listed_once(
            ranges in ranges(),
            runs in prop::collection::vec((0u64..50, 1u64..50), 0..12),
        ) {
            let ranges = sum(&ranges);
            let mut at = 0;
            let runs: Vec<Run> = runs
                .into_iter()
                .map(|(gap, pages)| {
                    let start = at + gap;
                    at = start + pages;
                    Run { start: start * PAGE_BYTES, end: at * PAGE_BYTES, huge: false }
                })
                .collect();
            let hotness = by_page(&ranges);
            let wanted: Vec<(u64, u32)> = runs
                .iter()
                .flat_map(|run| run.start / PAGE_BYTES..run.end / PAGE_BYTES)
                .filter_map(|page| Some((page, *hotness.get(&page)?)))
                .collect();
            let found: Vec<(u64, u32)> = present_pages(&ranges, &runs)
                .iter()
                .map(|page| (page.address / PAGE_BYTES, page.hotness))
                .collect();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn the_state_reads_back(ranges in ranges(), pid in 1i32..99999, start_ticks: u64) {
            let processes = vec![ProcessHotness { pid, start_ticks, ranges: sum(&ranges) }];
            prop_assert_eq!(decode(&encode(&processes)), Some(processes));
        }

        #[test]
        fn no_text_makes_the_decoder_panic(text in ".{0,200}", a: u64, b: u64, c: u32) {
            let _ = decode(&text);
            let _ = decode(&format!(r#"[{{"pid":1,"start_ticks":{a},"ranges":[[{a},{b},{c}],[{b},{a},{c}]]}}]"#));
        }
    }
}
