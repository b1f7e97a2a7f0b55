//! The traffic of the kernel's memory tiering: a user of its own, limited through its own knobs.
//!
//! ```text
//!  /proc/vmstat        pgpromote_success, pgdemote_*           pages ─┐
//!  DAMON's schemes     migrate_hot, migrate_cold: sz_applied   bytes ─┴─▶ traffic of the device
//!
//!  allowed ─▶ numa_balancing_promote_rate_limit_MBps, quotas/bytes of the schemes   (in the ledger)
//! ```
//!
//! The kernel counts promotions at the node that gets the pages, so the traffic is divided among
//! devices by their used memory. Demotion by kswapd has no knob but one that turns it off, and then
//! the kernel swaps: it is accounted, and the others get what it leaves.
//!
//! Source: mm/vmstat.c, kernel/sched/fair.c (`numa_promotion_rate_limit`) and
//! Documentation/admin-guide/mm/damon/usage.rst of Linux.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::config::{Leg, TieringConfig};
use super::{Daemon, Notice, Pass, paths};
use crate::allocate::fair::{self, Demand};
use crate::curve::GIB;
use crate::enforce::EnforceError;
use crate::enforce::knob::Knob;
use crate::enforce::ledger::Ledger;
use crate::estimate::ewma::Ewma;
use crate::estimate::{Activity, TaskId, TaskSample};

/// Its number among users; theirs begin at 1.
pub(super) const TIERING: u64 = u64::MAX - 1;

const PROMOTE_LIMIT: &str = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
const MIB: f64 = 1048576.0;
/// Schemes are read, and knobs written, this often at most: the kernel updates both once a second.
const EVERY_NS: u64 = 1_000_000_000;
/// A smaller change of a limit is not written.
const DEAD_BAND: f64 = 0.05;
/// Half-life of the averages of traffic.
const HALF_LIFE_MS: f64 = 1000.0;
/// The kernel's traffic is scheduled as if a CPU moved this much in a second.
const BYTES_PER_CPU_SECOND: f64 = GIB;

/// One source of traffic.
#[derive(Clone, Debug)]
struct Source {
    /// The last count, in bytes.
    last: Option<u64>,
    /// In bytes a second.
    rate: Ewma,
}

impl Source {
    fn new() -> Self {
        Self {
            last: None,
            rate: Ewma::new(HALF_LIFE_MS),
        }
    }

    /// Bytes since the last count. A count that falls began anew.
    fn add(&mut self, interval_ms: f64, now: u64) -> f64 {
        let before = self.last.replace(now).unwrap_or(now);
        let bytes = now.saturating_sub(before) as f64;
        if interval_ms > 0.0 {
            self.rate.add(interval_ms, bytes / interval_ms * 1000.0);
        }
        bytes
    }

    fn rate(&self) -> f64 {
        self.rate.value().unwrap_or(0.0)
    }
}

/// A scheme of DAMON that moves pages.
#[derive(Clone, Debug)]
struct Scheme {
    folder: PathBuf,
    state: PathBuf,
}

/// Accounts for the kernel's migrations and limits them.
pub struct Tiering {
    config: TieringConfig,
    promoted: Source,
    demoted: Source,
    damon: Source,
    schemes: Vec<Scheme>,
    /// What the schemes applied, in bytes a second, until they are read again.
    damon_bytes_s: f64,
    /// Fraction of the used memory of all devices, node by node.
    shares: Vec<f64>,
    read_ns: Option<u64>,
    /// In force, in bytes a second.
    limit: Option<f64>,
    written_ns: Option<u64>,
    /// Knobs that were set.
    set: Vec<PathBuf>,
    /// Bytes moved so far, and between the last two passes.
    pub bytes: f64,
    now_bytes: f64,
    interval_ms: f64,
    /// The device that determined the limit.
    pub(super) bound_by: Option<usize>,
}

