//! Work of the tracker while the program runs: rounds of the background sync, space in the store,
//! and epochs.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::persist::{Background, PersistError};
use crate::procfs;
use crate::store::PAGE_BYTES;
use crate::sync::schedule::{converges, next_round, pause_after, room};
use crate::sync::{Copying, Part, Share, SyncError, throttle};
use crate::track::Program;

use super::Tracker;

/// How often space is reserved in the store for a program that grows.
const ROOM_INTERVAL: Duration = Duration::from_millis(500);
/// Time until the next try where there was none.
const ROOM_RETRY: Duration = Duration::from_secs(30);
/// Space is reserved in steps of this size: a power loss waits for at most one of them.
const ROOM_STEP: u64 = 32 << 20;
/// Rounds that the reported maximum covers.
const REMEMBERED_ROUNDS: usize = 100;

/// Remembers a value of the last round, and forgets that of the oldest.
fn push<T>(values: &mut VecDeque<T>, value: T) {
    if values.len() == REMEMBERED_ROUNDS {
        values.pop_front();
    }
    values.push_back(value);
}

impl Tracker {
    /// One round of background sync, while the program runs.
    pub(super) fn round(&mut self) {
        self.hurried_round(false);
    }

    /// The same; `hurry`: by all processors.
    fn hurried_round(&mut self, hurry: bool) {
        // Of the time in which the program ran.
        let stood = std::mem::take(&mut self.stood_in_round);
        let elapsed = self.last_round.elapsed().saturating_sub(stood);
        self.last_round = Instant::now();
        self.take_reports();
        let scanned = self.persister.mirror.scan(Program::Runs);
        let written = scanned.written_pages * PAGE_BYTES;
        if self.persister.mirror.lacks_protection() {
            // New memory, another program was executed, or a child was forked.
            if let Err(error) = self.persister.take_in(self.roots) {
                tracing::debug!("{error}");
            }
        }
        let budget = self.budget();
        let dirty = self.persister.mirror.dirty_bytes();
        self.remember(dirty, budget, hurry);
        if budget.is_none_or(|budget| dirty <= budget) {
            self.make_room();
        }
        let known = self.persister.mirror.stored_bytes();
        let (mut limit, mut stored) = (Duration::MAX, 0);
        if let Some(budget) = budget
            && self.options.throttle != Share::NONE
        {
            limit = throttle::SAVED;
            let beside = self.persister.mirror.rates().beside();
            let exceeds = |dirty| throttle::exceeds(budget, dirty, written, elapsed, beside);
            while exceeds(self.persister.mirror.dirty_bytes()) {
                match self.hold_back() {
                    0 => break,
                    pages => stored += pages,
                }
            }
        }
        let alone = dirty > 0 && self.is_alone();
        let part = Copying::Beside(Part { limit, alone });
        match self.persister.mirror.copy_dirty(&self.urgent, part) {
            Ok(copied) => {
                stored += copied.stored_pages;
                tracing::trace!(
                    dirty,
                    written,
                    stored,
                    scan_ms = scanned.scan.as_secs_f64() * 1e3,
                    copy_ms = copied.copy.as_secs_f64() * 1e3,
                    round_ms = self.last_round.elapsed().as_secs_f64() * 1e3,
                    "round"
                );
            }
            Err(SyncError::Store(error)) => {
                let text = vec![error.to_string()];
                if text != self.status.obstacles {
                    tracing::error!("{error}");
                    self.status.obstacles = text;
                }
            }
            Err(error) => tracing::debug!("{error}"),
        }
        // What the store never had has a place of its own there.
        let new = self.persister.mirror.stored_bytes().saturating_sub(known);
        let rewritten = (stored * PAGE_BYTES).saturating_sub(new);
        push(&mut self.rewritten, rewritten);
        self.status.sync.rounds += 1;
        let expected = self.expected(written, elapsed);
        let wait = next_round(budget, expected, elapsed, self.options.epoch_interval);
        // A round of limited length goes on at once, as long as it gets anywhere.
        let goes_on =
            stored > 0 && limit != Duration::MAX && self.persister.mirror.dirty_bytes() > 0;
        self.next_round = Instant::now() + if goes_on { Duration::ZERO } else { wait };
    }

