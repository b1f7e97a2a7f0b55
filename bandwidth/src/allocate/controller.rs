//! The feedback controller: max–min fair shares of the threshold, converted to CPU time and
//! corrected by an integral term.
//!
//! ```text
//!  measured: bandwidth, CPU time ──▶ demands ──▶ fair shares ──▶ ÷ bytes per CPU second ──▶ limits
//!                    │                               ▲                    ▲
//!                    │                        × (1 + trim)         learned per user
//!                    └─▶ total − threshold ──▶ integral, stopped while no limit binds
//! ```
//!
//! It differs from the methods of Kämmerer 2025, which scale the last CPU time by threshold over
//! total, in three ways. Each user's share is absolute, so errors do not accumulate from step to
//! step. Bytes per CPU second are learned for each user and smoothed, so the noise of one interval
//! does not become a limit. The remaining error (overrun quotas, users that cannot be limited) is
//! integrated away. The integral decays while no limit is in force (anti-windup by clamping,
//! Åström and Hägglund 1995), and shrinks where it is the reason that no limit binds.
//!
//! Shares are fair on average: what a user leaves of its share it may use later in a burst (a
//! token bucket, Turner 1986), so light users with bursts are not held back.

use std::collections::HashMap;

use super::dither::Dither;
use super::fair::{self, Demand};
use super::user_state::UserState;
use super::{Limit, Load, MIN_CPU};
use crate::estimate::ewma::Ewma;

/// Parameters of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The bandwidth to keep the device below, in bytes a second.
    pub threshold: f64,
    /// Integral gain per second: at 10, the error falls by a factor of e in a tenth of a second.
    pub integral_per_s: f64,
    /// Bound of the integral, relative to the threshold.
    pub max_trim: f64,
    /// Half-life of the average of bytes per CPU second.
    pub rate_half_life_ms: f64,
    /// The shortest limit hold time: how long a limit must be unused before it is lifted. It is
    /// longer for users that return to their limits.
    pub limit_hold_ms: f64,
    /// Whether limits are varied a little to learn bytes per CPU second. Not with quotas on coarse
    /// ticks: overruns vary CPU times enough there, and each write forgives one.
    pub dithers: bool,
    /// Fraction of the threshold that other users keep when protected users alone exceed it.
    pub reserve: f64,
}

impl Settings {
    /// The defaults, for a threshold in bytes a second.
    pub fn new(threshold: f64) -> Self {
        Self {
            threshold,
            integral_per_s: 10.0,
            max_trim: 0.6,
            rate_half_life_ms: 30.0,
            limit_hold_ms: 200.0,
            dithers: true,
            reserve: 0.1,
        }
    }
}

/// A rate that deviates by more than this from the average is a change of behaviour, not noise.
const OUTLIER_THRESHOLD: f64 = 0.3;
/// The kernel updates the CPU time of a running task on ticks only, so this much of an interval's
/// CPU time may belong to another interval.
const CPU_GRAIN_MS: f64 = 4.0;
/// An interval has at most the weight of this many times its CPU time. An interval with little CPU
/// time says little about the rate and must not replace the average.
const CPU_WEIGHT: f64 = 2.0;
/// The largest fraction of an error that one step corrects.
const MAX_CORRECTION: f64 = 0.5;
/// Errors are clamped to this, relative to the threshold.
const MAX_ERROR: f64 = 0.3;
/// The clamped part is carried over to the next steps, up to this much. Bursts are many times the
/// threshold; dropping them would make the controller hold the median instead of the mean.
const MAX_CARRIED_ERROR: f64 = 1.0;
/// Half-life of baselines.
const BASELINE_HALF_LIFE_MS: f64 = 500.0;
/// An interval with less CPU time does not update bytes per CPU second.
const MIN_CPU_TO_LEARN: f64 = 0.002;
/// Factor by which a user may exceed its present use until the next step while its limit does not
/// bind.
const HEADROOM: f64 = 1.5;

/// The decision of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In the order of the loads.
    pub limits: Vec<Limit>,
    /// Bandwidth for a weight of 1; infinite: no user is slowed.
    pub level: f64,
    /// The integral, relative to the threshold.
    pub trim: f64,
}

/// The controller of one device.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    users: HashMap<u64, UserState>,
    trim: f64,
    /// Average of the level while users were slowed.
    baseline_level: Ewma,
    /// Unattributed bandwidth in the last step, in bytes a second.
    unattributed: f64,
    /// Expected bandwidth of users that have left since then.
    departed: f64,
    /// Whether any user was slowed in the last step.
    contended: bool,
    /// The part of earlier errors that exceeded the clamp and is still to be corrected.
    carried_error: f64,
    dither: Dither,
}