impl Tiering {
    pub fn new(config: TieringConfig) -> Self {
        Self {
            config,
            promoted: Source::new(),
            demoted: Source::new(),
            damon: Source::new(),
            schemes: Vec::new(),
            damon_bytes_s: 0.0,
            shares: Vec::new(),
            read_ns: None,
            limit: None,
            written_ns: None,
            set: Vec::new(),
            bytes: 0.0,
            now_bytes: 0.0,
            interval_ms: 0.0,
            bound_by: None,
        }
    }

    pub fn weight(&self) -> f64 {
        self.config.weight
    }

    /// In bytes a second.
    pub fn limit(&self) -> Option<f64> {
        self.limit
    }

    /// In bytes a second, averaged.
    pub fn bandwidth(&self) -> f64 {
        self.promoted.rate() + self.demoted.rate() + self.damon.rate()
    }

    /// Its traffic as CPUs, the unit of limits.
    pub(super) fn cpus(&self) -> f64 {
        self.bandwidth() / BYTES_PER_CPU_SECOND
    }

    pub(super) fn limit_cpus(&self) -> Option<f64> {
        self.limit.map(|limit| limit / BYTES_PER_CPU_SECOND)
    }

    /// Bytes moved between the last two passes on the node at this position.
    pub(super) fn bytes_on(&self, node_at: usize) -> f64 {
        self.now_bytes * self.shares.get(node_at).copied().unwrap_or(0.0)
    }

    /// Reads what the kernel moved since the last pass.
    pub(super) fn read(&mut self, now_ns: u64, interval_ms: f64, nodes: &[u32]) {
        self.interval_ms = interval_ms;
        let text = fs::read_to_string(self.config.root.join("proc/vmstat")).unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let sum = |of: &dyn Fn(&str) -> bool| {
            let words = text.lines().filter_map(|line| line.split_once(' '));
            let of = words.filter(|(name, _)| of(name));
            page * of
                .filter_map(|(_, count)| count.parse::<u64>().ok())
                .sum::<u64>()
        };
        let promoted = sum(&|name| name == "pgpromote_success");
        let demoted = sum(&|name| name.starts_with("pgdemote_"));
        self.now_bytes =
            self.promoted.add(interval_ms, promoted) + self.demoted.add(interval_ms, demoted);
        let since_ns = self.read_ns.map(|read| now_ns.saturating_sub(read));
        if since_ns.is_none_or(|since| since >= EVERY_NS) {
            self.read_ns = Some(now_ns);
            self.read_schemes(since_ns.unwrap_or(0) as f64 / 1e6);
            self.shares = used(&self.config.root, nodes);
        }
        self.now_bytes += self.damon_bytes_s * interval_ms / 1000.0;
        self.bytes += self.now_bytes;
    }

    fn read_schemes(&mut self, interval_ms: f64) {
        self.schemes = schemes(&self.config.root.join(KDAMONDS));
        let mut applied = 0;
        let mut refreshed: Vec<&Path> = Vec::new();
        for scheme in &self.schemes {
            if !refreshed.contains(&scheme.state.as_path()) {
                refreshed.push(&scheme.state);
                // A kdamond that has ended refuses; its statistics stay.
                let _ = fs::write(&scheme.state, "update_schemes_stats\n");
            }
            applied += number(&scheme.folder.join("stats/sz_applied")).unwrap_or(0);
        }
        let bytes = self.damon.add(interval_ms, applied);
        self.damon_bytes_s = match interval_ms > 0.0 {
            true => bytes / interval_ms * 1000.0,
            false => 0.0,
        };
    }

