//! The daemon: look, estimate, allocate, limit, again and again.
//!
//! ```text
//!  residence (thread) ──▶ users ─┐
//!  cpu.stat of each user ────────┼─▶ estimate ──▶ allocate ──▶ ledger ──▶ cpu.max
//!  counters of the device ───────┘       │
//!                                        └─ at fault for longer than `hold_ms`: all limits lifted
//! ```

pub mod bar;
pub mod config;
pub mod counters;
mod latency;
mod look;
pub mod metrics;
mod news;
pub mod quiet;
pub mod residence;
pub mod sampling;
pub mod several;
pub mod status;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::allocate::{Controller, Decision, Settings};
use crate::enforce::EnforceError;
use crate::enforce::cgroup::{Cgroup, Hierarchy, Usage};
use crate::enforce::ext::Ext;
use crate::enforce::ledger::{Ledger, Undone, Wait};
use crate::enforce::meter::{Meter, accounting_root, most_open};
use crate::enforce::quota::{
    OPENING, Overrun, Quota, until_longer_ns, until_turn_ns, worth_writing,
};
use crate::estimate::{Estimate, Estimator, Fault, Nature, Settings as EstimateSettings};
use crate::samples::Samples;
use config::{Config, Means};
use counters::Counter;
pub use latency::Probe;
use look::{Rest, Watch};
pub use news::News;
use residence::{Found, Resident, is_below};

/// Standing still for this long while its users are at work, a counter is stopped.
const STOPPED_AFTER_MS: f64 = 1000.0;

/// A cgroup that uses the device.
pub struct User {
    pub id: u64,
    pub cgroup: Cgroup,
    /// Share of its memory on each node.
    pub shares: Vec<f64>,
    /// Bytes on the device.
    pub resident_bytes: u64,
    pub weight: f64,
    pub protected: bool,
    /// In bytes a second.
    pub bandwidth: f64,
    /// What it has been charged with since it is known.
    pub charged_bytes: f64,
    /// In CPUs.
    pub cpu: f64,
    /// In force, in CPUs.
    pub limit: Option<f64>,
    overrun: Overrun,
    usage: Option<Usage>,
    /// When that was, and how often it was looked at so far.
    looked_ns: u64,
    looks: u32,
    /// CPU time that the estimator knows of, in nanoseconds.
    ran_ns: u64,
    /// While it is quiet.
    rest: Option<Rest>,
    /// CPUs of a user that is not quiet any more, as of this pass.
    begun_cpu: Option<f64>,
    meter: Option<Meter>,
    /// As of when its files were opened.
    processes: Vec<i32>,
    held_back: bool,
    /// When it was counted last that its limit held it back.
    held_ns: Option<u64>,
    /// When something was sampled of it last.
    sampled_ns: Option<u64>,
    /// Passes before which its limit held it back, since it is known.
    pub passes_held_back: u64,
}

impl User {
    /// Whether its limit held it back between the last two passes.
    pub fn held_back(&self) -> bool {
        self.held_back
    }
}

/// What one pass found and did.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// When the counters were read, in nanoseconds of the kernel's monotonic clock.
    pub counted_ns: u64,
    /// In bytes a second.
    pub total: f64,
    pub trusted: bool,
    /// Bandwidth for a weight of 1.
    pub level: f64,
    pub trim: f64,
    /// Limits that were written.
    pub writes: usize,
    pub news: Vec<News>,
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What can be expected of the counters.
pub fn nature(config: &Config) -> Nature {
    Nature {
        bits: 64,
        most_bytes_s: config.most_gib_s * crate::curve::GIB,
        stopped_after_ms: STOPPED_AFTER_MS,
    }
}

