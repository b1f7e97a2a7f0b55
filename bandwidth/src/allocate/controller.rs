//! Our controller: fair shares of the threshold, turned into CPU time and corrected by feedback.
//!
//! ```text
//!  measured: bandwidth, CPU time ──▶ demands ──▶ fair shares ──▶ ÷ bytes per CPU second ──▶ limits
//!                    │                               ▲                    ▲
//!                    │                        × (1 + trim)         learnt per user
//!                    └─▶ total − threshold ──▶ integral, stopped while nobody is held back
//! ```
//!
//! Three things differ from the seed's reduction of the last CPU time by threshold over total:
//! each user's share is absolute, so errors do not accumulate from step to step; what a CPU second
//! is worth in bytes is learnt per user and smoothed, so noise of one interval does not become a
//! limit; and the error that remains (quotas that are overrun, users that cannot be limited) is
//! integrated away. The integral forgets while no limit is in force (anti-windup by clamping, Åström
//! and Hägglund, *PID Controllers*, 1995).
//!
//! Fair is what somebody uses in the mean: what he leaves of his share for a while he may use in a
//! burst afterwards (a token bucket, as in Turner, *New directions in communications*, 1986), so that
//! light users who come in bursts are not held back.

use std::collections::HashMap;

use super::fair::{self, Demand};
use super::pace::Pace;
use super::{LEAST_CPU, Limit, Load};
use crate::estimate::ewma::Ewma;

/// How the controller behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What the device may be used with, in bytes a second.
    pub threshold: f64,
    /// Error that is integrated away, per second: at 10, e-fold in a tenth of a second.
    pub integral_per_s: f64,
    /// Bound of the integral, relative to the threshold.
    pub most_trim: f64,
    /// Half-life of what is remembered of bytes per CPU second.
    pub rate_half_life_ms: f64,
    /// Time for which a limit has to be idle until it is lifted.
    pub patience_ms: f64,
    /// Share of the threshold that is left to others when protected users alone exceed it.
    pub reserve: f64,
}

impl Settings {
    /// The defaults, for a threshold in bytes a second.
    pub fn new(threshold: f64) -> Self {
        Self {
            threshold,
            integral_per_s: 10.0,
            most_trim: 0.6,
            rate_half_life_ms: 30.0,
            patience_ms: 200.0,
            reserve: 0.1,
        }
    }
}

/// A rate this far from the remembered one is a change of behaviour, not noise.
const SURPRISE: f64 = 0.3;
/// CPU time of a task that runs is known as of the last tick: so much of an interval's may belong to
/// another one.
const CPU_GRAIN_MS: f64 = 4.0;
/// An interval counts for so many times its CPU time at most, so that one with little of it, which
/// tells little of the rate, does not replace what is known.
const CPU_WEIGHT: f64 = 2.0;
/// The part of an error that one step integrates away at most.
const MOST_AT_ONCE: f64 = 0.5;
/// An error beyond this, relative to the threshold, is one of this size.
const MOST_ERROR: f64 = 0.3;
/// What is beyond is taken in the next steps, up to so much: bursts are many times the threshold, and
/// to leave that out would make the mean their median.
const MOST_OWED: f64 = 1.0;
/// Half-life of what counts as usual.
const USUAL_HALF_LIFE_MS: f64 = 500.0;
/// CPU time below which an interval says nothing of bytes per CPU second.
const LEAST_TO_LEARN_CPU: f64 = 0.002;
/// What a user who does not use its limit may come to want until the next step, over what it uses.
const HEADROOM: f64 = 1.5;
/// A limit that is used to this share holds its user back, even if nobody counted it.
const NEARLY_USED: f64 = 0.98;
/// A limit of which less is used, in the mean, does not: a burst that is more than the quota of one
/// period had to wait for the next one, and there was enough.
const HARDLY_USED: f64 = 0.5;
/// Half-life of that mean, longer than most periods.
const USED_HALF_LIFE_MS: f64 = 150.0;
/// What a user has left of its share may be used later, up to its share of this time.
const MOST_CREDIT_MS: f64 = 200.0;

