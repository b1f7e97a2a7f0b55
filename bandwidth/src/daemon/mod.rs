//! The daemon's loop: scan, estimate, allocate, enforce.
//!
//! ```text
//!  residence (thread) ──▶ users ─┐
//!  cpu.stat of each user ────────┼─▶ estimate ──▶ allocate ──▶ ledger ──▶ cpu.max
//!  counters of the device ───────┘       │
//!                                        └─ at fault for longer than `hold_ms`: all limits lifted
//! ```

pub(crate) mod bar;
pub(crate) mod calibration;
pub(crate) mod composite;
pub mod config;
pub mod counter;
pub(crate) mod counters;
pub mod idle;
mod latency;
mod limits;
pub(crate) mod metrics;
mod notice;
pub mod residence;
pub(crate) mod sampling;
mod scan;
pub mod status;
mod user;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::allocate::latency_watch::LatencyWatch;
use crate::allocate::{Controller, Decision, Settings};
use crate::enforce::EnforceError;
use crate::enforce::cgroup::{Cgroup, Hierarchy};
use crate::enforce::ext::Ext;
use crate::enforce::ledger::{Ledger, Undone, Wait};
use crate::enforce::meter::{accounting_root, max_open};
use crate::enforce::quota::{Overrun, Turns};
use crate::estimate::{CounterSpec, Estimate, Estimator, Fault, Settings as EstimateSettings};
use crate::samples::Samples;
use config::{Config, Enforcement};
use counter::Counter;
pub use latency::{Probe, ProbeError};
pub use notice::Notice;
use residence::{Found, Resident, is_below};
use scan::ScanState;
pub use user::User;

/// A counter that stands still for this long while its users run has stopped.
const STOPPED_AFTER_MS: f64 = 1000.0;

/// The result of one pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// When the counters were read, in nanoseconds of the kernel's monotonic clock.
    pub counted_ns: u64,
    /// In bytes a second.
    pub total: f64,
    /// Whether the device's counters are valid.
    pub trusted: bool,
    /// Bandwidth for a weight of 1.
    pub level: f64,
    /// The integral term that corrects all limits in common.
    pub trim: f64,
    /// Limits that were written.
    pub writes: usize,
    /// Notices of this pass.
    pub notices: Vec<Notice>,
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The properties of the counters.
pub fn counter_spec(config: &Config) -> CounterSpec {
    CounterSpec {
        bits: 64,
        max_bytes_s: config.max_gib_s * crate::curve::GIB,
        stopped_after_ms: STOPPED_AFTER_MS,
    }
}

/// Watches the users of one device and limits them.
pub struct Daemon {
    config: Config,
    hierarchy: Hierarchy,
    counter: Box<dyn Counter>,
    /// Samples of accesses, where they are configured and available.
    sampler: Option<Box<dyn Samples>>,
    /// For each node: whether samples attributed its traffic.
    sampled: Vec<bool>,
    /// Notices for the next pass.
    notices: Vec<Notice>,
    estimator: Estimator,
    controller: Controller,
    /// Where latency determines the threshold.
    probe: Option<Probe>,
    ledger: Ledger,
    /// The sched_ext scheduler while the kernel uses it; quotas otherwise.
    ext: Option<Ext>,
    users: Vec<User>,
    /// How users with quotas take turns.
    turns: Turns,
    /// The cpuacct hierarchy of cgroup version 1, if it is separate.
    accounting: Option<PathBuf>,
    /// The number of users whose files stay open.
    max_open: usize,
    scan_state: ScanState,
    next_id: u64,
    passes: u64,
    last_ns: Option<u64>,
    faulty_since: Option<u64>,
    faults: Vec<Option<Fault>>,
}

impl Daemon {
    /// Takes over the ledger, so limits of an earlier daemon are removed first.
    ///
    /// # Errors
    /// Another daemon is running, or the ledger is damaged.
    pub fn new(
        config: Config,
        threshold: f64,
        hierarchy: Hierarchy,
    ) -> Result<(Self, Vec<Undone>), EnforceError> {
        let counter = counters::of(&config, counter_spec(&config));
        Self::with_counter(config, threshold, hierarchy, counter)
    }

