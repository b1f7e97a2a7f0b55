//! The scan of a pass: CPU times of users since the last pass, and the traffic that follows from
//! them.
//!
//! Idle users ([`idle`](super::idle)) are scanned rarely. All of them together are one task on
//! each leg for the estimator and one protected user for the controllers, so the time of a pass
//! depends on the number of active users. With samples each user is a task of its own.

use super::config::Leg;
use super::counter::Reading;
use super::idle::{IDLE_THRESHOLD_CPUS, Roster, Searches, Sum, Turn, of_interval};
use super::tiering::TIERING;
use super::user::{IdleState, LegUse};
use super::{Daemon, Notice, User, sampling};
use crate::allocate::Load;
use crate::enforce::cgroup::Version;
use crate::enforce::meter::{Meter, Total};
use crate::enforce::quota::Turns;
use crate::estimate::{Activity, Estimate, GroupSample, TaskEstimate, TaskId, TaskSample};

/// The number of all idle users together; users' numbers begin at 1.
const IDLE_USERS: u64 = u64::MAX;

/// State of all users together.
#[derive(Debug, Default)]
pub(super) struct ScanState {
    sum: Sum,
    searches: Searches,
    /// The CPU time of the configured cgroups, and the last value.
    totals: Vec<(Total, Option<u64>)>,
    /// Whether that contains the CPU time of every user.
    accounted: bool,
    pub roster: Roster,
    /// For each leg, bytes charged so far to an idle user of one CPU.
    paid: Vec<f64>,
    /// CPU time of all idle users so far.
    idle_cpu_ns: u64,
    /// Bandwidth on each leg, and CPUs, of all idle users.
    load: (Vec<f64>, f64),
    /// CPU time of each user since the last pass, in nanoseconds; assumed for idle ones.
    pub moved_ns: Vec<u64>,
}

/// The CPU times of the configured cgroups in a pass.
#[derive(Clone, Copy, Debug)]
struct Totals {
    /// Whether there are any, and all were read.
    are_read: bool,
    /// Since the last pass; `None`: one is not known.
    ran_ns: Option<u64>,
}

impl Daemon {
    /// Opens the CPU times of the configured cgroups, which include processes that are no users.
    pub(super) fn open_totals(&mut self) {
        let accounting = self.accounting.as_deref();
        let roots = self.config.cgroups.iter();
        let roots = roots.filter(|root| {
            let above = |other: &&std::path::PathBuf| root.starts_with(other) && root != other;
            !self.config.cgroups.iter().any(|other| above(&other))
        });
        let mut totals: Vec<(Total, Option<u64>)> = Vec::new();
        for root in roots {
            match Total::open(&self.hierarchy, root, accounting) {
                Some(total) => totals.push((total, None)),
                None => return self.scan_state.totals.clear(),
            }
        }
        self.scan_state.totals = totals;
    }

    /// Rebuilds the roster after the users changed.
    fn update_roster(&mut self) {
        if self.scan_state.roster.rates.len() == self.users.len() {
            return;
        }
        self.scan_state.roster.clear();
        for user in &self.users {
            let rate = user.idle_state.as_ref().map(|state| state.rate);
            self.scan_state.roster.push(rate, user.id, &user.shares);
        }
        self.scan_state.paid.resize(self.legs.len(), 0.0);
    }

    /// Charges idle users up to now. Users and their memory may change afterwards.
    pub(super) fn settle(&mut self) {
        let now_ns = self.last_ns.unwrap_or(0);
        for user in self.users.iter_mut().filter(|_| self.sampler.is_none()) {
            user.settle(now_ns, &self.scan_state.paid, &self.legs);
        }
        self.scan_state.roster.clear();
        let accounted = |user: &User| user.meter.as_ref().is_none_or(Meter::is_accounted);
        self.scan_state.accounted = self.users.iter().all(accounted);
    }