/// What is remembered of one user.
#[derive(Clone, Debug)]
struct Memory {
    /// Bytes per CPU second.
    rate: Ewma,
    /// CPUs in the mean.
    used: Ewma,
    pace: Pace,
    /// Whether its limit held it back in the last interval.
    held: bool,
    /// Time since its limit last held it back.
    idle_ms: f64,
    /// What the last step expected it to move until this one, in bytes a second.
    expected: f64,
    /// Whether that was less than it wanted.
    slowed: bool,
    /// Bytes that it has left of its share lately.
    credit: f64,
    /// What it usually moves less than expected while no limit holds it back, in bytes a second.
    usually_less: f64,
    /// Whether it has been there for one interval only.
    new: bool,
}

/// What a step decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In the order of the loads.
    pub limits: Vec<Limit>,
    /// Bandwidth for a weight of 1; infinite: nobody is slowed.
    pub level: f64,
    /// The integral, relative to the threshold.
    pub trim: f64,
}

/// The controller of one device.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    users: HashMap<u64, Memory>,
    trim: f64,
    /// The level while somebody was slowed.
    usual_level: Ewma,
    /// What was unattributed in the last step, in bytes a second.
    unattributed: f64,
    /// What was expected of users who have gone since then.
    gone: f64,
    /// Of errors that were too large to be taken at once, what is still to be.
    owed: f64,
}

impl Controller {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            users: HashMap::new(),
            trim: 0.0,
            usual_level: Ewma::new(USUAL_HALF_LIFE_MS),
            unattributed: 0.0,
            gone: 0.0,
            owed: 0.0,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Another threshold, in bytes a second, from the next step on.
    pub fn set_threshold(&mut self, threshold: f64) {
        self.settings.threshold = threshold;
    }

    /// One step: what was measured in the last `interval_ms`, and of the device as a whole;
    /// `unattributed` is bandwidth (bytes a second) of nobody who could be limited.
    pub fn step(&mut self, interval_ms: f64, unattributed: f64, loads: &[Load]) -> Decision {
        self.remember(interval_ms, loads);
        let threshold = self.settings.threshold;
        self.correct(interval_ms, unattributed, loads);

        let first: f64 = loads
            .iter()
            .filter(|load| self.is_first(load))
            .map(|load| self.pace(load))
            .sum();
        let capacity = (threshold - unattributed - first).max(threshold * self.settings.reserve);
        let demands: Vec<Demand> = loads.iter().map(|load| self.demand(load)).collect();
        let mut shares = fair::shares(capacity, &demands);
        let slowed = self.slowed(loads, &demands, &shares.shares);
        self.trim_shares(&demands, &slowed, &mut shares.shares);
        self.expect(unattributed, loads, &slowed, &shares.shares);
        if shares.level.is_finite() {
            self.usual_level.add(interval_ms, shares.level);
        }
        let limits = loads
            .iter()
            .zip(&slowed)
            .zip(&shares.shares)
            .map(|((load, &slowed), &share)| Limit {
                id: load.id,
                cpu: self.limit(load, slowed.then_some(share), shares.level),
            })
            .collect();
        Decision {
            limits,
            level: shares.level,
            trim: self.trim,
        }
    }