impl Controller {
    /// A controller without users.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            users: HashMap::new(),
            trim: 0.0,
            baseline_level: Ewma::new(BASELINE_HALF_LIFE_MS),
            unattributed: 0.0,
            departed: 0.0,
            contended: false,
            carried_error: 0.0,
            dither: Dither::new(),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the threshold for the next step, in bytes a second.
    pub fn set_threshold(&mut self, threshold: f64) {
        self.settings.threshold = threshold;
    }

    /// One step. `loads` are the measurements of the last `interval_ms`; `unattributed` is the
    /// bandwidth, in bytes a second, of no user that could be limited.
    pub fn step(&mut self, interval_ms: f64, unattributed: f64, loads: &[Load]) -> Decision {
        self.observe(interval_ms, loads);
        let threshold = self.settings.threshold;
        self.correct(interval_ms, unattributed, loads);

        let first: f64 = loads
            .iter()
            .filter(|load| self.is_first(load))
            .map(|load| self.predicted(load))
            .sum();
        let capacity = (threshold - unattributed - first).max(threshold * self.settings.reserve);
        let mut demands: Vec<Demand> = loads.iter().map(|load| self.demand(load)).collect();
        let mut shares = fair::shares(capacity, &demands);
        if !shares.level.is_finite() {
            let is_exceeded = unattributed + super::total_of(loads) > threshold;
            for (load, demand) in loads.iter().zip(&mut demands) {
                demand.wanted = self.present(load, demand.wanted, is_exceeded);
            }
            shares = fair::shares(capacity, &demands);
        }
        let slowed = self.slowed(loads, &demands, &shares.shares);
        self.trim_shares(&demands, &slowed, &mut shares.shares);
        self.expect(unattributed, loads, &slowed, &shares.shares);
        self.contended = shares.level.is_finite();
        if self.contended {
            self.baseline_level.add(interval_ms, shares.level);
        }
        let return_level = self.return_level(capacity, loads, demands, shares.level);
        self.dither
            .vary(threshold, loads, &slowed, &mut shares.shares);
        let limits = loads
            .iter()
            .zip(&slowed)
            .zip(&shares.shares)
            .map(|((load, &slowed), &share)| Limit {
                id: load.id,
                cpu: self.limit(load, slowed.then_some(share), return_level),
            })
            .collect();
        Decision {
            limits,
            level: shares.level,
            trim: self.trim,
        }
    }

    /// The level if all users with unused limits became active: what these limits are set to, so
    /// that the total stays near the threshold when they return together. Infinite while no user is
    /// slowed, as `level` then is.
    fn return_level(
        &self,
        capacity: f64,
        loads: &[Load],
        mut demands: Vec<Demand>,
        level: f64,
    ) -> f64 {
        if !level.is_finite() {
            return level;
        }
        for (load, demand) in loads.iter().zip(&mut demands) {
            if self.is_kept(load) {
                demand.wanted = f64::INFINITY;
            }
        }
        fair::shares(capacity, &demands).level
    }

    /// Updates bytes per CPU second of each user; forgets users that have left.
    fn observe(&mut self, interval_ms: f64, loads: &[Load]) {
        let settings = self.settings;
        let mut before = std::mem::take(&mut self.users);
        for load in loads {
            let mut user = before.remove(&load.id).unwrap_or_else(|| {
                let (rate_ms, hold_ms) = (settings.rate_half_life_ms, settings.limit_hold_ms);
                UserState::new(interval_ms, rate_ms, hold_ms)
            });
            let known = user.rate.value();
            // A new user has used CPU time before any traffic is attributed to it.
            let is_usable = load.bandwidth.is_finite() && (load.bandwidth > 0.0 || known.is_some());
            if load.cpu > MIN_CPU_TO_LEARN && is_usable {
                let rate = load.bandwidth / load.cpu;
                let cpu_ms = load.cpu * interval_ms;
                let noise = OUTLIER_THRESHOLD + CPU_GRAIN_MS / cpu_ms;
                let is_outlier = known.is_some_and(|known| (rate / known - 1.0).abs() > noise);
                if is_outlier {
                    // The device's latency changed with its load: move half of the way at once.
                    user.rate
                        .set(known.map_or(rate, |known| (known + rate) / 2.0));
                } else {
                    user.rate.add(interval_ms.min(CPU_WEIGHT * cpu_ms), rate);
                }
            }
            let share = load.weight * self.baseline_level.value().unwrap_or(0.0);
            let free = load.limit.is_none() && self.contended && !load.protected;
            user.account(interval_ms, share, load.bandwidth, free);
            user.used.add(interval_ms, load.cpu);
            user.mean.add(interval_ms, load.bandwidth);
            if load.limit.is_some() {
                user.demand.set(load.bandwidth);
            } else {
                user.demand.add(interval_ms, load.bandwidth);
            }
            user.hold(load, interval_ms, settings.limit_hold_ms);
            self.users.insert(load.id, user);
        }
        self.departed = before.values().map(|user| user.expected).sum();
    }