    /// Bytes that may be written in such a time: a program that may be stopped for its budget is expected to write as
    /// fast as at most of late, any other one as fast as now.
    fn expected(&mut self, written: u64, elapsed: Duration) -> u64 {
        if self.options.throttle == Share::NONE {
            return written;
        }
        let seconds = elapsed.as_secs_f64().max(1e-3);
        push(&mut self.paces, written as f64 / seconds);
        let max = self.paces.iter().copied().fold(0.0, f64::max);
        (max * seconds) as u64
    }

    /// Stops the program to copy, for as long as it may be: it writes faster than the store takes it. Returns how
    /// many pages that stored.
    fn hold_back(&mut self) -> u64 {
        let Some(limit) = self.throttle.allowance(self.started.elapsed()) else {
            return 0;
        };
        if self.urgent.load(Ordering::Acquire) {
            return 0;
        }
        let held = self
            .persister
            .copy_standing(self.roots, limit, &self.urgent);
        let (stood, stored) = held.unwrap_or_else(|error| {
            tracing::debug!("it cannot be stopped for its budget: {error}");
            (Duration::ZERO, 0)
        });
        self.throttle.stopped(stood);
        self.stood_in_round += stood;
        self.status.sync.throttled_ms = self.throttle.stood().as_secs_f64() * 1e3;
        stored
    }

    /// Whether the program is a single process, as far as that is cheap to know: each thread has a list of children.
    fn is_alone(&self) -> bool {
        const THREADS_MAX: usize = 16;
        let is_small = |pid| procfs::threads(pid).is_ok_and(|all| all.len() <= THREADS_MAX);
        let is_childless =
            |pid| procfs::children_once(pid).is_ok_and(|(children, _)| children.is_empty());
        matches!(self.roots()[..], [pid] if is_small(pid) && is_childless(pid))
    }

    pub(super) fn budget(&self) -> Option<u64> {
        self.options
            .budget
            .bytes(self.persister.mirror.rates().standing())
    }

    fn remember(&mut self, dirty: u64, budget: Option<u64>, hurry: bool) {
        push(&mut self.dirty, dirty);
        let over = budget.is_some_and(|budget| dirty > budget);
        self.status.sync.rounds_over_budget += u64::from(over);
        self.persister.mirror.hurry(over || hurry);
    }

    /// Takes the reports of files that the program has written and closed.
    pub(super) fn take_reports(&mut self) {
        let program = self.persister.mirror.processes();
        self.persister.written.take(&program);
    }

    /// Reserves blocks for what a persist would write, one step at a time: neither a power loss nor a round waits
    /// for more.
    pub(super) fn make_room(&mut self) {
        let now = Instant::now();
        self.next_room = now + ROOM_INTERVAL;
        let max_rewritten = self.rewritten.iter().copied().max().unwrap_or(0);
        let private_bytes = self.persister.mirror.private_bytes();
        self.persister.expect(private_bytes);
        let mirror = &mut self.persister.mirror;
        let wanted = room(private_bytes, mirror.stored_bytes(), max_rewritten);
        let free = mirror.store.engine().free_bytes();
        if free >= wanted || self.urgent.load(Ordering::Acquire) {
            return;
        }
        match mirror.store.reserve(wanted.min(free + ROOM_STEP)) {
            Ok(()) => self.next_room = now,
            Err(error) => {
                tracing::debug!("{error}");
                self.next_room = now + ROOM_RETRY;
            }
        }
    }

    /// How long an epoch may stop the program to copy. One that is held back for its budget has no more than that
    /// dirty, and an epoch gets the time for it.
    fn epoch_pause(&self) -> Duration {
        let options = &self.options;
        let since_last = self.last_epoch.elapsed();
        let pause = pause_after(since_last, options.epoch_interval, options.pause);
        let budget = match options.throttle {
            Share::NONE => None,
            share => self.budget().map(|bytes| {
                let pages = bytes / PAGE_BYTES;
                let time = self.persister.mirror.rates().time(pages, 0);
                time.min(share.of(since_last))
            }),
        };
        pause.max(budget.unwrap_or_default())
    }

    /// A background epoch: rounds until little is dirty, then a short pause.
    pub(super) fn epoch(&mut self) {
        let pause = self.epoch_pause();
        let (mut before, mut rounds) = (Duration::MAX, 0);
        loop {
            // One processor was not enough.
            self.hurried_round(rounds > 0);
            if self.urgent.load(Ordering::Acquire) {
                return;
            }
            self.persister.mirror.scan(Program::Runs);
            let left = self.persister.mirror.copy_time();
            rounds += 1;
            if left <= pause / 2 || !converges(rounds, before, left) {
                break;
            }
            before = left;
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