    /// Learns what a CPU second of each user is worth; forgets users that are gone.
    fn remember(&mut self, interval_ms: f64, loads: &[Load]) {
        let settings = self.settings;
        let mut before = std::mem::take(&mut self.users);
        for load in loads {
            let mut user = before.remove(&load.id).unwrap_or_else(|| Memory {
                rate: Ewma::new(settings.rate_half_life_ms),
                used: Ewma::new(USED_HALF_LIFE_MS),
                pace: Pace::new(),
                held: false,
                idle_ms: 0.0,
                expected: 0.0,
                slowed: false,
                credit: 0.0,
                usually_less: 0.0,
                new: true,
            });
            let known = user.rate.value();
            // Who is new has used CPU time before anything is charged to it.
            let says = load.bandwidth.is_finite() && (load.bandwidth > 0.0 || known.is_some());
            if load.cpu > LEAST_TO_LEARN_CPU && says {
                let rate = load.bandwidth / load.cpu;
                let cpu_ms = load.cpu * interval_ms;
                let noise = SURPRISE + CPU_GRAIN_MS / cpu_ms;
                let surprising = known.is_some_and(|known| (rate / known - 1.0).abs() > noise);
                if surprising {
                    // The device's latency changed with its load: half of the way at once.
                    user.rate
                        .set(known.map_or(rate, |known| (known + rate) / 2.0));
                } else {
                    user.rate.add(interval_ms.min(CPU_WEIGHT * cpu_ms), rate);
                }
            }
            let share = load.weight * self.usual_level.value().unwrap_or(0.0);
            let most = share * MOST_CREDIT_MS / 1000.0;
            let left = (share - load.bandwidth) * interval_ms / 1000.0;
            user.credit = (user.credit + left).max(0.0).min(most);
            user.used.add(interval_ms, load.cpu);
            if load.limit.is_some() {
                user.pace.set(load.bandwidth);
            } else {
                user.pace.add(interval_ms, load.bandwidth);
            }
            user.held = binding(load, user.used.value().unwrap_or(load.cpu));
            user.idle_ms = if user.held {
                0.0
            } else {
                user.idle_ms + interval_ms
            };
            self.users.insert(load.id, user);
        }
        self.gone = before.values().map(|user| user.expected).sum();
    }

    /// Corrects the integral by what the total is off by, as far as limits are to blame: what
    /// somebody who is not held back moves more or less than before is shared out anew at once, and
    /// to integrate it would make the total overshoot. But only as far as that is unusual of him: who
    /// comes and goes all the time is no reason to leave the total where it is.
    fn correct(&mut self, interval_ms: f64, unattributed: f64, loads: &[Load]) {
        let threshold = self.settings.threshold;
        let (mut held, mut total) = (false, unattributed);
        // What others moved less than they usually do.
        let mut unusual = self.unattributed - unattributed + self.gone;
        let held_back = |user: &Memory| user.held && user.slowed;
        for load in loads {
            total += load.bandwidth;
            let Some(user) = self.users.get(&load.id) else {
                continue;
            };
            if held_back(user) {
                held = true;
            } else {
                unusual += user.expected - load.bandwidth - user.usually_less;
            }
        }
        let limited = loads.iter().any(|load| load.limit.is_some());
        if held {
            self.integrate(interval_ms, 1.0 - (total + unusual) / threshold);
        } else if !limited {
            // Nobody is limited: nothing is learnt, and what was is forgotten.
            self.trim *= self.kept(interval_ms);
            self.owed = 0.0;
        }
        let part = 1.0 - (-interval_ms / USUAL_HALF_LIFE_MS).exp2();
        for load in loads {
            let Some(user) = self.users.get_mut(&load.id) else {
                continue;
            };
            let less = match held {
                // What came with somebody goes with him.
                true if held_back(user) || user.new || !load.bandwidth.is_finite() => None,
                true => Some(user.expected - load.bandwidth),
                false => (!limited).then_some(0.0),
            };
            if let Some(less) = less {
                user.usually_less += part * (less - user.usually_less);
            }
            user.new = false;
        }
    }

    /// Who is to be slowed down to his share: who wants more, unless he may use now what he has left
    /// of it before. But somebody has to make room for that.
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