    /// Updates the integral with the part of the error that limits cause. If a user whose limit
    /// does not bind moves more or less than expected, the next shares account for it already;
    /// integrating it as well would make the total overshoot. Only the deviation from the user's
    /// baseline is excluded, so users that come and go all the time do not keep the total off the
    /// threshold.
    fn correct(&mut self, interval_ms: f64, unattributed: f64, loads: &[Load]) {
        let threshold = self.settings.threshold;
        let (mut held, mut total) = (false, unattributed);
        // By how much the others moved less than their baseline.
        let mut unusual = self.unattributed - unattributed + self.departed;
        let held_back = |user: &UserState| user.held && user.slowed;
        for load in loads {
            total += load.bandwidth;
            let Some(user) = self.users.get(&load.id) else {
                continue;
            };
            if held_back(user) {
                held = true;
            } else {
                unusual += user.expected - load.bandwidth - user.baseline_shortfall;
            }
        }
        let limited = loads.iter().any(|load| load.limit.is_some());
        if held {
            self.integrate(interval_ms, 1.0 - (total + unusual) / threshold);
        } else if limited {
            self.unwind(interval_ms, 1.0 - total / threshold);
        } else {
            // No user is limited: there is nothing to learn, and the integral decays.
            self.trim *= self.kept(interval_ms);
            self.carried_error = 0.0;
        }
        let part = 1.0 - (-interval_ms / BASELINE_HALF_LIFE_MS).exp2();
        for load in loads {
            let Some(user) = self.users.get_mut(&load.id) else {
                continue;
            };
            let shortfall = match held {
                // A deviation that came with a user leaves with it.
                true if held_back(user) || user.new || !load.bandwidth.is_finite() => None,
                true => Some(user.expected - load.bandwidth),
                false => (!limited).then_some(0.0),
            };
            if let Some(shortfall) = shortfall {
                user.baseline_shortfall += part * (shortfall - user.baseline_shortfall);
            }
            user.new = false;
        }
    }

    /// Which users are slowed down to their share: those that want more, except those that have
    /// saved up enough for a burst, as long as at least one other user makes room for it.
    fn slowed(&self, loads: &[Load], demands: &[Demand], shares: &[f64]) -> Vec<bool> {
        let mut slowed: Vec<bool> = demands
            .iter()
            .zip(shares)
            .map(|(demand, &share)| share < demand.wanted)
            .collect();
        let bursts: Vec<usize> = (0..loads.len())
            .filter(|&at| slowed[at] && self.may_burst(&loads[at]))
            .collect();
        if bursts.len() < slowed.iter().filter(|&&slowed| slowed).count() {
            for at in bursts {
                slowed[at] = false;
            }
        }
        slowed
    }

    /// The trim applies to the users that limits hold back only: the shares of others are exact.
    fn trim_shares(&self, demands: &[Demand], slowed: &[bool], shares: &mut [f64]) {
        let sum: f64 = shares
            .iter()
            .zip(slowed)
            .filter(|&(_, &slowed)| slowed)
            .map(|(share, _)| *share)
            .sum();
        let threshold = self.settings.threshold;
        let min_factor = (self.settings.reserve * threshold / sum).min(1.0);
        let factor = (1.0 + self.trim * threshold / sum).max(min_factor);
        for ((share, demand), &slowed) in shares.iter_mut().zip(demands).zip(slowed) {
            if slowed {
                *share = (*share * factor).min(demand.wanted);
            }
        }
    }

    fn kept(&self, interval_ms: f64) -> f64 {
        (-self.settings.integral_per_s * interval_ms / 1000.0).exp()
    }

    fn integrate(&mut self, interval_ms: f64, error: f64) {
        let max = self.settings.max_trim;
        // Only a part of the error, however long the interval is: the rates are being learned,
        // too.
        let part = (1.0 - self.kept(interval_ms)).min(MAX_CORRECTION);
        let error = error + self.carried_error;
        let now = error.clamp(-MAX_ERROR, MAX_ERROR);
        self.carried_error = (error - now).clamp(-MAX_CARRIED_ERROR, MAX_CARRIED_ERROR);
        self.trim = (self.trim + part * now).clamp(-max, max);
    }