    /// Reads the CPU time of users since the last pass; removes users that are gone.
    pub(super) fn scan(&mut self, interval_ns: u64, notices: &mut Vec<Notice>) {
        self.passes += 1;
        self.update_roster();
        self.scan_state.moved_ns.clear();
        self.scan_state.moved_ns.resize(self.users.len(), 0);
        let mut gone = Vec::new();
        let mut known_ns = 0;
        let idle = self.scan_state.roster.rates.iter().flatten().count();
        let turns = (self.scan_state.sum).turns(self.config.interval_ms, idle);
        let turn = Turn::new(self.passes, turns);
        let totals = self.read_totals();
        let rates = self.scan_state.roster.rates.iter().enumerate();
        let active = rates.filter_map(|(at, rate)| rate.is_none().then_some(at));
        let active: Vec<usize> = active.collect();
        self.read_at_once(&active, totals);
        for at in active {
            match self.scan_user(at, interval_ns, None) {
                true => known_ns += self.scan_state.moved_ns[at],
                false => gone.push(self.users[at].id),
            }
        }
        let remaining = self.remaining_cpus(totals, interval_ns, known_ns);
        let may_search = self.scan_state.searches.are_allowed(idle);
        let min_cpus = self.scan_state.sum.exceeds_margin(remaining);
        let min_cpus = min_cpus.filter(|_| may_search);
        let min_ns = min_cpus.map(|cpu| cpu * interval_ns as f64);
        let mut found_ns: Option<u64> = None;
        let mut due = Vec::new();
        for (at, rate) in self.scan_state.roster.rates.iter().enumerate() {
            let Some(rate) = rate else {
                continue;
            };
            if min_cpus.is_some() || self.scan_state.roster.is_due(at, turn) {
                due.push(at);
            } else {
                self.scan_state.moved_ns[at] = (rate * interval_ns as f64) as u64;
            }
        }
        self.read_at_once(&due, totals);
        for at in due {
            if !self.scan_user(at, interval_ns, min_ns) {
                gone.push(self.users[at].id);
            } else if self.scan_state.roster.rates[at].is_none() {
                *found_ns.get_or_insert(0) += self.scan_state.moved_ns[at];
            }
        }
        if min_cpus.is_some() {
            let found = found_ns.map(|ns| ns as f64 / interval_ns as f64);
            if found.is_none() {
                self.scan_state.searches.found_nobody(idle);
            }
            self.scan_state
                .sum
                .explained(remaining.unwrap_or(0.0), found);
        }
        if !gone.is_empty() {
            self.remove(&gone, notices);
        }
    }

    /// Reads the CPU time of the configured cgroups.
    fn read_totals(&mut self) -> Totals {
        let mut read = Totals {
            are_read: !self.scan_state.totals.is_empty(),
            ran_ns: Some(0),
        };
        for (total, before) in &mut self.scan_state.totals {
            let now = total.cpu_ns();
            read.are_read &= now.is_some();
            let ran_ns = now.and_then(|now| Some(now.saturating_sub(before.replace(now)?)));
            read.ran_ns = read.ran_ns.zip(ran_ns).map(|(sum, ran)| sum + ran);
        }
        read
    }

    /// The CPU time of the configured cgroups minus that of scanned users, in CPUs.
    fn remaining_cpus(&self, totals: Totals, interval_ns: u64, known_ns: u64) -> Option<f64> {
        let any = self.scan_state.accounted && totals.are_read && interval_ns > 0;
        let all_ns = totals.ran_ns.filter(|_| any)?;
        Some(all_ns.saturating_sub(known_ns) as f64 / interval_ns as f64)
    }

