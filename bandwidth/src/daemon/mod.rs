//! The daemon's loop: scan, estimate, allocate, enforce.
//!
//! ```text
//!  residence (thread) ──▶ users ─┐
//!  cpu.stat of each user ────────┼─▶ estimate ──▶ allocate ──▶ ledger ──▶ cpu.max
//!  counters of the device ───────┘       │
//!                                        └─ at fault for longer than `hold_ms`: its limits lifted
//! ```

pub(crate) mod bar;
pub(crate) mod calibration;
pub(crate) mod composite;
pub mod config;
pub mod counter;
pub(crate) mod counters;
mod device;
pub mod idle;
mod latency;
mod limits;
pub(crate) mod metrics;
mod notice;
mod paths;
pub mod residence;
pub(crate) mod sampling;
mod scan;
pub mod status;
mod tiering;
mod units;
mod user;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::enforce::EnforceError;
use crate::enforce::bulk::Bulk;
use crate::enforce::cgroup::{Cgroup, Hierarchy, Version};
use crate::enforce::ext::Ext;
use crate::enforce::ledger::{Ledger, Undone, Wait};
use crate::enforce::meter::{accounting_root, max_open};
use crate::enforce::quota::{Overrun, Turns};
use crate::estimate::{CounterSpec, Estimate, Estimator, Fault, Settings as EstimateSettings};
use crate::samples::Samples;
use config::{Config, Enforcement, Leg, UserUnit};
use counter::Counter;
pub use device::Device;
pub use latency::{Probe, ProbeError};
pub use notice::Notice;
use residence::{Found, Resident, is_below};
use scan::ScanState;
use tiering::Tiering;
pub use user::User;

/// A counter that stands still for this long while its users run has stopped.
const STOPPED_AFTER_MS: f64 = 1000.0;

/// The result of one pass.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// When the counters were read, in nanoseconds of the kernel's monotonic clock.
    pub counted_ns: u64,
    /// How long reading them took: what they say is of an instant within this time before.
    pub counting_ns: u64,
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
    let max_gib_s = config.devices.iter().map(|device| device.max_gib_s);
    CounterSpec {
        bits: 64,
        max_bytes_s: max_gib_s.fold(0.0, f64::max) * crate::curve::GIB,
        stopped_after_ms: STOPPED_AFTER_MS,
    }
}

/// Watches the users of devices and limits them.
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
    /// The legs of all devices, device after device.
    legs: Vec<Leg>,
    devices: Vec<Device>,
    /// The traffic of the kernel's memory tiering, where it is a user.
    tiering: Option<Tiering>,
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
    /// Reads many users' CPU times at once; or why each user's files are read.
    bulk: Result<Bulk, String>,
    scan_state: ScanState,
    next_id: u64,
    passes: u64,
    last_ns: Option<u64>,
    faults: Vec<Option<Fault>>,
}

impl Daemon {
    /// Takes over the ledger, so limits of an earlier daemon are removed first. The thresholds are
    /// those of the devices, in bytes a second.
    ///
    /// # Errors
    /// Another daemon is running, or the ledger is damaged.
    pub fn new(
        config: Config,
        thresholds: &[f64],
        hierarchy: Hierarchy,
    ) -> Result<(Self, Vec<Undone>), EnforceError> {
        let counter = counters::of(&config, counter_spec(&config));
        Self::with_counter(config, thresholds, hierarchy, counter)
    }

    /// With this counter instead of the configured ones.
    ///
    /// # Errors
    /// Another daemon is running, or the ledger is damaged.
    pub fn with_counter(
        config: Config,
        thresholds: &[f64],
        hierarchy: Hierarchy,
        counter: Box<dyn Counter>,
    ) -> Result<(Self, Vec<Undone>), EnforceError> {
        // Version 1 adds up CPU time in the cpuacct controller only.
        let adds_up =
            hierarchy.version == Version::V2 || hierarchy.root.join("cpuacct.usage").exists();
        if config.users == UserUnit::Unit && !adds_up {
            return Err(EnforceError::NoUnits(hierarchy.root));
        }
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
        let legs = config.legs();
        let dithers = ext.is_some() || !Turns::here().are_coarse();
        let devices = config.devices.iter().zip(thresholds).enumerate();
        let devices = devices.map(|(at, (device, &threshold))| {
            let first = legs.iter().take_while(|leg| leg.device < at).count();
            Device::new(
                device,
                threshold,
                first..first + device.nodes.len(),
                dithers,
            )
        });
        let mut daemon = Self {
            devices: devices.collect(),
            tiering: config.tiering.clone().map(Tiering::new),
            faults: vec![None; legs.len()],
            legs,
            counter,
            sampler,
            sampled: vec![false; config.nodes.len()],
            notices,
            estimator,
            ledger,
            ext,
            users: Vec::new(),
            turns: Turns::here(),
            accounting: accounting_root(),
            max_open: max_open(),
            bulk: Bulk::load(&hierarchy),
            scan_state: ScanState::default(),
            next_id: 0,
            passes: 0,
            last_ns: None,
            hierarchy,
            config,
        };
        daemon.open_totals();
        Ok((daemon, undone))
    }