    /// Reduces an integral that is itself the reason that no limit binds: it raises limits above what
    /// users can use, and the total exceeds the threshold.
    fn unwind(&mut self, interval_ms: f64, error: f64) {
        if self.trim > 0.0 && error < 0.0 {
            self.carried_error = self.carried_error.min(0.0);
            self.integrate(interval_ms, error);
            self.trim = self.trim.max(0.0);
        }
    }

    /// Remembers what each user is expected to move until the next step.
    fn expect(&mut self, unattributed: f64, loads: &[Load], slowed: &[bool], shares: &[f64]) {
        self.unattributed = unattributed;
        let base_ms = self.settings.limit_hold_ms;
        for ((load, &slowed), &share) in loads.iter().zip(slowed).zip(shares) {
            let first = self.is_first(load).then(|| self.predicted(load));
            if let Some(user) = self.users.get_mut(&load.id) {
                user.slowed = slowed;
                if slowed && load.limit.is_none() {
                    user.return_to_limit(base_ms);
                }
                user.expected = first.unwrap_or(share);
            }
        }
    }

    fn demand(&self, load: &Load) -> Demand {
        let fast = self.users.get(&load.id).filter(|user| user.is_fast);
        let mean = fast.and_then(|user| user.mean.value());
        let wanted = if self.is_first(load) {
            0.0
        } else if let (Some(mean), true) = (mean, load.limit.is_some()) {
            mean
        } else if self.users.get(&load.id).is_some_and(|user| user.held) {
            f64::INFINITY
        } else if load.limit.is_some() && !self.lifted(load) {
            // It had more than it used, so its demand is known. The headroom covers growth until
            // the next step.
            self.predicted(load) * HEADROOM
        } else {
            self.predicted(load)
        };
        Demand {
            wanted,
            weight: load.weight,
        }
    }

    /// The demand of a user where all predicted demands can be met. What a limit holds back now has
    /// no upper bound, whatever it was on average while it was held back; and where the total
    /// exceeds the threshold all the same, predictions are late, and users continue as in the last
    /// interval.
    fn present(&self, load: &Load, predicted: f64, is_exceeded: bool) -> f64 {
        if self.is_first(load) {
            predicted
        } else if self.users.get(&load.id).is_some_and(|user| user.held) {
            f64::INFINITY
        } else if is_exceeded && load.bandwidth.is_finite() {
            predicted.max(load.bandwidth)
        } else {
            predicted
        }
    }

    /// The predicted demand until the next step, in bytes a second.
    fn predicted(&self, load: &Load) -> f64 {
        let user = self.users.get(&load.id);
        user.map_or(load.bandwidth, |user| user.demand.bandwidth())
    }

    /// Whether it is served before others: it is protected, or uses so little CPU time that the
    /// minimum limit would not slow it. Most of a thousand users are like that, and their limits
    /// would come and go.
    fn is_first(&self, load: &Load) -> bool {
        let below_min_limit = load.cpu * HEADROOM < MIN_CPU;
        load.protected || below_min_limit && (load.limit.is_none() || self.lifted(load))
    }

    fn may_burst(&self, load: &Load) -> bool {
        let user = self.users.get(&load.id);
        load.limit.is_none() && user.is_some_and(|user| user.credit > 0.0)
    }

    /// Whether the limit has been unused for the user's hold time, so that it hides no demand, and
    /// the user has paid its debt.
    fn lifted(&self, load: &Load) -> bool {
        let user = self.users.get(&load.id);
        user.is_some_and(|user| user.idle_ms >= user.hold_ms && user.credit >= 0.0)
    }

    /// Whether a limit stays although its user may not need it.
    fn is_kept(&self, load: &Load) -> bool {
        load.limit.is_some() && !load.protected && !self.lifted(load)
    }

    /// What an unused limit lets its user move: the share at the common level, and not less than it
    /// wants now.
    fn kept_share(&self, load: &Load, level: f64) -> f64 {
        let (share, wanted) = (load.weight * level, self.demand(load).wanted);
        if wanted.is_finite() {
            share.max(wanted)
        } else {
            share
        }
    }

    /// The limit of a user that is slowed to a share, or that is not slowed.
    fn limit(&self, load: &Load, share: Option<f64>, level: f64) -> Option<f64> {
        // An unused limit stays for the hold time: it slows no user, and binds at once when its user
        // becomes active.
        if !(share.is_some() || self.is_kept(load)) || !level.is_finite() {
            return None;
        }
        let share = share.unwrap_or_else(|| self.kept_share(load, level));
        match self.users.get(&load.id).and_then(|user| user.rate.value()) {
            Some(rate) if rate > 0.0 => Some((share / rate).max(MIN_CPU)),
            // Its rate is unknown: keep the limit.
            _ => load.limit,
        }
    }
}