    /// Limits promotion and DAMON so that everything together moves at most this many CPUs' worth;
    /// `None`: they are as they were configured. Returns whether a knob was written.
    ///
    /// # Errors
    /// A knob cannot be written; the others are.
    pub(super) fn set(
        &mut self,
        ledger: &mut Ledger,
        now_ns: u64,
        cpus: Option<f64>,
    ) -> Result<bool, EnforceError> {
        let wanted = cpus.map(|cpus| cpus * BYTES_PER_CPU_SECOND);
        let wanted = wanted.filter(|_| self.config.limit);
        let is_same = match (self.limit, wanted) {
            (Some(old), Some(new)) => (new - old).abs() <= DEAD_BAND * old,
            (old, new) => old.is_none() && new.is_none(),
        };
        let lately = |written| now_ns.saturating_sub(written) < EVERY_NS;
        if is_same || wanted.is_some() && self.written_ns.is_some_and(lately) {
            return Ok(false);
        }
        let Some(limit) = wanted else {
            return self.lift(ledger).map(|()| true);
        };
        self.limit = Some(limit);
        self.written_ns = Some(now_ns);
        let (promotion, damon) = self.divide(limit);
        let mut result = Ok(true);
        let mut write = |set: &mut Vec<PathBuf>, knob: Knob, value: String| {
            if knob.value().is_ok_and(|now| now == value) {
                return;
            }
            match ledger.set_knob(&knob, &value) {
                Ok(_) if set.contains(&knob.path) => (),
                Ok(_) => set.push(knob.path),
                // A scheme that has gone.
                Err(error) if error.is_gone() => (),
                Err(error) => result = Err(error),
            }
        };
        let promote = Knob {
            path: self.config.root.join(PROMOTE_LIMIT),
            kdamond: None,
        };
        write(
            &mut self.set,
            promote,
            (promotion / MIB).max(1.0).round().to_string(),
        );
        let each = damon / self.schemes.len().max(1) as f64;
        for scheme in &self.schemes {
            let knob = |name: &str| Knob {
                path: scheme.folder.join("quotas").join(name),
                kdamond: Some(scheme.state.clone()),
            };
            let mut interval_ms = number(&knob("reset_interval_ms").path).unwrap_or(0);
            if interval_ms == 0 {
                interval_ms = 1000;
                write(&mut self.set, knob("reset_interval_ms"), "1000".to_owned());
            }
            let bytes = (each * interval_ms as f64 / 1000.0).max(MIB);
            write(&mut self.set, knob("bytes"), format!("{bytes:.0}"));
        }
        result
    }

    /// Promotion and DAMON share what demotion leaves.
    fn divide(&self, limit: f64) -> (f64, f64) {
        let left = (limit - self.demoted.rate()).max(0.0);
        if self.schemes.is_empty() {
            return (left, 0.0);
        }
        // What one does not use now goes to the other; it may grow by half until the next pass.
        let wants = |source: &Source| match 1.5 * source.rate() < left / 2.0 {
            true => (1.5 * source.rate()).max(left / 10.0),
            false => f64::INFINITY,
        };
        let demands = [wants(&self.promoted), wants(&self.damon)].map(|wanted| Demand {
            wanted,
            weight: 1.0,
        });
        let shares = fair::shares(left, &demands).shares;
        (shares[0], shares[1])
    }