/// Watches the users of one device and limits them.
pub struct Daemon {
    config: Config,
    hierarchy: Hierarchy,
    counter: Box<dyn Counter>,
    /// Samples of who accesses the device, where they were asked for and can be had.
    sampler: Option<Box<dyn Samples>>,
    /// Of each node, whether samples said whose its traffic is.
    sampled: Vec<bool>,
    /// What is to be told with the next pass.
    news: Vec<News>,
    estimator: Estimator,
    controller: Controller,
    /// Where latency decides on the threshold.
    probe: Option<Probe>,
    ledger: Ledger,
    /// Our scheduler, while the kernel uses it; quotas otherwise.
    ext: Option<Ext>,
    users: Vec<User>,
    /// Where version 1 accounts CPU time, if elsewhere.
    accounting: Option<PathBuf>,
    /// So many users' files stay open.
    most_open: usize,
    watch: Watch,
    next_id: u64,
    passes: u64,
    last_ns: Option<u64>,
    faulty_since: Option<u64>,
    faults: Vec<Option<Fault>>,
}

impl Daemon {
    /// Takes over the ledger, so what an earlier daemon left is undone first.
    ///
    /// # Errors
    /// Another daemon is running, or the ledger is damaged.
    pub fn new(
        config: Config,
        threshold: f64,
        hierarchy: Hierarchy,
    ) -> Result<(Self, Vec<Undone>), EnforceError> {
        let counter = counters::of(&config, nature(&config));
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
            Means::Quota => None,
            Means::SchedExt => Some(Ext::load(config.idle)?),
        };
        let mut news = Vec::new();
        let sampler = sampling::sampler(&config, &hierarchy).unwrap_or_else(|why| {
            news.push(News::NoSamples(why));
            None
        });
        let estimator = Estimator::new(EstimateSettings {
            half_life_ms: config.half_life_ms,
            nature: nature(&config),
            write_allocate: true,
            learn_half_life_ms: config.learn_half_life_ms,
        });
        let mut daemon = Self {
            counter,
            sampler,
            sampled: vec![false; config.nodes.len()],
            news,
            estimator,
            controller: Controller::new(Settings::new(threshold)),
            probe: None,
            ledger,
            ext,
            users: Vec::new(),
            accounting: accounting_root(),
            most_open: most_open(),
            watch: Watch::default(),
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

    /// From now on this probe finds the threshold.
    pub fn follow(&mut self, probe: Probe) {
        self.probe = Some(probe);
    }

    /// What an access takes, in nanoseconds, where that is measured.
    pub fn latency_ns(&self) -> Option<f64> {
        self.probe.as_ref().and_then(Probe::latency_ns)
    }

    /// In bytes a second.
    pub fn threshold(&self) -> f64 {
        self.controller.settings().threshold
    }

    /// Whether our scheduler holds the limits.
    pub fn schedules(&self) -> bool {
        self.ext.is_some()
    }

    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Between two passes.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.config.interval_ms)
    }

    /// Who uses the device from now on; whoever does not any more gets back what he had.
    pub fn set_users(&mut self, found: &Found) -> Vec<News> {
        let mut news = Vec::new();
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
            // Quiet users' is read when they begin.
            if user.rest.is_none() {
                user.weight = user.cgroup.weight().unwrap_or(1.0);
            }
            if user.processes != resident.processes {
                // Version 1 may account for them elsewhere now.
                user.processes.clone_from(&resident.processes);
                user.meter = None;
            }
            if self.users.len() >= self.most_open {
                user.meter = None;
            }
            self.users.push(user);
        }
        for (path, user) in before {
            // Who cannot be let go is tried again with the next look.
            if self.still_sampled(&user) || !self.let_go(&path, &mut news) {
                self.users.push(user);
            }
        }
        self.tell_sampler();
        news
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
            limit: None,
            overrun: Overrun::default(),
            usage: None,
            looked_ns: 0,
            looks: 0,
            ran_ns: 0,
            rest: None,
            begun_cpu: None,
            meter: None,
            processes: Vec::new(),
            held_back: false,
            held_ns: None,
            sampled_ns: None,
            passes_held_back: 0,
        }
    }

    /// Gives back what was changed; whether nothing is left of it.
    fn let_go(&mut self, path: &Path, news: &mut Vec<News>) -> bool {
        let forgotten = self.ext.as_mut().map_or(Ok(()), |ext| ext.forget(path));
        let mut failures: Vec<String> = forgotten.err().iter().map(ToString::to_string).collect();
        match self.ledger.restore(path) {
            Ok(Some(Undone::Failed(_, why))) => failures.push(why),
            Ok(Some(Undone::Gone(path))) => news.push(News::Gone(path)),
            Ok(Some(Undone::LeftAlone(path, _))) => news.push(News::Foreign(path)),
            Ok(_) => (),
            Err(error) => failures.push(error.to_string()),
        }
        let all = failures.is_empty();
        news.extend(
            failures
                .into_iter()
                .map(|why| News::Failed(path.to_owned(), why)),
        );
        all
    }

    /// One pass, at that time of a monotonic clock.
    pub fn pass(&mut self, now_ns: u64) -> Pass {
        let mut pass = Pass {
            news: std::mem::take(&mut self.news),
            ..Pass::default()
        };
        let interval_ns = self.last_ns.map_or(0, |last| now_ns.saturating_sub(last));
        let interval_ms = interval_ns as f64 / 1e6;
        self.last_ns = Some(now_ns);
        self.look_at_scheduler(&mut pass.news);
        self.look(interval_ns, &mut pass.news);
        let (groups, quiet) = self.count(now_ns);
        pass.counted_ns = monotonic_ns();
        self.sample(interval_ms, &mut pass.news);
        let estimate = self.estimate(now_ns, interval_ns, &groups, &quiet);
        pass.news
            .extend(self.counter.news().into_iter().map(News::Counter));
        pass.total = estimate.total();
        pass.trusted = estimate.is_trusted();
        self.tell_faults(&estimate, &mut pass.news);
        if interval_ms == 0.0 {
            return pass;
        }
        if !pass.trusted {
            self.hold(now_ns, &mut pass);
            return pass;
        }
        self.faulty_since = None;
        if let Some(probe) = &mut self.probe {
            let threshold = probe.threshold(interval_ms, pass.total);
            self.controller.set_threshold(threshold);
        }
        let (who, decision) = self.decide(interval_ms, &estimate);
        pass.level = decision.level;
        pass.trim = decision.trim;
        self.note_overruns(interval_ms, &who);
        self.enforce(now_ns, &who, &decision, &mut pass);
        pass
    }

    /// Our scheduler forgives nobody.
    fn note_overruns(&mut self, interval_ms: f64, who: &[usize]) {
        for &at in who.iter().filter(|_| self.ext.is_none()) {
            let user = &mut self.users[at];
            if let Some(limit) = user.limit {
                user.overrun.add(interval_ms, user.cpu, limit);
            }
        }
    }

    fn look_at_scheduler(&mut self, news: &mut Vec<News>) {
        if let Some(ended) = self.ext.as_ref().and_then(Ext::ended) {
            self.ext = None;
            for user in &mut self.users {
                user.limit = None;
            }
            news.push(News::Ejected(ended));
        }
    }

    fn tell_faults(&mut self, estimate: &Estimate, news: &mut Vec<News>) {
        for (group, before) in estimate.groups.iter().zip(&mut self.faults) {
            match (group.fault, &before) {
                (Some(fault), Some(old)) if fault == *old => (),
                (Some(fault), _) => news.push(News::Fault(group.group, fault)),
                (None, Some(_)) => news.push(News::Recovered(group.group)),
                (None, None) => (),
            }
            *before = group.fault;
        }
    }

    /// Without counters that can be believed, limits stay for a while, then nobody is limited.
    fn hold(&mut self, now_ns: u64, pass: &mut Pass) {
        let since = *self.faulty_since.get_or_insert(now_ns);
        let limited = self.users.iter().any(|user| user.limit.is_some());
        if !limited || now_ns.saturating_sub(since) < self.config.hold_ms * 1_000_000 {
            return;
        }
        self.lift(&mut pass.news);
        pass.news.push(News::Lifted);
    }

    fn lift(&mut self, news: &mut Vec<News>) {
        for at in 0..self.users.len() {
            let path = self.users[at].cgroup.path.clone();
            if self.let_go(&path, news) {
                self.users[at].limit = None;
            }
        }
    }

    /// Limits, and whose the first of them are.
    fn decide(&mut self, interval_ms: f64, estimate: &Estimate) -> (Vec<usize>, Decision) {
        let (who, loads) = self.loads();
        let rest = estimate.groups.iter().map(|group| group.unattributed).sum();
        (who, self.controller.step(interval_ms, rest, &loads))
    }

    fn enforce(&mut self, now_ns: u64, who: &[usize], decision: &Decision, pass: &mut Pass) {
        let (mut first, mut longer) = (Vec::new(), Vec::new());
        for (&at, limit) in who.iter().zip(&decision.limits) {
            let user = &self.users[at];
            if !worth_writing(user.limit, limit.cpu, user.overrun) {
                continue;
            }
            pass.writes += 1;
            if let Some(ext) = &mut self.ext {
                let path = &user.cgroup.path;
                let told = match limit.cpu {
                    Some(cpu) => ext.set(path, cpu),
                    None => ext.lift(path),
                };
                match told {
                    Ok(()) => self.users[at].limit = limit.cpu,
                    Err(error) => pass
                        .news
                        .push(News::Failed(path.clone(), error.to_string())),
                }
                continue;
            }
            match limit
                .cpu
                .map(|cpu| (Quota::of(cpu), user.limit.map(Quota::of)))
            {
                Some((quota, None)) => first.push((at, quota)),
                Some((quota, Some(old))) if quota.period_us > old.period_us => {
                    longer.push((at, old, quota));
                }
                Some((quota, Some(_))) => self.set(at, quota, &mut pass.news),
                None => {
                    let path = user.cgroup.path.clone();
                    if self.let_go(&path, &mut pass.news) {
                        self.users[at].limit = None;
                    }
                }
            }
        }
        self.limit_in_turn(now_ns, &first, &longer, &mut pass.news);
    }

    /// First limits are opened and written when it is their user's turn; limits whose periods become
    /// longer are written in turn, too. Takes 20 ms at most.
    fn limit_in_turn(
        &mut self,
        now_ns: u64,
        first: &[(usize, Quota)],
        longer: &[(usize, Quota, Quota)],
        news: &mut Vec<News>,
    ) {
        if first.is_empty() && longer.is_empty() {
            return;
        }
        let began = Instant::now();
        let id = |at: usize| self.users[at].id;
        let turn = |&(at, quota): &(usize, Quota)| {
            (until_turn_ns(now_ns, id(at), quota.period_us), at, quota)
        };
        let later = |&(at, old, quota): &(usize, Quota, Quota)| {
            (until_longer_ns(now_ns, id(at), old, quota), at, quota)
        };
        let turns = first.iter().map(turn);
        let mut turns: Vec<_> = turns.chain(longer.iter().map(later)).collect();
        turns.sort_by_key(|&(wait_ns, ..)| wait_ns);
        for (wait_ns, at, quota) in turns {
            let due = Duration::from_nanos(wait_ns);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if self.users[at].limit.is_none() {
                // Where it is refused, as below a limited parent of version 1, the limit comes anyway.
                let _ = self.ledger.set(&self.users[at].cgroup, OPENING.into());
            }
            self.set(at, quota, news);
        }
    }

    fn set(&mut self, at: usize, quota: Quota, news: &mut Vec<News>) {
        let user = &mut self.users[at];
        match self.ledger.set(&user.cgroup, quota.into()) {
            Ok(set) => {
                if set.foreign.is_some() {
                    news.push(News::Foreign(user.cgroup.path.clone()));
                }
                user.limit = set.max.cpu();
                user.overrun = Overrun::written(quota);
            }
            // Who is gone is noticed in the next pass.
            Err(error) if error.is_gone() => (),
            Err(error) => news.push(News::Failed(user.cgroup.path.clone(), error.to_string())),
        }
    }

    /// Gives everything back.
    pub fn finish(mut self) -> Vec<Undone> {
        self.ledger.undo()
    }
}
