//! Samples in the daemon: attribution by samples, and users that are known from samples only.

use std::path::Path;

use super::config::{Config, RING_OFFSET, SamplesKind, UserUnit};
use super::residence::Resident;
use super::{Daemon, Notice, User};
use crate::enforce::cgroup::Hierarchy;
use crate::estimate::{Activity, TaskId, TaskSample};
use crate::line_samples::{self, LineSampler};
use crate::perf::sampler::{Sampler, Wanted};
use crate::resctrl;
use crate::resctrl::groups::Groups;
use crate::samples::shares::Run;
use crate::samples::{Samples, UserRef};

/// A cgroup with processes that was sampled within this time stays a user, even if no memory of it
/// is found on the device: memory is scanned less often.
const SAMPLED_LATELY_NS: u64 = 3_000_000_000;

/// The configured samples.
///
/// # Errors
/// Why they cannot be opened.
pub fn sampler(config: &Config, hierarchy: &Hierarchy) -> Result<Option<Box<dyn Samples>>, String> {
    let Some(samples) = &config.samples else {
        return Ok(None);
    };
    if samples.kind == Some(SamplesKind::Resctrl) {
        let root = samples.path.as_deref().unwrap_or(Path::new(resctrl::ROOT));
        let groups = Groups::open(root, config.nodes.len(), Box::new(resctrl::Linux))?;
        return Ok(Some(Box::new(groups)));
    }
    if let Some(device) = device(config, hierarchy) {
        return device.map(|device| Some(Box::new(device) as Box<dyn Samples>));
    }
    let wanted = Wanted {
        kind: samples.kind.and_then(|kind| kind.perf()),
        events: samples.events.clone(),
        period: samples.period,
        units: config.users == UserUnit::Unit,
    };
    let sampler = Sampler::open(&wanted, &config.nodes, hierarchy.clone());
    let sampler = sampler.map_err(|error| error.to_string())?;
    Ok(Some(Box::new(sampler)))
}

/// The samples of the device itself, if they are configured.
pub fn device(config: &Config, hierarchy: &Hierarchy) -> Option<Result<LineSampler, String>> {
    let samples = config.samples.as_ref()?;
    if samples.kind != Some(SamplesKind::Device) {
        return None;
    }
    let wanted = line_samples::Wanted {
        path: samples.path.as_deref()?,
        offset: samples.offset.unwrap_or(RING_OFFSET),
        nodes: &config.nodes,
        cgroups: &config.cgroups,
        hierarchy: hierarchy.clone(),
    };
    Some(LineSampler::open(wanted).map_err(|error| error.to_string()))
}

/// A user's activity on a leg according to samples of the node; `part`: of its traffic there.
pub(super) fn activity(
    sampler: Option<&dyn Samples>,
    user: u64,
    node: usize,
    cpu_s: f64,
    part: f64,
) -> Option<Activity> {
    let shares = sampler?.shares();
    let weight = part * shares.weight(user, node, cpu_s)?;
    Some(match shares.are_of_all() {
        true => Activity::Moved(weight),
        false => Activity::Sampled(weight),
    })
}

impl Daemon {
    /// Reads the samples of the last interval. A new cgroup becomes a user and is charged from its
    /// first sample on; its CPU time is not known yet.
    fn collect(&mut self, interval_ms: f64) {
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        let newcomers = sampler.collect(interval_ms);
        if newcomers.is_empty() {
            return;
        }
        for path in newcomers {
            let resident = Resident {
                path,
                shares: vec![0.0; self.config.nodes.len()],
                bytes: 0,
                processes: Vec::new(),
            };
            let mut user = self.new_user(&resident);
            user.shares = vec![0.0; self.legs.len()];
            user.node_shares = resident.shares;
            user.read_weight();
            user.sampled_ns = self.last_ns;
            self.scan_state.moved_ns.push(0);
            self.scan_state.roster.push(None, user.id, &user.shares);
            self.users.push(user);
        }
        self.update_sampler();
    }

    /// Passes the users to the sampler.
    pub(super) fn update_sampler(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            let users: Vec<UserRef> = self.users.iter().map(UserRef::from).collect();
            sampler.set_users(&users);
        }
    }

    /// Samples of accesses that were lost so far, where accesses are sampled.
    pub fn samples_lost(&self) -> Option<u64> {
        self.sampler.as_ref().map(|sampler| sampler.lost())
    }

    /// Whether a cgroup without known memory on the device uses it.
    pub(super) fn still_sampled(&self, user: &User) -> bool {
        let lately = user.sampled_ns.is_some_and(|at| {
            let now_ns = self.last_ns.unwrap_or(at);
            now_ns.saturating_sub(at) < SAMPLED_LATELY_NS
        });
        lately && user.cgroup.processes().is_ok_and(|all| !all.is_empty())
    }

    /// Attributes the traffic by samples. Runs right after the counters were read, so that both
    /// cover nearly the same interval.
    pub(super) fn sample(&mut self, interval_ms: f64, notices: &mut Vec<Notice>) {
        self.collect(interval_ms);
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        let runs: Vec<Run> = self
            .users
            .iter()
            .zip(&self.scan_state.moved_ns)
            .map(|(user, &ns)| Run {
                id: user.id,
                cpu_s: ns as f64 / 1e9,
                shares: &user.node_shares,
            })
            .collect();
        sampler.step(interval_ms, &runs);
        let shares = sampler.shares();
        for (at, (&node, before)) in self.config.nodes.iter().zip(&mut self.sampled).enumerate() {
            let now = shares.is_fresh(at);
            if std::mem::replace(before, now) != now {
                notices.push(Notice::Samples(node, now));
            }
            for user in &mut self.users {
                if shares.sampled(user.id, at) {
                    user.sampled_ns = self.last_ns;
                }
            }
        }
        notices.extend(sampler.notices().into_iter().map(Notice::Sampled));
    }

    /// For each leg, the samples of no user.
    pub(super) fn unattributed_samples(&self) -> Vec<TaskSample> {
        let Some(sampler) = &self.sampler else {
            return Vec::new();
        };
        let legs = self.legs.iter().enumerate();
        let unattributed = legs.filter_map(|(at, leg)| {
            let shares = sampler.shares();
            let weight = shares.unattributed_weight(leg.node_at)?;
            let activity = match shares.are_of_all() {
                true => Activity::Unattributed(weight),
                false => Activity::UnattributedWeight(weight),
            };
            Some(TaskSample {
                // Users' numbers begin at 1.
                id: TaskId {
                    pid: 0,
                    start_ns: at as u64,
                },
                group: at as u32,
                activity,
                cpu_ns: 0,
            })
        });
        unattributed.collect()
    }
}

impl<'a> From<&'a User> for UserRef<'a> {
    fn from(user: &'a User) -> Self {
        Self {
            path: &user.cgroup.path,
            id: user.id,
            processes: &user.processes,
        }
    }
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