    /// Whether the sched_ext scheduler enforces the limits.
    pub fn schedules(&self) -> bool {
        self.ext.is_some()
    }

    /// Whether a BPF program reads users' CPU times; or why their files are read.
    pub fn reads_at_once(&self) -> Result<(), &str> {
        self.bulk.as_ref().map(|_| ()).map_err(String::as_str)
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
            user.node_shares.clone_from(&resident.shares);
            user.shares = self.leg_shares(&user.cgroup.path, &resident.shares);
            user.resident_bytes = resident.bytes;
            self.annotate(&mut user, &mut notices);
            // An idle user's weight is read when it becomes active.
            if user.idle_state.is_none() {
                user.read_weight();
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

    /// The shares of a user's memory on each leg, times the part of its processors that are those of
    /// a path.
    fn leg_shares(&self, path: &Path, shares: &[f64]) -> Vec<f64> {
        let mut cpus: Option<Vec<u32>> = None;
        let mut part = |of: &[u32]| {
            if of.is_empty() {
                return 1.0;
            }
            let cpus = cpus.get_or_insert_with(|| paths::cpus_of(path));
            paths::part_of(cpus, of)
        };
        let share = |leg: &Leg| {
            let share = shares.get(leg.node_at).copied().unwrap_or(0.0);
            share * part(&self.config.devices[leg.device].cpus)
        };
        self.legs.iter().map(share).collect()
    }

    /// Reads what the annotations of a user's pod say.
    fn annotate(&self, user: &mut User, notices: &mut Vec<Notice>) {
        let path = &user.cgroup.path;
        let found = units::annotations(self.config.kubernetes.as_ref(), path);
        let found = found.and_then(|found| {
            let class = found.class.as_deref();
            let class = units::class_latency(&self.config, &self.hierarchy, path, class)?;
            Ok((found.weight, class))
        });
        match found {
            Ok((weight, class_ns)) => {
                (user.given_weight, user.class_ns, user.is_misannotated) =
                    (weight, class_ns, false);
            }
            // What was known of it stays.
            Err(why) => {
                if !std::mem::replace(&mut user.is_misannotated, true) {
                    notices.push(Notice::Annotation(why));
                }
            }
        }
    }

    fn new_user(&mut self, resident: &Resident) -> User {
        self.next_id += 1;
        User {
            id: self.next_id,
            cgroup: Cgroup::new(&resident.path, self.hierarchy.version),
            name: units::name_of(&self.hierarchy, &resident.path),
            node_shares: Vec::new(),
            shares: Vec::new(),
            legs: Vec::new(),
            resident_bytes: 0,
            weight: 1.0,
            given_weight: None,
            class_ns: None,
            is_misannotated: false,
            protected: is_below(&self.hierarchy, &resident.path, &self.config.protected),
            bandwidth: 0.0,
            charged_bytes: 0.0,
            cpu: 0.0,
            limit: None,
            bound_by: None,
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
            held_back_ns: 0,
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
        let counting_ns = monotonic_ns();
        let (groups, idle) = self.count(now_ns);
        pass.counted_ns = monotonic_ns();
        pass.counting_ns = pass.counted_ns - counting_ns;
        self.sample(interval_ms, &mut pass.notices);
        self.read_tiering(now_ns, interval_ms);
        let estimate = self.estimate(now_ns, interval_ns, &groups, &idle);
        pass.notices
            .extend(self.counter.notices().into_iter().map(Notice::Counter));
        pass.trusted = true;
        self.observe_devices(&estimate, &mut pass);
        self.report_faults(&estimate, &mut pass.notices);
        if interval_ms == 0.0 {
            return pass;
        }
        let (indices, decision) = self.decide(now_ns, interval_ms, &estimate, &mut pass);
        self.note_overruns(interval_ms, &indices);
        self.enforce(now_ns, &indices, &decision, &mut pass);
        pass
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
        let legs = self.legs.iter().zip(&estimate.groups);
        for ((leg, group), before) in legs.zip(&mut self.faults) {
            match (group.fault, &before) {
                (Some(fault), Some(old)) if fault == *old => (),
                (Some(fault), _) => notices.push(Notice::Fault(leg.node, fault)),
                (None, Some(_)) => notices.push(Notice::Recovered(leg.node)),
                (None, None) => (),
            }
            *before = group.fault;
        }
    }

    /// Restores all limits.
    pub fn finish(mut self) -> Vec<Undone> {
        self.ledger.undo()
    }
}
