//! While pages come home: which of them come before their turn, because they are hot. First what
//! was hot before the sleep, then, window after window, what is touched now and still away.

use std::collections::HashSet;

use crate::heat::{self, ProcessHeat};
use crate::hot_first::{self, HotProcess};
use crate::migrate::Batch;
use crate::pages::Pages;
use crate::sampler::Unavailable;
use crate::state::Entry;
use crate::watch::Watch;

/// A window that adds less than this part to what is known is the last one, but never the first:
/// programs may have run for a part of it only …
const WORTH_A_WINDOW: f64 = 0.02;
/// … and so is this one, because a program that reads everything would add for ever.
const MOST_WINDOWS: u32 = 3;
/// The same where it was known before the sleep what is hot: a window costs as much as half of
/// bringing the pages home, and finds only what changed.
const MOST_WINDOWS_MORE: u32 = 1;
/// Progress is told ten times a second: user space that touches nothing for so long is idle.
const IDLE_CALLS: u32 = 100;

/// Begins to watch, if the policy wants that.
pub type BeginWatch<'a> = Box<dyn FnOnce() -> Result<Option<Watch<'a>>, Unavailable> + 'a>;

/// What comes before its turn.
pub struct Forerun<'a> {
    pages: &'a dyn Pages,
    /// In the seed's order; each with the node that it goes to.
    order: &'a [Entry],
    batch_bytes: u64,
    /// Not called before what is known to be hot is home: to begin takes a while.
    begin_watch: Option<BeginWatch<'a>>,
    watch: Option<Watch<'a>>,
    /// Pages are given out once: each is asked for where it is before it moves, which costs.
    given: HashSet<(i32, u64)>,
    windows: u32,
    most_windows: u32,
    /// Calls since something was seen.
    idle_calls: u32,
    /// The last call saw something: a burst of records may not be over.
    in_burst: bool,
}

