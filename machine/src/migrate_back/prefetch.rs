//! While pages migrate back: which of them come before their turn, because they are hot. First what
//! was hot before the sleep, then, window after window, what is accessed now and is not in DRAM yet.

use std::collections::HashSet;

use crate::hotness::sampler::Unavailable;
use crate::hotness::watch::Watch;
use crate::hotness::{self, ProcessHotness};
use crate::migrate::Batch;
use crate::migrate_back::hot_first::{self, HotProcess};
use crate::system::pages::Pages;
use crate::system::state::Entry;

/// A window that adds less than this part to what is known is the last one, but never the first:
/// programs may have run for a part of it only …
const MIN_GAIN_OF_A_WINDOW: f64 = 0.02;
/// … and so is this one, because a program that reads everything would add for ever.
const MAX_WINDOWS: u32 = 3;
/// The same where it was known before the sleep what is hot: a window costs as much as half of
/// migrating the pages back, and finds only what changed.
const MAX_WINDOWS_IF_KNOWN: u32 = 1;
/// Progress is reported ten times a second: user space that touches nothing for so long is idle.
const IDLE_CALLS: u32 = 100;

/// Begins to watch, if the policy wants that.
pub type BeginWatch<'a> = Box<dyn FnOnce() -> Result<Option<Watch<'a>>, Unavailable> + 'a>;

/// What comes before its turn.
pub struct PrefetchPass<'a> {
    pages: &'a dyn Pages,
    /// In process order; each with the node that it goes to.
    order: &'a [Entry],
    batch_bytes: u64,
    /// Not called before what is known to be hot is in DRAM: to begin takes a while.
    begin_watch: Option<BeginWatch<'a>>,
    watch: Option<Watch<'a>>,
    /// Pages are given out once: each is asked for where it is before it moves, which costs.
    given: HashSet<(i32, u64)>,
    windows: u32,
    max_windows: u32,
    /// Calls since something was seen.
    idle_calls: u32,
    /// The last call saw something: a burst of records may not be over.
    in_burst: bool,
}

