//! What users have run since the last pass, and what that says of the device's traffic.
//!
//! Whoever is quiet ([`quiet`](super::quiet)) is looked at now and then. All who are quiet are one
//! task of each node to the estimator and one protected user to the controller, so the time of a
//! pass depends on how many users do something. Where something samples whose the traffic is, each
//! is a task of its own.

use super::counters::Reading;
use super::quiet::{QUIET_CPU, Roster, Sum, Turn, of_interval};
use super::{Daemon, News, User, sampling};
use crate::allocate::Load;
use crate::enforce::meter::{Meter, Total};
use crate::enforce::quota::Quota;
use crate::estimate::{Activity, Estimate, GroupSample, TaskEstimate, TaskId, TaskSample};

/// The number of all who are quiet; users' begin at 1.
const QUIET: u64 = u64::MAX;

/// What is known of a quiet user.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// CPUs that it is taken to use.
    rate: f64,
    /// Up to when, and up to which reading for each node, it is charged.
    charged_ns: u64,
    paid: Vec<f64>,
}

/// What is known of all users together.
#[derive(Debug, Default)]
pub(super) struct Watch {
    sum: Sum,
    /// The CPU time of the configured cgroups, and what it was.
    totals: Vec<(Total, Option<u64>)>,
    /// Whether that is where each user's CPU time is accounted for.
    accounted: bool,
    pub roster: Roster,
    /// For each node, bytes that CPU seconds per second of quiet users have been charged with.
    paid: Vec<f64>,
    /// CPU time of quiet users so far.
    quiet_ns: u64,
    /// Bandwidth and CPUs of all of them.
    load: (f64, f64),
    /// CPU time of each user since the last pass, in nanoseconds; what quiet ones are taken to have.
    pub moved_ns: Vec<u64>,
}