    /// Reads these users' CPU times in one system call, where that is possible; the others are read
    /// one by one.
    fn read_at_once(&mut self, which: &[usize], totals: Totals) {
        let Ok(bulk) = &mut self.bulk else {
            return;
        };
        // Version 2 adds up a cgroup's time when that of an ancestor is read.
        if self.hierarchy.version == Version::V2 && !totals.are_read {
            return;
        }
        let users = &mut self.users;
        let wanted = which.iter().filter_map(|&at| {
            let user = &users[at];
            let known = user.usage.filter(|_| user.limit.is_none());
            let (location, throttled) = user.meter.as_ref()?.wanted(known)?;
            Some((at, location, throttled))
        });
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            return;
        }
        bulk.read(&wanted, |at, usage| {
            if let Some(meter) = &mut users[at].meter {
                meter.provide(usage);
            }
        });
    }

    /// Reads the CPU time of a user; returns whether it still exists.
    fn scan_user(&mut self, at: usize, interval_ns: u64, min_ns: Option<f64>) -> bool {
        let now_ns = self.last_ns.unwrap_or(0);
        let user = &mut self.users[at];
        if user.meter.is_none() {
            let accounting = self.accounting.as_deref();
            let keep = at < self.max_open;
            user.meter = Meter::open(&user.cgroup, &self.hierarchy, accounting, keep).ok();
            if let (Some(meter), Ok(bulk)) = (&mut user.meter, &mut self.bulk) {
                meter.locate(bulk);
            }
            let accounted = user.meter.as_ref().is_none_or(Meter::is_accounted);
            self.scan_state.accounted &= accounted;
        }
        let known = user.usage.filter(|_| user.limit.is_none());
        let read = user.meter.as_mut().map(|meter| meter.usage(known));
        let Some(Ok(mut usage)) = read else {
            return false;
        };
        if let Some(ext) = &self.ext {
            usage.nr_throttled = ext.held(&user.cgroup.path);
        }
        user.scans = user.scans.saturating_add(1);
        let before = user.usage.replace(usage).unwrap_or(usage);
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut user.scanned_ns, now_ns));
        let ran_ns = usage.cpu_ns.saturating_sub(before.cpu_ns);
        let more = usage.nr_throttled > before.nr_throttled;
        user.held_back = user.is_held(now_ns, more, self.turns);
        if user.held_back {
            user.passes_held_back += 1;
            user.held_back_ns += interval_ns;
        }
        let moved_ns = &mut self.scan_state.moved_ns[at];
        *moved_ns = ran_ns;
        let Some(rate) = self.scan_state.roster.rates[at] else {
            return true;
        };
        *moved_ns = of_interval(ran_ns, since_ns, interval_ns, rate, min_ns);
        let cpu = *moved_ns as f64 / interval_ns.max(1) as f64;
        if self.sampler.is_none() {
            let then_ns = now_ns.saturating_sub(interval_ns);
            user.settle(then_ns, &self.scan_state.paid, &self.legs);
        }
        if cpu >= IDLE_THRESHOLD_CPUS {
            user.idle_state = None;
            user.read_weight();
            // The estimator sees it for the first time.
            user.begun_cpu = Some(cpu);
        } else if let Some(idle_state) = &mut user.idle_state {
            idle_state.rate = cpu;
        }
        user.cpu = cpu;
        self.scan_state.roster.rates[at] = user.idle_state.as_ref().map(|state| state.rate);
        true
    }

    fn remove(&mut self, gone: &[u64], notices: &mut Vec<Notice>) {
        let mut moved_ns = std::mem::take(&mut self.scan_state.moved_ns).into_iter();
        let (mut out, mut kept) = (Vec::new(), Vec::new());
        for user in std::mem::take(&mut self.users) {
            let ns = moved_ns.next().unwrap_or(0);
            if gone.contains(&user.id) {
                out.push(user);
            } else {
                self.scan_state.moved_ns.push(ns);
                kept.push(user);
            }
        }
        self.users = kept;
        self.scan_state.roster.clear();
        self.update_roster();
        for user in out {
            self.release(&user.cgroup.path, notices);
        }
    }

    /// Whether all idle users are one.
    fn groups_idle_users(&self) -> bool {
        self.sampler.is_none()
    }

    /// Reads the devices' counters; also returns the CPU time of idle users on each leg, in
    /// seconds. Groups are numbered as legs are.
    pub(super) fn count(&mut self, now_ns: u64) -> (Vec<GroupSample>, Vec<f64>) {
        let nodes: Vec<u32> = self.legs.iter().map(|leg| leg.node).collect();
        let state = &self.scan_state;
        let idle = state.roster.idle(nodes.len(), &state.moved_ns);
        let mut moved = idle.clone();
        for (at, &ns) in state.moved_ns.iter().enumerate() {
            if state.roster.rates[at].is_some() {
                continue;
            }
            for (moved, &share) in moved.iter_mut().zip(&self.users[at].shares) {
                *moved += share * ns as f64 / 1e9;
            }
        }
        let mut groups = self.counter.read(Reading {
            now_ns,
            nodes: &nodes,
            moved: &moved,
        });
        // A node of several devices has a leg on each.
        for (at, group) in groups.iter_mut().enumerate() {
            group.group = at as u32;
        }
        (groups, idle)
    }

    pub(super) fn estimate(
        &mut self,
        now_ns: u64,
        interval_ns: u64,
        groups: &[GroupSample],
        idle: &[f64],
    ) -> Estimate {
        let roster = &self.scan_state.roster;
        let mut samples = Vec::new();
        for (at, &ns) in self.scan_state.moved_ns.iter().enumerate() {
            if roster.rates[at].is_some() && self.groups_idle_users() {
                continue;
            }
            let user = &mut self.users[at];
            user.ran_ns += ns;
            let cpu_s = ns as f64 / 1e9;
            let parts = user.shares.iter().enumerate().map(|(at, &share)| {
                let all = user.node_shares.get(self.legs[at].node_at);
                // Samples tell the node and not the path.
                let part = all.filter(|all| **all > 0.0).map_or(1.0, |all| share / all);
                (at, share, part)
            });
            for (at, share, part) in parts {
                let node_at = self.legs[at].node_at;
                let sampler = self.sampler.as_deref();
                let known = sampling::activity(sampler, user.id, node_at, cpu_s, part);
                samples.push(TaskSample {
                    // One for each leg.
                    id: TaskId {
                        pid: user.id as i32,
                        start_ns: at as u64,
                    },
                    group: at as u32,
                    activity: known.unwrap_or(Activity::Weight(share * cpu_s)),
                    cpu_ns: user.ran_ns,
                });
            }
        }
        if self.groups_idle_users() {
            let ran = roster.rates.iter().zip(&self.scan_state.moved_ns);
            let ran = ran.filter_map(|(rate, ns)| rate.and(Some(ns)));
            self.scan_state.idle_cpu_ns += ran.sum::<u64>();
            for (at, &seconds) in idle.iter().enumerate() {
                samples.push(TaskSample {
                    id: TaskId {
                        pid: IDLE_USERS as i32,
                        start_ns: at as u64,
                    },
                    group: at as u32,
                    activity: Activity::Weight(seconds),
                    cpu_ns: self.scan_state.idle_cpu_ns,
                });
            }
        }
        let users = samples.len();
        samples.extend(self.unattributed_samples());
        samples.extend(self.tiering_samples());
        let estimate = self.estimator.step(now_ns, groups, &samples);
        self.charge(&estimate.tasks[..users], idle, now_ns, interval_ns);
        estimate
    }

    /// Stores the estimates, and determines which users are idle from now on.
    fn charge(&mut self, found: &[TaskEstimate], idle: &[f64], now_ns: u64, interval_ns: u64) {
        let groups_idle_users = self.groups_idle_users();
        let (mut each, all) = found.split_at(match groups_idle_users {
            true => found.len().saturating_sub(idle.len()),
            false => found.len(),
        });
        let state = &mut self.scan_state;
        state.load = (Vec::with_capacity(all.len()), 0.0);
        for ((paid, one), seconds) in state.paid.iter_mut().zip(all).zip(idle) {
            state.load.0.push(one.bandwidth);
            state.load.1 = one.cpu;
            if *seconds > 0.0 {
                *paid += one.bytes / seconds * interval_ns as f64 / 1e9;
            }
        }
        for (at, rate) in state.roster.rates.iter_mut().enumerate() {
            if rate.is_some() && groups_idle_users {
                continue;
            }
            let user = &mut self.users[at];
            let (mine, others) = each.split_at(user.shares.len().min(each.len()));
            each = others;
            let of_leg = |found: &TaskEstimate| LegUse {
                bandwidth: found.bandwidth,
                rate_error: found.rate_error,
            };
            user.legs.clear();
            user.legs.extend(mine.iter().map(of_leg));
            let counted = || mine.iter().zip(&self.legs).filter(|(_, leg)| leg.in_total);
            user.bandwidth = counted().map(|(found, _)| found.bandwidth).sum();
            user.charged_bytes += counted().map(|(found, _)| found.bytes).sum::<f64>();
            let begun = user.begun_cpu.take();
            if let Some(found) = mine.first() {
                // A user that became active is new to the estimator, which has no CPU time of it
                // yet.
                user.cpu = begun.unwrap_or(found.cpu);
            }
            let idle = user.limit.is_none() && user.cpu < IDLE_THRESHOLD_CPUS;
            if rate.is_none() && idle && begun.is_none() && user.scans > 1 {
                *rate = Some(user.cpu);
                user.idle_state = Some(IdleState {
                    rate: user.cpu,
                    charged_ns: now_ns,
                    paid: state.paid.clone(),
                });
            }
        }
    }

    /// The users that controllers decide about one by one, by their positions.
    pub(super) fn active(&self) -> Vec<usize> {
        let groups_idle_users = self.groups_idle_users();
        let rates = self.scan_state.roster.rates.iter().enumerate();
        let active = rates.filter(|(_, rate)| rate.is_none() || !groups_idle_users);
        active.map(|(at, _)| at).collect()
    }

    /// The loads of a device. Beside those of active users there may be all idle users as one, and
    /// memory tiering.
    pub(super) fn loads(&self, at: usize) -> Vec<Load> {
        let device = &self.devices[at];
        let active = self.active();
        // The limit that a user has because of this device, and whether that held it back.
        let limit =
            |id: u64, in_force: Option<f64>, bound_by: Option<usize>, held: bool| match bound_by {
                Some(other) if other != at => {
                    let own = device.allowed.get(&id).copied().flatten();
                    let limit = own.zip(in_force).map(|(own, in_force)| own.max(in_force));
                    (limit, false)
                }
                _ => (in_force, held),
            };
        let load = |user: &User| {
            let (limit, held_back) = limit(user.id, user.limit, user.bound_by, user.held_back);
            let bandwidth = user.bandwidth_on(device.legs.clone());
            Load {
                limit,
                held_back,
                weight: user.weight,
                protected: user.protected,
                rate_error: user.rate_error_on(device.legs.clone()),
                ..Load::new(user.id, bandwidth, user.cpu)
            }
        };
        let users = active.iter().map(|&at| &self.users[at]);
        let mut loads: Vec<Load> = users
            .filter(|user| self.concerns(at, user))
            .map(load)
            .collect();
        if self.groups_idle_users() && active.len() < self.users.len() {
            let (bandwidth, cpu) = &self.scan_state.load;
            let bandwidth = bandwidth.get(device.legs.clone()).unwrap_or_default();
            loads.push(Load {
                protected: true,
                ..Load::new(IDLE_USERS, bandwidth.iter().sum(), *cpu)
            });
        }
        if let Some(tiering) = &self.tiering {
            let bandwidth = self.tiering_bandwidth(device.legs.clone());
            let (limit, _) = limit(TIERING, tiering.limit_cpus(), tiering.bound_by, false);
            loads.push(Load {
                limit,
                weight: tiering.weight(),
                ..Load::new(TIERING, bandwidth, tiering.cpus())
            });
        }
        loads
    }
}