impl<'a> PrefetchPass<'a> {
    pub fn new(
        pages: &'a dyn Pages,
        order: &'a [Entry],
        batch_bytes: u64,
        begin_watch: BeginWatch<'a>,
    ) -> PrefetchPass<'a> {
        PrefetchPass {
            pages,
            order,
            batch_bytes,
            begin_watch: Some(begin_watch),
            watch: None,
            max_windows: MAX_WINDOWS,
            given: HashSet::new(),
            windows: 0,
            idle_calls: 0,
            in_burst: false,
        }
    }

    /// The batches for hot pages that are present and were not given out before.
    fn batches(&mut self, hotness: &[ProcessHotness]) -> Vec<Batch> {
        let mut processes = Vec::new();
        for entry in self.order {
            let Some(hot) = hotness
                .iter()
                .find(|hot| (hot.pid, hot.start_ticks) == (entry.pid, entry.start_ticks))
            else {
                continue;
            };
            // It has ended, or this kernel cannot scan: it migrates back in its turn, if at all.
            let Ok(runs) = self.pages.present(entry.pid) else {
                continue;
            };
            let mut pages = hotness::present_pages(&hot.ranges, &runs);
            pages.retain(|page| self.given.insert((entry.pid, page.address)));
            processes.push(HotProcess {
                pid: entry.pid,
                to_node: entry.home_node.unwrap_or_default(),
                pages,
            });
        }
        hot_first::batches(&processes, self.batch_bytes)
    }

    /// The same for what was hot before the sleep. Where that is nothing, watching begins at once.
    ///
    /// # Errors
    /// Pages cannot be watched; pages migrate back all the same.
    pub fn begin(&mut self, hotness: &[ProcessHotness]) -> Result<Vec<Batch>, Unavailable> {
        let batches = self.batches(hotness);
        if batches.is_empty() {
            self.watch()?;
        } else {
            self.max_windows = MAX_WINDOWS_IF_KNOWN;
        }
        Ok(batches)
    }

    fn watch(&mut self) -> Result<(), Unavailable> {
        if let Some(begin) = self.begin_watch.take() {
            self.watch = begin()?;
        }
        Ok(())
    }

    /// To be called again and again while pages move; `waiting` batches of earlier calls are not
    /// done. Returns what else comes before its turn.
    ///
    /// # Errors
    /// Pages cannot be watched; reported once.
    pub fn next(&mut self, waiting: usize) -> Result<Vec<Batch>, Unavailable> {
        if waiting == 0 {
            self.watch()?;
        }
        let Some(watch) = &mut self.watch else {
            return Ok(Vec::new());
        };
        let seen = watch.scan();
        self.idle_calls = if seen { 0 } else { self.idle_calls + 1 };
        let window_ended = self.in_burst && !seen;
        self.in_burst = seen;
        self.windows += u32::from(window_ended);
        // What waits is hot already; and new hotness is worth more the longer it was collected.
        let (mut batches, mut done) = (Vec::new(), self.idle_calls >= IDLE_CALLS);
        if window_ended && waiting == 0 {
            let hotness = watch.hotness();
            let known = self.given.len();
            batches = self.batches(&hotness);
            let new = self.given.len() - known;
            let little = (new as f64) < self.given.len() as f64 * MIN_GAIN_OF_A_WINDOW;
            done |= self.windows > 1 && little;
            done |= self.windows >= self.max_windows;
        }
        if done {
            self.watch = None;
        }
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotness::HotRange;
    use crate::system::pages::PAGE_BYTES;
    use crate::tests::fake::{FakePages, FakeSampler};

    const BASE_PAGE: u64 = 0x100;

    fn entry(pid: i32) -> Entry {
        Entry {
            pid,
            start_ticks: 1,
            home_node: Some(0),
        }
    }

    fn hot(pid: i32, start_ticks: u64, page: u64, hotness: u32) -> ProcessHotness {
        let start = (BASE_PAGE + page) * PAGE_BYTES;
        ProcessHotness {
            pid,
            start_ticks,
            ranges: vec![HotRange {
                start,
                end: start + PAGE_BYTES,
                hotness,
            }],
        }
    }

    fn places(batches: &[Batch]) -> Vec<(i32, u64)> {
        let place = |pid, address| (pid, address / PAGE_BYTES - BASE_PAGE);
        batches
            .iter()
            .flat_map(|batch| {
                let pages = batch.pages.iter();
                pages
                    .map(|page| place(batch.pid, page.address))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn vanished_pages_ended_processes_and_recycled_pids_are_passed_over() {
        let pages = FakePages::new(&[(1, 10), (2, 10)]);
        let order = [entry(1), entry(2), entry(3)];
        let mut prefetch = PrefetchPass::new(&pages, &order, 1 << 20, Box::new(|| Ok(None)));
        let hotness = [
            hot(2, 1, 4, 3),
            hot(1, 9, 4, 3),
            hot(3, 1, 4, 3),
            hot(1, 1, 70, 3),
        ];
        assert_eq!(places(&prefetch.batches(&hotness)), [(2, 4)]);
    }

    #[test]
    fn each_page_is_given_out_once_and_later_windows_add_to_earlier_ones() {
        let pages = FakePages::new(&[(1, 10)]);
        let order = [entry(1)];
        let seen = |page, hotness| hot(1, 1, page, hotness).ranges[0];
        let sampler = FakeSampler::with_windows(&[(1, seen(2, 1)), (1, seen(5, 1))]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut prefetch = PrefetchPass::new(&pages, &order, 1 << 20, watch);
        assert!(prefetch.begin(&[]).unwrap().is_empty());
        assert_eq!(places(&prefetch.batches(&[hot(1, 1, 2, 1)])), [(1, 2)]);
        let mut later = Vec::new();
        for _ in 0..20 {
            later.extend(places(&prefetch.next(0).unwrap()));
        }
        assert_eq!(later, [(1, 5)]);
    }

    #[test]
    fn watching_ends_when_windows_bring_nothing_new_or_too_much() {
        let pages = FakePages::new(&[(1, 100)]);
        let order = [entry(1)];
        let seen = |page| (1, hot(1, 1, page, 1).ranges[0]);
        let new: Vec<(i32, HotRange)> = (0..99).map(seen).collect();
        for (windows, most) in [(vec![seen(1); 5], 2), (new, MAX_WINDOWS)] {
            let sampler = FakeSampler::with_windows(&windows);
            let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
            let mut prefetch = PrefetchPass::new(&pages, &order, 1 << 20, watch);
            prefetch.begin(&[]).unwrap();
            for _ in 0..2 * most {
                assert!(sampler.is_watching());
                prefetch.next(0).unwrap();
            }
            assert!(!sampler.is_watching());
        }
        let sampler = FakeSampler::with_windows(&[]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut prefetch = PrefetchPass::new(&pages, &order, 1 << 20, watch);
        prefetch.begin(&[]).unwrap();
        for _ in 0..IDLE_CALLS {
            assert!(sampler.is_watching());
            prefetch.next(0).unwrap();
        }
        assert!(!sampler.is_watching());
    }

    #[test]
    fn what_was_hot_before_the_sleep_moves_before_anybody_is_watched() {
        let pages = FakePages::new(&[(1, 100)]);
        let order = [entry(1)];
        let sampler = FakeSampler::with_windows(&[(1, hot(1, 1, 7, 1).ranges[0]); 3]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut prefetch = PrefetchPass::new(&pages, &order, 1 << 20, watch);
        let known = prefetch.begin(&[hot(1, 1, 2, 1)]).unwrap();
        assert_eq!(places(&known), [(1, 2)]);
        assert!(prefetch.next(1).unwrap().is_empty());
        assert!(!sampler.is_watching(), "a batch still waits");
        assert!(prefetch.next(0).unwrap().is_empty());
        assert!(sampler.is_watching());
        assert_eq!(places(&prefetch.next(0).unwrap()), [(1, 7)]);
        assert!(!sampler.is_watching(), "one window is enough");
    }
}