impl Daemon {
    /// Opens what tells how much CPU time all users have together, and whoever else is there.
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
                None => return self.watch.totals.clear(),
            }
        }
        self.watch.totals = totals;
    }

    /// Brings what is known of all of them in line with the users that there are.
    fn call(&mut self) {
        if self.watch.roster.rates.len() == self.users.len() {
            return;
        }
        self.watch.roster.clear();
        for user in &self.users {
            let rate = user.rest.as_ref().map(|rest| rest.rate);
            self.watch.roster.push(rate, user.id, &user.shares);
        }
        self.watch.paid.resize(self.config.nodes.len(), 0.0);
    }

    /// Charges quiet users up to now; who they are and what memory they have may then change.
    pub(super) fn settle(&mut self) {
        let now_ns = self.last_ns.unwrap_or(0);
        for user in self.users.iter_mut().filter(|_| self.sampler.is_none()) {
            user.settle(now_ns, &self.watch.paid);
        }
        self.watch.roster.clear();
        let accounted = |user: &User| user.meter.as_ref().is_none_or(Meter::is_accounted);
        self.watch.accounted = self.users.iter().all(accounted);
    }

    /// CPU time of each user since the last pass; who is gone, goes.
    pub(super) fn look(&mut self, interval_ns: u64, news: &mut Vec<News>) {
        self.passes += 1;
        self.call();
        self.watch.moved_ns.clear();
        self.watch.moved_ns.resize(self.users.len(), 0);
        let mut gone = Vec::new();
        let mut known_ns = 0;
        let quiet = self.watch.roster.rates.iter().flatten().count();
        let turns = (self.watch.sum).turns(self.config.interval_ms, quiet);
        let turn = Turn::new(self.passes, turns);
        for at in 0..self.users.len() {
            if self.watch.roster.rates[at].is_some() {
                continue;
            }
            match self.look_at(at, interval_ns, None) {
                true => known_ns += self.watch.moved_ns[at],
                false => gone.push(self.users[at].id),
            }
        }
        let rest = self.rest(interval_ns, known_ns);
        let least = self.watch.sum.surprise(rest);
        let least_ns = least.map(|cpu| cpu * interval_ns as f64);
        let mut found_ns: Option<u64> = None;
        for at in 0..self.users.len() {
            let Some(rate) = self.watch.roster.rates[at] else {
                continue;
            };
            if least.is_none() && !self.watch.roster.is_due(at, turn) {
                self.watch.moved_ns[at] = (rate * interval_ns as f64) as u64;
            } else if !self.look_at(at, interval_ns, least_ns) {
                gone.push(self.users[at].id);
            } else if self.watch.roster.rates[at].is_none() {
                *found_ns.get_or_insert(0) += self.watch.moved_ns[at];
            }
        }
        if least.is_some() {
            let found = found_ns.map(|ns| ns as f64 / interval_ns as f64);
            self.watch.sum.explained(rest.unwrap_or(0.0), found);
        }
        if !gone.is_empty() {
            self.remove(&gone, news);
        }
    }

    /// What all have run, less what those have who are known exactly, in CPUs.
    fn rest(&mut self, interval_ns: u64, known_ns: u64) -> Option<f64> {
        let mut all_ns = 0;
        for (total, before) in &mut self.watch.totals {
            let now = total.cpu_ns()?;
            all_ns += now.saturating_sub(before.replace(now)?);
        }
        let any = self.watch.accounted && !self.watch.totals.is_empty() && interval_ns > 0;
        any.then(|| all_ns.saturating_sub(known_ns) as f64 / interval_ns as f64)
    }

    /// Reads what a user has run; whether it is still there.
    fn look_at(&mut self, at: usize, interval_ns: u64, least_ns: Option<f64>) -> bool {
        let now_ns = self.last_ns.unwrap_or(0);
        let user = &mut self.users[at];
        if user.meter.is_none() {
            let accounting = self.accounting.as_deref();
            let keep = at < self.most_open;
            user.meter = Meter::open(&user.cgroup, &self.hierarchy, accounting, keep).ok();
            let accounted = user.meter.as_ref().is_none_or(Meter::is_accounted);
            self.watch.accounted &= accounted;
        }
        let known = user.usage.filter(|_| user.limit.is_none());
        let read = user.meter.as_mut().map(|meter| meter.usage(known));
        let Some(Ok(mut usage)) = read else {
            return false;
        };
        if let Some(ext) = &self.ext {
            usage.nr_throttled = ext.held(&user.cgroup.path);
        }
        user.looks = user.looks.saturating_add(1);
        let before = user.usage.replace(usage).unwrap_or(usage);
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut user.looked_ns, now_ns));
        let ran_ns = usage.cpu_ns.saturating_sub(before.cpu_ns);
        user.held_back = user.is_held(now_ns, usage.nr_throttled > before.nr_throttled);
        user.passes_held_back += u64::from(user.held_back);
        let moved_ns = &mut self.watch.moved_ns[at];
        *moved_ns = ran_ns;
        let Some(rate) = self.watch.roster.rates[at] else {
            return true;
        };
        *moved_ns = of_interval(ran_ns, since_ns, interval_ns, rate, least_ns);
        let cpu = *moved_ns as f64 / interval_ns.max(1) as f64;
        if self.sampler.is_none() {
            user.settle(now_ns.saturating_sub(interval_ns), &self.watch.paid);
        }
        if cpu >= QUIET_CPU {
            user.rest = None;
            user.weight = user.cgroup.weight().unwrap_or(1.0);
            // The estimator hears of it for the first time.
            user.begun_cpu = Some(cpu);
        } else if let Some(rest) = &mut user.rest {
            rest.rate = cpu;
        }
        user.cpu = cpu;
        self.watch.roster.rates[at] = user.rest.as_ref().map(|rest| rest.rate);
        true
    }

    fn remove(&mut self, gone: &[u64], news: &mut Vec<News>) {
        let mut moved_ns = std::mem::take(&mut self.watch.moved_ns).into_iter();
        let (mut out, mut kept) = (Vec::new(), Vec::new());
        for user in std::mem::take(&mut self.users) {
            let ns = moved_ns.next().unwrap_or(0);
            if gone.contains(&user.id) {
                out.push(user);
            } else {
                self.watch.moved_ns.push(ns);
                kept.push(user);
            }
        }
        self.users = kept;
        self.watch.roster.clear();
        self.call();
        for user in out {
            self.let_go(&user.cgroup.path, news);
        }
    }

    /// Whether all who are quiet are one.
    fn are_one(&self) -> bool {
        self.sampler.is_none()
    }

    /// What the device's counters say, and on each node the CPU time of all who are quiet, in
    /// seconds.
    pub(super) fn count(&mut self, now_ns: u64) -> (Vec<GroupSample>, Vec<f64>) {
        let nodes = self.config.nodes.as_slice();
        let watch = &self.watch;
        let quiet = watch.roster.quiet(nodes.len(), &watch.moved_ns);
        let mut moved = quiet.clone();
        for (at, &ns) in watch.moved_ns.iter().enumerate() {
            if watch.roster.rates[at].is_some() {
                continue;
            }
            for (moved, &share) in moved.iter_mut().zip(&self.users[at].shares) {
                *moved += share * ns as f64 / 1e9;
            }
        }
        let groups = self.counter.read(Reading {
            now_ns,
            nodes,
            moved: &moved,
        });
        (groups, quiet)
    }

    pub(super) fn estimate(
        &mut self,
        now_ns: u64,
        interval_ns: u64,
        groups: &[GroupSample],
        quiet: &[f64],
    ) -> Estimate {
        let nodes = self.config.nodes.as_slice();
        let roster = &self.watch.roster;
        let mut samples = Vec::new();
        for (at, &ns) in self.watch.moved_ns.iter().enumerate() {
            if roster.rates[at].is_some() && self.are_one() {
                continue;
            }
            let user = &mut self.users[at];
            user.ran_ns += ns;
            let cpu_s = ns as f64 / 1e9;
            for (node_at, (&node, &share)) in nodes.iter().zip(&user.shares).enumerate() {
                let known = sampling::activity(self.sampler.as_deref(), user.id, node_at, cpu_s);
                samples.push(TaskSample {
                    // One for each node that a user has memory on.
                    id: TaskId {
                        pid: user.id as i32,
                        start_ns: node_at as u64,
                    },
                    group: node,
                    activity: known.unwrap_or(Activity::Weight(share * cpu_s)),
                    cpu_ns: user.ran_ns,
                });
            }
        }
        if self.are_one() {
            let ran = roster.rates.iter().zip(&self.watch.moved_ns);
            let ran = ran.filter_map(|(rate, ns)| rate.and(Some(ns)));
            self.watch.quiet_ns += ran.sum::<u64>();
            for (at, (&node, &seconds)) in nodes.iter().zip(quiet).enumerate() {
                samples.push(TaskSample {
                    id: TaskId {
                        pid: QUIET as i32,
                        start_ns: at as u64,
                    },
                    group: node,
                    activity: Activity::Weight(seconds),
                    cpu_ns: self.watch.quiet_ns,
                });
            }
        }
        let users = samples.len();
        samples.extend(self.nobodys());
        let estimate = self.estimator.step(now_ns, groups, &samples);
        self.charge(&estimate.tasks[..users], quiet, now_ns, interval_ns);
        estimate
    }

    /// Takes over what was found, and sees who is quiet from now on.
    fn charge(&mut self, found: &[TaskEstimate], quiet: &[f64], now_ns: u64, interval_ns: u64) {
        let are_one = self.are_one();
        let (mut each, all) = found.split_at(match are_one {
            true => found.len().saturating_sub(quiet.len()),
            false => found.len(),
        });
        let watch = &mut self.watch;
        watch.load = (0.0, 0.0);
        for ((paid, one), seconds) in watch.paid.iter_mut().zip(all).zip(quiet) {
            watch.load.0 += one.bandwidth;
            watch.load.1 = one.cpu;
            if *seconds > 0.0 {
                *paid += one.bytes / seconds * interval_ns as f64 / 1e9;
            }
        }
        for (at, rate) in watch.roster.rates.iter_mut().enumerate() {
            if rate.is_some() && are_one {
                continue;
            }
            let user = &mut self.users[at];
            let (mine, others) = each.split_at(user.shares.len().min(each.len()));
            each = others;
            user.bandwidth = mine.iter().map(|found| found.bandwidth).sum();
            user.charged_bytes += mine.iter().map(|found| found.bytes).sum::<f64>();
            let begun = user.begun_cpu.take();
            if let Some(found) = mine.first() {
                // What began is new to the estimator, which knows of no CPU time yet.
                user.cpu = begun.unwrap_or(found.cpu);
            }
            let idle = user.limit.is_none() && user.cpu < QUIET_CPU;
            if rate.is_none() && idle && begun.is_none() && user.looks > 1 {
                *rate = Some(user.cpu);
                user.rest = Some(Rest {
                    rate: user.cpu,
                    charged_ns: now_ns,
                    paid: watch.paid.clone(),
                });
            }
        }
    }

    /// Which users the controller is to know, and what of them; the last may be all who are quiet.
    pub(super) fn loads(&self) -> (Vec<usize>, Vec<Load>) {
        let are_one = self.are_one();
        let rates = self.watch.roster.rates.iter().enumerate();
        let known = rates.filter(|(_, rate)| rate.is_none() || !are_one);
        let known: Vec<usize> = known.map(|(at, _)| at).collect();
        let load = |&at: &usize| {
            let user = &self.users[at];
            Load {
                limit: user.limit,
                held_back: user.held_back,
                weight: user.weight,
                protected: user.protected,
                ..Load::new(user.id, user.bandwidth, user.cpu)
            }
        };
        let mut loads: Vec<Load> = known.iter().map(load).collect();
        if are_one && known.len() < self.users.len() {
            let (bandwidth, cpu) = self.watch.load;
            loads.push(Load {
                protected: true,
                ..Load::new(QUIET, bandwidth, cpu)
            });
        }
        (known, loads)
    }
}