impl User {
    /// Whether its limit holds it back, given whether the kernel counted more throttling in this
    /// scan.
    fn is_held(&mut self, now_ns: u64, more: bool, turns: Turns) -> bool {
        // The kernel counts once a period, and the periods of low limits are longer than an
        // interval.
        let period_ns = self
            .limit
            .map_or(0, |cpu| turns.quota(cpu).period_us * 1000);
        if more {
            self.held_ns = Some(now_ns);
        }
        let since = self.held_ns.map(|held_ns| now_ns.saturating_sub(held_ns));
        more || since.is_some_and(|since_ns| since_ns < period_ns)
    }

    /// Charges an idle user up to a pass, given the charges of one CPU until then.
    fn settle(&mut self, now_ns: u64, paid: &[f64], legs: &[Leg]) {
        let Some(state) = &mut self.idle_state else {
            return;
        };
        let passed_ns = now_ns.saturating_sub(state.charged_ns);
        if passed_ns == 0 {
            return;
        }
        let mut bytes = 0.0;
        let charges = self.shares.iter().zip(paid).zip(legs);
        for (((share, now), leg), before) in charges.zip(&mut state.paid) {
            let charge = share * state.rate * (now - std::mem::replace(before, *now));
            if leg.in_total {
                bytes += charge;
            }
        }
        self.charged_bytes += bytes;
        self.bandwidth = bytes / (passed_ns as f64 / 1e9);
        state.charged_ns = now_ns;
    }
}
