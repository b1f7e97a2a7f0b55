//! The devices of the daemon: each has a threshold and a controller of its own.
//!
//! ```text
//!  users ─┬─▶ controller of device 0 ─▶ limits ─┐
//!         ├─▶ controller of device 1 ─▶ limits ─┼─▶ the minimum is a user's limit
//!         └─▶ controller of a path   ─▶ limits ─┘
//! ```
//!
//! A device sees the limit in force of those users that it limits itself. For the others it sees
//! its own limit, which they leave unused: they count with what they use, and others get the rest.

use std::collections::HashMap;
use std::ops::Range;

use super::config::DeviceConfig;
use super::{Daemon, Notice, Pass, Probe};
use crate::allocate::latency_watch::LatencyWatch;
use crate::allocate::{Controller, Decision, Limit, Settings};
use crate::daemon::tiering::TIERING;
use crate::estimate::Estimate;

/// How long a latency class stays in force after the last traffic of its users.
const CLASS_HOLD_MS: f64 = 10_000.0;
/// A user with less traffic, in bytes a second, does not use a device.
const MIN_BANDWIDTH: f64 = 1.0;

/// One device, or one path to a device.
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its legs, by their positions.
    pub(super) legs: Range<usize>,
    pub(super) controller: Controller,
    /// Where latency determines the threshold, or is compared with a curve.
    pub(super) probe: Option<Probe>,
    has_threshold: bool,
    /// The latency that is kept whichever users are active.
    max_latency_ns: Option<f64>,
    /// The latency of the strictest class of active users, and how long ago it was active.
    class: Option<(f64, f64)>,
    /// What it allows each user; `None`: anything.
    pub(super) allowed: HashMap<u64, Option<f64>>,
    faulty_since: Option<u64>,
    /// In bytes a second.
    pub total: f64,
    /// Whether its counters are valid.
    pub trusted: bool,
}

impl Device {
    pub(super) fn new(
        config: &DeviceConfig,
        threshold: f64,
        legs: Range<usize>,
        dithers: bool,
    ) -> Self {
        Self {
            name: config.name.clone(),
            legs,
            controller: Controller::new(Settings {
                dithers,
                ..Settings::new(threshold)
            }),
            probe: None,
            has_threshold: config.has_threshold(),
            max_latency_ns: config.max_latency_ns,
            class: None,
            allowed: HashMap::new(),
            faulty_since: None,
            total: 0.0,
            trusted: true,
        }
    }

    /// In bytes a second.
    pub fn threshold(&self) -> f64 {
        self.controller.settings().threshold
    }

    /// Its latency, where it is measured.
    pub fn latency(&self) -> Option<&LatencyWatch> {
        self.probe.as_ref().map(Probe::watch)
    }

    /// Whether it answers too slowly for its curve or at the configured threshold, so that a lower
    /// one is in force.
    pub fn is_derated(&self) -> bool {
        let derated = self.latency().is_some_and(LatencyWatch::is_derated);
        // A class asks for less latency than the threshold was chosen for.
        derated && self.has_threshold && self.class.is_none()
    }

    /// Keeps the latency of the strictest class that is active now or was lately.
    fn follow_class(&mut self, interval_ms: f64, active: Option<f64>) {
        let Some(probe) = &mut self.probe else {
            return;
        };
        self.class = match (self.class, active) {
            (None, active) => active.map(|ns| (ns, 0.0)),
            (Some((before, _)), Some(now)) if now <= before => Some((now, 0.0)),
            (Some((before, since)), active) if since + interval_ms < CLASS_HOLD_MS => {
                let is_same = active == Some(before);
                Some((before, if is_same { 0.0 } else { since + interval_ms }))
            }
            (Some(_), active) => active.map(|ns| (ns, 0.0)),
        };
        let class = self.class.map(|(ns, _)| ns);
        let wanted = self
            .max_latency_ns
            .into_iter()
            .chain(class)
            .reduce(f64::min);
        probe.watch_mut().keep(wanted);
    }

    /// Lets the measured latency determine the threshold.
    fn follow_latency(&mut self, interval_ms: f64) -> Option<Notice> {
        let was = self.is_derated();
        let threshold = self.probe.as_mut()?.threshold(interval_ms, self.total);
        self.controller.set_threshold(threshold);
        let is = self.is_derated();
        if was == is {
            return None;
        }
        let notice = self.latency().filter(|_| is).map(|watch| Notice::Derated {
            device: self.name.clone(),
            latency_ns: watch.latency_ns().unwrap_or(0.0),
            expected_ns: watch.expected_ns().or(watch.max_ns()).unwrap_or(0.0),
            total: self.total,
            threshold,
        });
        Some(notice.unwrap_or_else(|| Notice::Fits(self.name.clone())))
    }

    /// What it allows a user while its counters are at fault: what is in force, and after a while
    /// anything.
    fn hold(&mut self, now_ns: u64, hold_ms: u64) -> Option<Notice> {
        let since = *self.faulty_since.get_or_insert(now_ns);
        let limits = self.allowed.values().any(Option::is_some);
        if !limits || now_ns.saturating_sub(since) < hold_ms * 1_000_000 {
            return None;
        }
        self.allowed.clear();
        Some(Notice::Lifted(self.name.clone()))
    }
}

