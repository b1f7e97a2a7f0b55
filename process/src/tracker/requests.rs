//! What the tracker does on a power event or on a request: persists, reports obstacles, answers.

use std::time::{Duration, Instant};

use crate::capture;
use crate::persist::{PersistError, Report, Then};
use crate::power::Event;
use crate::procfs;
use crate::ptrace::Pid;
use crate::restore::lazy::Filling;
use crate::store::file::now_ns;
use crate::sync::schedule::FIXED_COST;

use super::Tracker;
use super::control::{self, Answer, Request};
use super::status::Status;

/// Some obstacles are transient, such as descriptors in flight in a socket: the program continues
/// for a moment, and the persist is tried again.
const INSTANTS: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

impl Tracker {
    /// Reports now what cannot be persisted, not when power fails.
    pub(super) fn find_obstacles(&mut self) {
        match self.persister.probe(self.roots) {
            Ok(()) | Err(PersistError::Ended) => self.status.obstacles.clear(),
            Err(error) => self.obstacle(&error),
        }
        self.persister.prepare();
    }

    pub(super) fn obstacle(&mut self, error: &PersistError) {
        let text: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
        if text != self.status.obstacles {
            for line in &text {
                tracing::error!("cannot be persisted as it is now: {line}");
            }
            self.status.obstacles = text;
        }
    }

    pub(super) fn power_event(&mut self, event: &Event) -> Option<Report> {
        match event {
            Event::Unknown(why) => {
                tracing::warn!("power is not watched: {why}");
                self.status.power = format!("{}: no answer", self.options.power);
            }
            Event::Back => {
                tracing::info!("power is back");
                self.status.power = format!("{}: power is back", self.options.power);
                self.continue_program();
            }
            Event::Lost(why) => {
                tracing::warn!("power is about to fail: {why}");
                self.status.power = format!("{}: {why}", self.options.power);
                if self.persister.stopped {
                    return None;
                }
                match self.persist(self.options.then, false) {
                    Ok(report) if self.options.then == Then::Kill => return Some(report),
                    Ok(_) => {}
                    Err(error) => tracing::error!("not persisted: {error}"),
                }
            }
        }
        None
    }

    /// Persists now.
    pub(super) fn persist(&mut self, then: Then, rehearse: bool) -> Result<Report, PersistError> {
        // What is not in the program yet is in the store, but the two must not be mixed up.
        if self.filling.is_some() {
            self.filled()
                .map_err(|error| PersistError::NotFilled(error.to_string()))?;
        }
        let mut tries = 1;
        let report = loop {
            match self.persister.persist(self.roots, then, rehearse) {
                Ok(report) => break report,
                Err(error @ PersistError::Capture(capture::Error::Unsupported(_))) => {
                    if tries == INSTANTS {
                        self.obstacle(&error);
                        return Err(error);
                    }
                    tries += 1;
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(error) => return Err(error),
            }
        };
        tracing::info!(
            epoch = report.epoch,
            ms = report.total_ns as f64 / 1e6,
            bytes = report.stored_bytes,
            "persisted"
        );
        self.committed(&report);
        match then {
            Then::Stop => {
                // Seen standing once, it must have been continued when it does not stand.
                let until = Instant::now() + Duration::from_secs(1);
                while !stand(&self.roots()) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.persister.stopped = true;
                self.status.program = "stopped".to_owned();
            }
            Then::Kill => self.reap(),
            Then::Continue => {}
        }
        Ok(report)
    }

    pub(super) fn committed(&mut self, report: &Report) {
        self.status.sync.epochs += 1;
        self.status.obstacles.clear();
        self.status.last = Some(report.clone());
        self.status.last_s = Some(now_ns() as f64 / 1e9);
        self.status.sync.put_off_in_succession = 0;
        let now = Instant::now();
        self.last_epoch = now;
        self.next_epoch = now + self.options.epoch_interval;
        self.last_round = now;
        self.next_round = self.next_round.max(now);
    }

    /// Answers requests; returns a report if the program was killed on request.
    pub(super) fn serve(&mut self) -> Option<Report> {
        loop {
            let (request, stream) = self.server.as_ref()?.next()?;
            match request {
                Request::Status => {
                    let status = serde_json::to_value(self.status()).unwrap_or_default();
                    control::answer(&stream, &Answer::Ok(status));
                }
                Request::Persist { then } | Request::Rehearse { then } => {
                    let rehearse = matches!(request, Request::Rehearse { .. });
                    // When power fails, there is no time for it.
                    self.persister.prepare();
                    match self.persist(then, rehearse) {
                        Err(error) => control::answer(&stream, &Answer::Error(error.to_string())),
                        Ok(report) => {
                            let value = serde_json::to_value(&report).unwrap_or_default();
                            control::answer(&stream, &Answer::Ok(value));
                            if then == Then::Kill {
                                return Some(report);
                            }
                        }
                    }
                }
            }
        }
    }

    pub(super) fn status(&mut self) -> Status {
        let pids = self.roots();
        let budget = self.budget();
        let mirror = &self.persister.mirror;
        let bandwidth = mirror.rates().standing();
        let max_dirty = self.dirty.iter().copied().max().unwrap_or(0);
        let copying = max_dirty as f64 / bandwidth;
        Status {
            pids,
            resident_bytes: mirror.resident_bytes(),
            store_bytes: crate::store::medium::Medium::bytes(&**mirror.store.medium()),
            bandwidth_bytes_per_s: bandwidth,
            budget_bytes: budget,
            max_dirty_bytes: max_dirty,
            most_dirty_bytes: max_dirty, // until 0.3
            to_bring_in_bytes: self.filling.as_ref().map_or(0, Filling::left_bytes),
            persist_ms: (copying + FIXED_COST.as_secs_f64()) * 1e3,
            ..self.status.clone()
        }
    }
}

/// Whether these processes are stopped.
pub(super) fn stand(pids: &[Pid]) -> bool {
    let stands = |pid: &Pid| {
        procfs::stat(*pid, *pid).is_ok_and(|stat| matches!(stat.state, 'T' | 't' | 'Z'))
    };
    pids.iter().all(stands)
}