impl User {
    /// Whether its limit holds it back, as of a look at which it was so more often than before.
    fn is_held(&mut self, now_ns: u64, more: bool) -> bool {
        // The kernel counts once a period, and those of low limits are longer than an interval.
        let period_ns = self.limit.map_or(0, |cpu| Quota::of(cpu).period_us * 1000);
        if more {
            self.held_ns = Some(now_ns);
        }
        let since = self.held_ns.map(|held_ns| now_ns.saturating_sub(held_ns));
        more || since.is_some_and(|since_ns| since_ns < period_ns)
    }

    /// Charges a quiet user up to a pass, as of which these are the charges of a CPU.
    fn settle(&mut self, now_ns: u64, paid: &[f64]) {
        let Some(rest) = &mut self.rest else { return };
        let passed_ns = now_ns.saturating_sub(rest.charged_ns);
        if passed_ns == 0 {
            return;
        }
        let mut bytes = 0.0;
        for ((share, now), before) in self.shares.iter().zip(paid).zip(&mut rest.paid) {
            bytes += share * rest.rate * (now - std::mem::replace(before, *now));
        }
        self.charged_bytes += bytes;
        self.bandwidth = bytes / (passed_ns as f64 / 1e9);
        rest.charged_ns = now_ns;
    }
}