    /// Restores all knobs.
    ///
    /// # Errors
    /// A knob cannot be restored; it is tried again.
    pub(super) fn lift(&mut self, ledger: &mut Ledger) -> Result<(), EnforceError> {
        let mut failed = None;
        self.set.retain(|path| match ledger.restore(path) {
            Ok(Some(crate::enforce::ledger::Undone::Failed(path, why))) => {
                failed = Some(EnforceError::Ledger { path, why });
                true
            }
            Ok(_) => false,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        match failed {
            Some(error) => Err(error),
            None => {
                (self.limit, self.written_ns) = (None, None);
                Ok(())
            }
        }
    }
}

impl Daemon {
    /// Reads what the kernel moved since the last pass.
    pub(super) fn read_tiering(&mut self, now_ns: u64, interval_ms: f64) {
        if let Some(tiering) = &mut self.tiering {
            tiering.read(now_ns, interval_ms, &self.config.nodes);
        }
    }

    /// The part of the kernel's traffic on a node that a leg carries: an interleaved node is
    /// divided evenly, and the kernel may run on any processor.
    fn tiering_part(&self, leg: &Leg) -> f64 {
        let cpus = |leg: &Leg| self.config.devices[leg.device].cpus.as_slice();
        let is_way = |other: &&Leg| other.node == leg.node && cpus(other).is_empty();
        match cpus(leg) {
            [] => 1.0 / self.legs.iter().filter(is_way).count().max(1) as f64,
            path => paths::part_of(&paths::online(), path),
        }
    }

    /// For each leg, the kernel's traffic since the last pass.
    pub(super) fn tiering_samples(&self) -> Vec<TaskSample> {
        let Some(tiering) = &self.tiering else {
            return Vec::new();
        };
        let sample = |(at, leg): (usize, &Leg)| TaskSample {
            id: TaskId {
                pid: TIERING as i32,
                start_ns: at as u64,
            },
            group: at as u32,
            activity: Activity::Known(tiering.bytes_on(leg.node_at) * self.tiering_part(leg)),
            cpu_ns: 0,
        };
        self.legs.iter().enumerate().map(sample).collect()
    }

    /// The kernel's traffic on these legs, in bytes a second, averaged.
    pub(super) fn tiering_bandwidth(&self, legs: Range<usize>) -> f64 {
        let Some(tiering) = &self.tiering else {
            return 0.0;
        };
        let on = |leg: &Leg| {
            tiering.shares.get(leg.node_at).copied().unwrap_or(0.0) * self.tiering_part(leg)
        };
        tiering.bandwidth() * self.legs[legs].iter().map(on).sum::<f64>()
    }

    /// Limits the kernel's traffic.
    pub(super) fn limit_tiering(&mut self, now_ns: u64, cpus: Option<f64>, pass: &mut Pass) {
        let Some(tiering) = &mut self.tiering else {
            return;
        };
        match tiering.set(&mut self.ledger, now_ns, cpus) {
            Ok(written) => pass.writes += usize::from(written),
            Err(error) => pass.notices.push(Notice::Tiering(error.to_string())),
        }
    }

    /// The traffic of the kernel's memory tiering, where it is a user.
    pub fn tiering(&self) -> Option<&Tiering> {
        self.tiering.as_ref()
    }
}

/// The schemes that migrate pages, of all kdamonds.
fn schemes(kdamonds: &Path) -> Vec<Scheme> {
    let mut found = Vec::new();
    for kdamond in folders(kdamonds) {
        for context in folders(&kdamond.join("contexts")) {
            for folder in folders(&context.join("schemes")) {
                let action = fs::read_to_string(folder.join("action")).unwrap_or_default();
                if action.trim().starts_with("migrate_") {
                    let state = kdamond.join("state");
                    found.push(Scheme { folder, state });
                }
            }
        }
    }
    found
}

/// The numbered folders in a folder, in order.
fn folders(path: &Path) -> Vec<PathBuf> {
    let count = number(
        &path.join(match path.file_name().and_then(|name| name.to_str()) {
            Some("kdamonds") => "nr_kdamonds",
            Some("contexts") => "nr_contexts",
            _ => "nr_schemes",
        }),
    );
    (0..count.unwrap_or(0))
        .map(|at| path.join(at.to_string()))
        .collect()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The used memory of each node as a fraction of that of all of them.
fn used(root: &Path, nodes: &[u32]) -> Vec<f64> {
    let used = |node: &u32| {
        let path = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.split_once("MemUsed:"));
        let words = line.and_then(|(_, rest)| rest.split_whitespace().next());
        words
            .and_then(|word| word.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    let used: Vec<f64> = nodes.iter().map(used).collect();
    let all: f64 = used.iter().sum();
    match all > 0.0 {
        true => used.iter().map(|used| used / all).collect(),
        // Nothing is known: evenly.
        false => vec![1.0 / nodes.len().max(1) as f64; nodes.len()],
    }
}

#[cfg(test)]
#[path = "tiering_tests.rs"]
mod tests;