    /// With this counter instead of the configured ones.
    ///
    /// # Errors
    /// Another daemon is running, or the ledger is damaged.
    pub fn with_counter(
        config: Config,
        threshold: f64,
        hierarchy: Hierarchy,
        counter: Box<dyn Counter>,
    ) -> Result<(Self, Vec<Undone>), EnforceError> {
        let (ledger, undone) = Ledger::open(&config.ledger(), Wait::Briefly)?;
        let ext = match config.enforce {
            Enforcement::Quota => None,
            Enforcement::SchedExt => Some(Ext::load(config.idle)?),
        };
        let mut notices = Vec::new();
        let sampler = sampling::sampler(&config, &hierarchy).unwrap_or_else(|why| {
            notices.push(Notice::NoSamples(why));
            None
        });
        let estimator = Estimator::new(EstimateSettings {
            half_life_ms: config.half_life_ms,
            counter_spec: counter_spec(&config),
            write_allocate: true,
            learn_half_life_ms: config.learn_half_life_ms,
        });
        let mut daemon = Self {
            counter,
            sampler,
            sampled: vec![false; config.nodes.len()],
            notices,
            estimator,
            controller: Controller::new(Settings {
                dithers: ext.is_some() || !Turns::here().are_coarse(),
                ..Settings::new(threshold)
            }),
            probe: None,
            ledger,
            ext,
            users: Vec::new(),
            turns: Turns::here(),
            accounting: accounting_root(),
            max_open: max_open(),
            scan_state: ScanState::default(),
            next_id: 0,
            passes: 0,
            last_ns: None,
            faulty_since: None,
            faults: vec![None; config.nodes.len()],
            hierarchy,
            config,
        };
        daemon.open_totals();
        Ok((daemon, undone))
    }

    /// Lets this probe determine the threshold from now on.
    pub fn follow(&mut self, probe: Probe) {
        self.probe = Some(probe);
    }

    /// The device's latency, where it is measured.
    pub fn latency(&self) -> Option<&LatencyWatch> {
        self.probe.as_ref().map(Probe::watch)
    }

    /// Whether the device answers too slowly for its curve or at the configured threshold, so that
    /// a lower one is in force.
    pub fn is_derated(&self) -> bool {
        let derated = self.latency().is_some_and(LatencyWatch::is_derated);
        derated && self.config.has_threshold()
    }

    /// In bytes a second.
    pub fn threshold(&self) -> f64 {
        self.controller.settings().threshold
    }

    /// Whether the sched_ext scheduler enforces the limits.
    pub fn schedules(&self) -> bool {
        self.ext.is_some()
    }