impl<'a> Forerun<'a> {
    pub fn new(
        pages: &'a dyn Pages,
        order: &'a [Entry],
        batch_bytes: u64,
        begin_watch: BeginWatch<'a>,
    ) -> Forerun<'a> {
        Forerun {
            pages,
            order,
            batch_bytes,
            begin_watch: Some(begin_watch),
            watch: None,
            most_windows: MOST_WINDOWS,
            given: HashSet::new(),
            windows: 0,
            idle_calls: 0,
            in_burst: false,
        }
    }

    /// The batches for hot pages that are present and were not given out before.
    fn batches(&mut self, heat: &[ProcessHeat]) -> Vec<Batch> {
        let mut processes = Vec::new();
        for entry in self.order {
            let Some(hot) = heat
                .iter()
                .find(|hot| (hot.pid, hot.start_ticks) == (entry.pid, entry.start_ticks))
            else {
                continue;
            };
            // It has ended, or this kernel cannot scan: it comes home in its turn, if at all.
            let Ok(runs) = self.pages.present(entry.pid) else {
                continue;
            };
            let mut pages = heat::present_pages(&hot.ranges, &runs);
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
    /// Nobody can watch; pages come home all the same.
    pub fn begin(&mut self, heat: &[ProcessHeat]) -> Result<Vec<Batch>, Unavailable> {
        let batches = self.batches(heat);
        if batches.is_empty() {
            self.watch()?;
        } else {
            self.most_windows = MOST_WINDOWS_MORE;
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
    /// Nobody can watch; told once.
    pub fn next(&mut self, waiting: usize) -> Result<Vec<Batch>, Unavailable> {
        if waiting == 0 {
            self.watch()?;
        }
        let Some(watch) = &mut self.watch else {
            return Ok(Vec::new());
        };
        let seen = watch.look();
        self.idle_calls = if seen { 0 } else { self.idle_calls + 1 };
        let window_ended = self.in_burst && !seen;
        self.in_burst = seen;
        self.windows += u32::from(window_ended);
        // What waits is hot already; and new heat is worth more the longer it was collected.
        let (mut batches, mut done) = (Vec::new(), self.idle_calls >= IDLE_CALLS);
        if window_ended && waiting == 0 {
            let heat = watch.heat();
            let known = self.given.len();
            batches = self.batches(&heat);
            let new = self.given.len() - known;
            let little = (new as f64) < self.given.len() as f64 * WORTH_A_WINDOW;
            done |= self.windows > 1 && little;
            done |= self.windows >= self.most_windows;
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
    use crate::fake::{FakePages, FakeSampler};
    use crate::heat::HotRange;
    use crate::pages::PAGE_BYTES;

    const BASE_PAGE: u64 = 0x100;

    fn entry(pid: i32) -> Entry {
        Entry {
            pid,
            start_ticks: 1,
            home_node: Some(0),
        }
    }

    fn hot(pid: i32, start_ticks: u64, page: u64, heat: u32) -> ProcessHeat {
        let start = (BASE_PAGE + page) * PAGE_BYTES;
        ProcessHeat {
            pid,
            start_ticks,
            ranges: vec![HotRange {
                start,
                end: start + PAGE_BYTES,
                heat,
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
        let mut forerun = Forerun::new(&pages, &order, 1 << 20, Box::new(|| Ok(None)));
        let heat = [
            hot(2, 1, 4, 3),
            hot(1, 9, 4, 3),
            hot(3, 1, 4, 3),
            hot(1, 1, 70, 3),
        ];
        assert_eq!(places(&forerun.batches(&heat)), [(2, 4)]);
    }

    #[test]
    fn each_page_is_given_out_once_and_later_windows_add_to_earlier_ones() {
        let pages = FakePages::new(&[(1, 10)]);
        let order = [entry(1)];
        let seen = |page, heat| hot(1, 1, page, heat).ranges[0];
        let sampler = FakeSampler::with_windows(&[(1, seen(2, 1)), (1, seen(5, 1))]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut forerun = Forerun::new(&pages, &order, 1 << 20, watch);
        assert!(forerun.begin(&[]).unwrap().is_empty());
        assert_eq!(places(&forerun.batches(&[hot(1, 1, 2, 1)])), [(1, 2)]);
        let mut later = Vec::new();
        for _ in 0..20 {
            later.extend(places(&forerun.next(0).unwrap()));
        }
        assert_eq!(later, [(1, 5)]);
    }

    #[test]
    fn watching_ends_when_windows_bring_nothing_new_or_too_much() {
        let pages = FakePages::new(&[(1, 100)]);
        let order = [entry(1)];
        let seen = |page| (1, hot(1, 1, page, 1).ranges[0]);
        let new: Vec<(i32, HotRange)> = (0..99).map(seen).collect();
        for (windows, most) in [(vec![seen(1); 5], 2), (new, MOST_WINDOWS)] {
            let sampler = FakeSampler::with_windows(&windows);
            let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
            let mut forerun = Forerun::new(&pages, &order, 1 << 20, watch);
            forerun.begin(&[]).unwrap();
            for _ in 0..2 * most {
                assert!(sampler.is_watching());
                forerun.next(0).unwrap();
            }
            assert!(!sampler.is_watching());
        }
        let sampler = FakeSampler::with_windows(&[]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut forerun = Forerun::new(&pages, &order, 1 << 20, watch);
        forerun.begin(&[]).unwrap();
        for _ in 0..IDLE_CALLS {
            assert!(sampler.is_watching());
            forerun.next(0).unwrap();
        }
        assert!(!sampler.is_watching());
    }

    #[test]
    fn what_was_hot_before_the_sleep_moves_before_anybody_is_watched() {
        let pages = FakePages::new(&[(1, 100)]);
        let order = [entry(1)];
        let sampler = FakeSampler::with_windows(&[(1, hot(1, 1, 7, 1).ranges[0]); 3]);
        let watch: BeginWatch = Box::new(|| Ok(Some(sampler.watch(&order))));
        let mut forerun = Forerun::new(&pages, &order, 1 << 20, watch);
        let known = forerun.begin(&[hot(1, 1, 2, 1)]).unwrap();
        assert_eq!(places(&known), [(1, 2)]);
        assert!(forerun.next(1).unwrap().is_empty());
        assert!(!sampler.is_watching(), "a batch still waits");
        assert!(forerun.next(0).unwrap().is_empty());
        assert!(sampler.is_watching());
        assert_eq!(places(&forerun.next(0).unwrap()), [(1, 7)]);
        assert!(!sampler.is_watching(), "one window is enough");
    }
}