    /// What limits are off by in all is corrected at those whom limits hold back: others' shares are
    /// what they are.
    fn trim_shares(&self, demands: &[Demand], slowed: &[bool], shares: &mut [f64]) {
        let sum: f64 = shares
            .iter()
            .zip(slowed)
            .filter(|&(_, &slowed)| slowed)
            .map(|(share, _)| *share)
            .sum();
        let threshold = self.settings.threshold;
        let least = (self.settings.reserve * threshold / sum).min(1.0);
        let factor = (1.0 + self.trim * threshold / sum).max(least);
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
        let most = self.settings.most_trim;
        // However long the interval is, a part of the error only: the rates are being learnt too.
        let part = (1.0 - self.kept(interval_ms)).min(MOST_AT_ONCE);
        let error = error + self.owed;
        let now = error.clamp(-MOST_ERROR, MOST_ERROR);
        self.owed = (error - now).clamp(-MOST_OWED, MOST_OWED);
        self.trim = (self.trim + part * now).clamp(-most, most);
    }

    /// Remembers what everybody is expected to move until the next step.
    fn expect(&mut self, unattributed: f64, loads: &[Load], slowed: &[bool], shares: &[f64]) {
        self.unattributed = unattributed;
        for ((load, &slowed), &share) in loads.iter().zip(slowed).zip(shares) {
            let first = self.is_first(load).then(|| self.pace(load));
            if let Some(user) = self.users.get_mut(&load.id) {
                user.slowed = slowed;
                user.expected = first.unwrap_or(share);
            }
        }
    }

    fn demand(&self, load: &Load) -> Demand {
        let wanted = if self.is_first(load) {
            0.0
        } else if self.users.get(&load.id).is_some_and(|user| user.held) {
            f64::INFINITY
        } else if load.limit.is_some() && !self.lifted(load) {
            // It had more than it used, so what it wants is known; some more, lest it be short when
            // it wants more again.
            self.pace(load) * HEADROOM
        } else {
            self.pace(load)
        };
        Demand {
            wanted,
            weight: load.weight,
        }
    }

    /// What it is taken to move until the next step, in bytes a second.
    fn pace(&self, load: &Load) -> f64 {
        let user = self.users.get(&load.id);
        user.map_or(load.bandwidth, |user| user.pace.bandwidth())
    }

    /// Whether it is served before others: it is protected, or uses so little CPU time that the least
    /// limit would not slow it. Among a thousand users most are so, and limits would come and go.
    fn is_first(&self, load: &Load) -> bool {
        let slight = load.cpu * HEADROOM < LEAST_CPU;
        load.protected || slight && (load.limit.is_none() || self.lifted(load))
    }

    fn may_burst(&self, load: &Load) -> bool {
        let user = self.users.get(&load.id);
        load.limit.is_none() && user.is_some_and(|user| user.credit > 0.0)
    }

    /// Whether a limit has been idle for long enough to say that it hides nothing.
    fn lifted(&self, load: &Load) -> bool {
        let user = self.users.get(&load.id);
        user.is_some_and(|user| user.idle_ms >= self.settings.patience_ms)
    }

    /// Of somebody who is to be slowed down to a share, or is not.
    fn limit(&self, load: &Load, share: Option<f64>, level: f64) -> Option<f64> {
        // An idle limit stays for a while, at what the others have: it holds nobody back, and does
        // so at once if its user comes back.
        let kept = load.limit.is_some() && !load.protected && !self.lifted(load);
        if !(share.is_some() || kept) || !level.is_finite() {
            return None;
        }
        let share = share.unwrap_or(load.weight * level);
        match self.users.get(&load.id).and_then(|user| user.rate.value()) {
            Some(rate) if rate > 0.0 => Some((share / rate).max(LEAST_CPU)),
            // Nothing is known of it: as it is.
            _ => load.limit,
        }
    }
}

/// Whether its limit holds back a user that uses so many CPUs in the mean.
fn binding(load: &Load, used: f64) -> bool {
    load.limit.is_some_and(|limit| {
        load.cpu >= NEARLY_USED * limit || load.held_back && used >= HARDLY_USED * limit
    })
}
