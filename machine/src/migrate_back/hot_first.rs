//! The order of the policy `hot-first`: hottest pages first, whichever process owns them.
//!
//! ```text
//!               process A      process B      process C      (in process order)
//!  level 2   1  ████        2  ██          3  ██████
//!  level 1   4  ██████████                 5  ██
//!  level 0                  6  ████████    7  ██████████     then everything else, A, B, C
//! ```

use std::collections::BTreeSet;

use crate::hotness::{HotPage, level};
use crate::migrate::{Batch, Page};

/// The hot pages of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotProcess {
    pub pid: i32,
    pub to_node: u32,
    pub pages: Vec<HotPage>,
}

/// Batches of at most `batch_bytes` (or one huge page): level after level, and in each level
/// process after process in the order given. One call can only move pages of one process.
pub fn batches(processes: &[HotProcess], batch_bytes: u64) -> Vec<Batch> {
    let levels: BTreeSet<u32> = processes
        .iter()
        .flat_map(|process| process.pages.iter().map(|page| level(page.hotness)))
        .collect();
    let mut batches = Vec::new();
    for wanted in levels.into_iter().rev() {
        for process in processes {
            let mut pages = Vec::new();
            let mut bytes = 0;
            for page in process
                .pages
                .iter()
                .filter(|page| level(page.hotness) == wanted)
            {
                if bytes > 0 && bytes + page.bytes > batch_bytes {
                    batches.push(batch(process, std::mem::take(&mut pages)));
                    bytes = 0;
                }
                pages.push(Page {
                    address: page.address,
                    bytes: page.bytes,
                });
                bytes += page.bytes;
            }
            if !pages.is_empty() {
                batches.push(batch(process, pages));
            }
        }
    }
    batches
}

fn batch(process: &HotProcess, pages: Vec<Page>) -> Batch {
    Batch {
        pid: process.pid,
        to_node: process.to_node,
        pages,
        hot: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::pages::{HUGE_PAGE_BYTES, PAGE_BYTES};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_hottest_come_first_whoever_owns_them() {
        let page = |number: u64, hotness| HotPage {
            address: number * PAGE_BYTES,
            bytes: PAGE_BYTES,
            hotness,
        };
        let processes = [
            HotProcess {
                pid: 7,
                to_node: 0,
                pages: vec![page(1, 1), page(2, 4)],
            },
            HotProcess {
                pid: 3,
                to_node: 2,
                pages: vec![page(1, 5), page(9, 1)],
            },
        ];
        let order: Vec<(i32, u32, u64)> = batches(&processes, 1 << 20)
            .iter()
            .flat_map(|batch| {
                let of = |page: &Page| (batch.pid, batch.to_node, page.address / PAGE_BYTES);
                batch.pages.iter().map(of).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(order, [(7, 0, 2), (3, 2, 1), (7, 0, 1), (3, 2, 9)]);
    }

    proptest! {
        #[test]
        fn every_hot_page_is_in_one_batch_and_no_batch_is_colder_than_the_next(
            processes in prop::collection::vec(
                prop::collection::vec((1u32..200, any::<bool>()), 0..60), 0..6),
            batch_pages in 1u64..64,
        ) {
            let processes: Vec<HotProcess> = processes
                .into_iter()
                .enumerate()
                .map(|(pid, pages)| HotProcess {
                    pid: pid as i32,
                    to_node: 0,
                    pages: pages
                        .into_iter()
                        .enumerate()
                        .map(|(number, (hotness, huge))| HotPage {
                            address: number as u64 * HUGE_PAGE_BYTES,
                            bytes: if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES },
                            hotness,
                        })
                        .collect(),
                })
                .collect();
            let hotness: BTreeMap<(i32, u64), u32> = processes
                .iter()
                .flat_map(|one| one.pages.iter().map(|page| ((one.pid, page.address), page.hotness)))
                .collect();
            let batches = batches(&processes, batch_pages * PAGE_BYTES);
            let mut seen = BTreeSet::new();
            let mut last_level = u32::MAX;
            for batch in &batches {
                let bytes: u64 = batch.pages.iter().map(|page| page.bytes).sum();
                prop_assert!(bytes <= batch_pages * PAGE_BYTES || batch.pages.len() == 1);
                for page in &batch.pages {
                    let level = level(hotness[&(batch.pid, page.address)]);
                    prop_assert!(level <= last_level);
                    last_level = level;
                    prop_assert!(seen.insert((batch.pid, page.address)));
                }
            }
            prop_assert_eq!(seen.len(), hotness.len());
        }
    }
}