    /// The users of the device.
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Between two passes.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.config.interval_ms)
    }

    /// Replaces the users; a user that is gone gets its limit back.
    pub fn set_users(&mut self, found: &Found) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.settle();
        let before = std::mem::take(&mut self.users).into_iter();
        let mut before: HashMap<PathBuf, User> = before
            .map(|user| (user.cgroup.path.clone(), user))
            .collect();
        for resident in &found.residents {
            let known = before.remove(&resident.path);
            let mut user = known.unwrap_or_else(|| self.new_user(resident));
            user.shares.clone_from(&resident.shares);
            user.resident_bytes = resident.bytes;
            // An idle user's weight is read when it becomes active.
            if user.idle_state.is_none() {
                user.weight = user.cgroup.weight().unwrap_or(1.0);
            }
            if user.processes != resident.processes {
                // Cgroup version 1 may account for them elsewhere now.
                user.processes.clone_from(&resident.processes);
                user.meter = None;
            }
            if self.users.len() >= self.max_open {
                user.meter = None;
            }
            self.users.push(user);
        }
        for (path, user) in before {
            // A user that cannot be released is tried again with the next set of users.
            if self.still_sampled(&user) || !self.release(&path, &mut notices) {
                self.users.push(user);
            }
        }
        self.update_sampler();
        notices
    }

    fn new_user(&mut self, resident: &Resident) -> User {
        self.next_id += 1;
        User {
            id: self.next_id,
            cgroup: Cgroup::new(&resident.path, self.hierarchy.version),
            shares: Vec::new(),
            resident_bytes: 0,
            weight: 1.0,
            protected: is_below(&self.hierarchy, &resident.path, &self.config.protected),
            bandwidth: 0.0,
            charged_bytes: 0.0,
            cpu: 0.0,
            rate_error: 0.0,
            limit: None,
            overrun: Overrun::default(),
            usage: None,
            scanned_ns: 0,
            scans: 0,
            ran_ns: 0,
            idle_state: None,
            begun_cpu: None,
            meter: None,
            processes: Vec::new(),
            held_back: false,
            held_ns: None,
            sampled_ns: None,
            passes_held_back: 0,
        }
    }

    /// One pass, at this monotonic time.
    pub fn pass(&mut self, now_ns: u64) -> Pass {
        let mut pass = Pass {
            notices: std::mem::take(&mut self.notices),
            ..Pass::default()
        };
        let interval_ns = self.last_ns.map_or(0, |last| now_ns.saturating_sub(last));
        let interval_ms = interval_ns as f64 / 1e6;
        self.last_ns = Some(now_ns);
        self.check_scheduler(&mut pass.notices);
        self.scan(interval_ns, &mut pass.notices);
        let (groups, idle) = self.count(now_ns);
        pass.counted_ns = monotonic_ns();
        self.sample(interval_ms, &mut pass.notices);
        let estimate = self.estimate(now_ns, interval_ns, &groups, &idle);
        pass.notices
            .extend(self.counter.notices().into_iter().map(Notice::Counter));
        pass.total = estimate.total();
        pass.trusted = estimate.is_trusted();
        self.report_faults(&estimate, &mut pass.notices);
        if interval_ms == 0.0 {
            return pass;
        }
        if !pass.trusted {
            self.hold(now_ns, &mut pass);
            return pass;
        }
        self.faulty_since = None;
        self.follow_latency(interval_ms, &mut pass);
        let (indices, decision) = self.decide(interval_ms, &estimate);
        pass.level = decision.level;
        pass.trim = decision.trim;
        self.note_overruns(interval_ms, &indices);
        self.enforce(now_ns, &indices, &decision, &mut pass);
        pass
    }

    /// Lets the measured latency determine the threshold.
    fn follow_latency(&mut self, interval_ms: f64, pass: &mut Pass) {
        let was = self.is_derated();
        let Some(probe) = &mut self.probe else {
            return;
        };
        let threshold = probe.threshold(interval_ms, pass.total);
        self.controller.set_threshold(threshold);
        let is = self.is_derated();
        if was == is {
            return;
        }
        let notice = self.latency().filter(|_| is).map(|watch| Notice::Derated {
            latency_ns: watch.latency_ns().unwrap_or(0.0),
            expected_ns: watch.expected_ns().or(watch.max_ns()).unwrap_or(0.0),
            total: pass.total,
            threshold,
        });
        pass.notices.push(notice.unwrap_or(Notice::Fits));
    }

    fn check_scheduler(&mut self, notices: &mut Vec<Notice>) {
        if let Some(exit_record) = self.ext.as_ref().and_then(Ext::exit_record) {
            self.ext = None;
            for user in &mut self.users {
                user.limit = None;
            }
            notices.push(Notice::Ejected(exit_record));
        }
    }

    fn report_faults(&mut self, estimate: &Estimate, notices: &mut Vec<Notice>) {
        for (group, before) in estimate.groups.iter().zip(&mut self.faults) {
            match (group.fault, &before) {
                (Some(fault), Some(old)) if fault == *old => (),
                (Some(fault), _) => notices.push(Notice::Fault(group.group, fault)),
                (None, Some(_)) => notices.push(Notice::Recovered(group.group)),
                (None, None) => (),
            }
            *before = group.fault;
        }
    }

    /// Without valid counters, limits stay for a while and are then lifted.
    fn hold(&mut self, now_ns: u64, pass: &mut Pass) {
        let since = *self.faulty_since.get_or_insert(now_ns);
        let limited = self.users.iter().any(|user| user.limit.is_some());
        if !limited || now_ns.saturating_sub(since) < self.config.hold_ms * 1_000_000 {
            return;
        }
        self.lift(&mut pass.notices);
        pass.notices.push(Notice::Lifted);
    }

    /// The decision, and the users that its limits are for.
    fn decide(&mut self, interval_ms: f64, estimate: &Estimate) -> (Vec<usize>, Decision) {
        let (indices, loads) = self.loads();
        let rest = estimate.groups.iter().map(|group| group.unattributed).sum();
        (indices, self.controller.step(interval_ms, rest, &loads))
    }

    /// Restores all limits.
    pub fn finish(mut self) -> Vec<Undone> {
        self.ledger.undo()
    }
}