impl Daemon {
    /// The devices, in the order of the configuration.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Lets this probe watch a device from now on.
    pub fn follow(&mut self, device: usize, probe: Probe) {
        if let Some(device) = self.devices.get_mut(device) {
            device.probe = Some(probe);
        }
    }

    /// Whether any device is derated.
    pub fn is_derated(&self) -> bool {
        self.devices.iter().any(Device::is_derated)
    }

    /// The sum of the thresholds of whole devices, in bytes a second.
    pub fn threshold(&self) -> f64 {
        let in_total = |device: &&Device| {
            self.legs[device.legs.clone()]
                .iter()
                .any(|leg| leg.in_total)
        };
        self.devices
            .iter()
            .filter(in_total)
            .map(Device::threshold)
            .sum()
    }

    /// Updates what is known of each device after the counters were read.
    pub(super) fn observe_devices(&mut self, estimate: &Estimate, pass: &mut Pass) {
        for device in &mut self.devices {
            let groups = &estimate.groups[device.legs.clone()];
            device.total = groups.iter().map(|group| group.bandwidth).sum();
            device.trusted = groups.iter().all(|group| group.fault.is_none());
            pass.trusted &= device.trusted;
        }
        let legs = self.legs.iter().zip(&estimate.groups);
        pass.total = legs
            .filter(|(leg, _)| leg.in_total)
            .map(|(_, group)| group.bandwidth)
            .sum();
    }

    /// The latency of the strictest class whose users use a device.
    fn active_class(&self, device: usize) -> Option<f64> {
        let legs = self.devices[device].legs.clone();
        let users = self.users.iter().zip(&self.scan_state.roster.rates);
        let active = users.filter(|(user, rate)| {
            rate.is_none() && user.bandwidth_on(legs.clone()) > MIN_BANDWIDTH
        });
        active
            .filter_map(|(user, _)| user.class_ns)
            .reduce(f64::min)
    }

    /// Whether a device decides about a user: the user has memory there, moves something or is
    /// limited. The only device decides about all.
    pub(super) fn concerns(&self, device: usize, user: &super::User) -> bool {
        if self.devices.len() == 1 {
            return true;
        }
        let device = &self.devices[device];
        let resident = user.shares.get(device.legs.clone());
        resident.is_some_and(|shares| shares.iter().any(|share| *share > 0.0))
            || user.bandwidth_on(device.legs.clone()) > MIN_BANDWIDTH
            || matches!(device.allowed.get(&user.id), Some(Some(_)))
    }

    /// The limit of each active user: the minimum of what its devices allow. Also returns the users
    /// that the limits are for, by their positions; the last limit is that of memory tiering, where
    /// it is a user.
    pub(super) fn decide(
        &mut self,
        now_ns: u64,
        interval_ms: f64,
        estimate: &Estimate,
        pass: &mut Pass,
    ) -> (Vec<usize>, Decision) {
        let hold_ms = self.config.hold_ms;
        pass.level = f64::INFINITY;
        for at in 0..self.devices.len() {
            if !self.devices[at].trusted {
                pass.notices.extend(self.devices[at].hold(now_ns, hold_ms));
                continue;
            }
            let class = self.active_class(at);
            self.devices[at].faulty_since = None;
            self.devices[at].follow_class(interval_ms, class);
            pass.notices
                .extend(self.devices[at].follow_latency(interval_ms));
            let loads = self.loads(at);
            let device = &mut self.devices[at];
            let groups = &estimate.groups[device.legs.clone()];
            let rest = groups.iter().map(|group| group.unattributed).sum();
            let decision = device.controller.step(interval_ms, rest, &loads);
            device.allowed = decision
                .limits
                .iter()
                .map(|limit| (limit.id, limit.cpu))
                .collect();
            if at == 0 || decision.level < pass.level {
                (pass.level, pass.trim) = (decision.level, decision.trim);
            }
        }
        let active = self.active();
        let mut limits = Vec::with_capacity(active.len());
        for &at in &active {
            let user = &self.users[at];
            let (cpu, bound_by) = self.min_limit(user.id, user.limit, user.bound_by);
            limits.push(Limit { id: user.id, cpu });
            self.users[at].bound_by = bound_by;
        }
        let tiering = self
            .tiering
            .as_ref()
            .map(|one| (one.limit_cpus(), one.bound_by));
        if let Some((in_force, before)) = tiering {
            let (cpu, bound_by) = self.min_limit(TIERING, in_force, before);
            limits.push(Limit { id: TIERING, cpu });
            if let Some(tiering) = &mut self.tiering {
                tiering.bound_by = bound_by;
            }
        }
        let decision = Decision {
            limits,
            level: pass.level,
            trim: pass.trim,
        };
        (active, decision)
    }

    /// The minimum limit that a device allows this user, and that device.
    fn min_limit(
        &self,
        id: u64,
        in_force: Option<f64>,
        bound_by: Option<usize>,
    ) -> (Option<f64>, Option<usize>) {
        let allowed = |(at, device): (usize, &Device)| {
            let allowed = device.allowed.get(&id).copied().flatten()?;
            // A device that cannot decide keeps what is in force.
            let keeps = !device.trusted && bound_by == Some(at);
            Some((in_force.filter(|_| keeps).unwrap_or(allowed), at))
        };
        let all = self.devices.iter().enumerate().filter_map(allowed);
        match all.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((cpu, at)) => (Some(cpu), Some(at)),
            None => (None, None),
        }
    }
}
