//! Work of the tracker while the program runs: rounds of the background sync, space in the store,
//! and epochs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::persist::{Background, PersistError};
use crate::sync::SyncError;
use crate::sync::schedule::{next_round, pause_after, room};
use crate::track::Program;

use super::Tracker;

/// How often space is reserved in the store for a program that grows.
const ROOM_INTERVAL: Duration = Duration::from_millis(500);
/// Time until the next try where there was none.
const ROOM_RETRY: Duration = Duration::from_secs(30);
/// Space is reserved in steps of this size: a power loss waits for at most one of them.
const ROOM_STEP: u64 = 32 << 20;
/// Consecutive rounds of background sync before an epoch is postponed.
const TRIES: u32 = 4;
/// Rounds that the reported maximum covers.
const REMEMBERED_ROUNDS: usize = 100;

impl Tracker {
    /// One round of background sync, while the program runs.
    pub(super) fn round(&mut self) {
        let elapsed = self.last_round.elapsed();
        self.last_round = Instant::now();
        self.take_reports();
        let scanned = self.persister.mirror.scan(Program::Runs);
        let written = scanned.written_pages * crate::store::PAGE_BYTES;
        if self.persister.mirror.lacks_protection() {
            // New memory, another program was executed, or a child was forked.
            if let Err(error) = self.persister.take_in(self.roots) {
                tracing::debug!("{error}");
            }
        }
        let budget = self.budget();
        let dirty = self.persister.mirror.dirty_bytes();
        self.remember(dirty, budget);
        self.make_room();
        match self.persister.mirror.copy_dirty(&self.urgent, false) {
            Ok(_) => {}
            Err(SyncError::Store(error)) => {
                let text = vec![error.to_string()];
                if text != self.status.obstacles {
                    tracing::error!("{error}");
                    self.status.obstacles = text;
                }
            }
            Err(error) => tracing::debug!("{error}"),
        }
        self.status.sync.rounds += 1;
        let wait = next_round(budget, written, elapsed, self.options.epoch_interval);
        self.next_round = Instant::now() + wait;
    }

    pub(super) fn budget(&self) -> Option<u64> {
        self.options.budget.bytes(self.persister.mirror.bandwidth())
    }

    fn remember(&mut self, dirty: u64, budget: Option<u64>) {
        if self.dirty.len() == REMEMBERED_ROUNDS {
            self.dirty.pop_front();
        }
        self.dirty.push_back(dirty);
        let over = budget.is_some_and(|budget| dirty > budget);
        self.status.sync.rounds_over_budget += u64::from(over);
        self.persister.mirror.hurry(over);
    }

    /// Takes the reports of files that the program has written and closed.
    pub(super) fn take_reports(&mut self) {
        let program = self.persister.mirror.processes();
        self.persister.written.take(&program);
    }

    /// Reserves blocks for what a persist would write.
    pub(super) fn make_room(&mut self) {
        self.next_room = Instant::now() + ROOM_INTERVAL;
        let max_dirty = self.dirty.iter().copied().max().unwrap_or(0);
        let private_bytes = self.persister.mirror.private_bytes();
        self.persister.expect(private_bytes);
        let mirror = &mut self.persister.mirror;
        let wanted = room(private_bytes, mirror.stored_bytes(), max_dirty);
        let mut free = mirror.store.engine().free_bytes();
        while free < wanted && !self.urgent.load(Ordering::Acquire) {
            if let Err(error) = mirror.store.reserve(wanted.min(free + ROOM_STEP)) {
                tracing::debug!("{error}");
                self.next_room = Instant::now() + ROOM_RETRY;
                break;
            }
            free = mirror.store.engine().free_bytes();
        }
    }

    /// A background epoch: rounds until little is dirty, then a short pause.
    pub(super) fn epoch(&mut self) {
        let options = &self.options;
        let since_last = self.last_epoch.elapsed();
        let pause = pause_after(since_last, options.epoch_interval, options.pause);
        for _ in 0..TRIES {
            self.round();
            if self.urgent.load(Ordering::Acquire) {
                return;
            }
            self.persister.mirror.scan(Program::Runs);
            if self.persister.mirror.copy_time() <= pause / 2 {
                break;
            }
        }
        self.persister.prepare();
        match self.persister.background(self.roots, pause) {
            Ok(Background::Committed(report)) => {
                let pause = report.pause_ns as f64 / 1e6;
                self.status.sync.longest_pause_ms = self.status.sync.longest_pause_ms.max(pause);
                tracing::debug!(epoch = report.epoch, pause_ms = pause, "background epoch");
                self.committed(&report);
            }
            Ok(Background::TooMuch(bytes)) => {
                let sync = &mut self.status.sync;
                sync.epochs_put_off += 1;
                sync.put_off_in_succession += 1;
                sync.put_off_bytes = bytes;
                // Again after twice as many.
                if sync.put_off_in_succession.is_power_of_two() && sync.put_off_in_succession >= 4 {
                    tracing::warn!(
                        "the program writes faster than the store: {bytes} bytes are dirty when it is stopped, too \
                         many for {} ms; the last {} epochs were postponed, and the next may take longer",
                        pause.as_millis(),
                        sync.put_off_in_succession,
                    );
                }
                self.next_epoch = Instant::now() + self.options.epoch_interval;
            }
            Err(PersistError::Ended) => self.reap(),
            Err(error) => {
                self.reap();
                if !self.ended() {
                    self.obstacle(&error);
                }
                self.next_epoch = Instant::now() + self.options.epoch_interval;
            }
        }
    }
}
