//! What the controller remembers of a user, and when a limit binds.
//!
//! Two rules bound what a user gains by alternating between activity and sleep:
//!
//! * *Debt.* What a user moves beyond its share while it is not limited is charged to its credit,
//!   which may become negative. Its limit is not lifted and it may not burst until that is paid by
//!   moving less. So over time no user moves more than its share, whatever its pattern.
//! * *Hold time.* A limit that is needed again after a pause stays for twice that pause from then
//!   on.
//!   A periodic user therefore returns to its limit, whatever its period.

use super::Load;
use super::demand::DemandPredictor;
use crate::estimate::ewma::Ewma;

/// A limit that is used to this fraction binds, even if the kernel counted no throttling.
const BINDING_THRESHOLD: f64 = 0.98;
/// A limit of which less is used on average does not bind: a burst longer than the quota of one
/// period waited for the next one, but there was enough.
const IDLE_THRESHOLD: f64 = 0.5;

/// A change of demand is measured as the mean of an interval and answered by limits that hold for
/// the next one, so the answer is one and a half intervals late. At a phase lag of more than 60°
/// following a periodic change adds to it instead of removing it: a cycle must take at least six
/// such delays.
const MIN_CYCLE_INTERVALS: f64 = 6.0 * 1.5;

/// A user may save up its share of this much time.
const MAX_CREDIT_MS: f64 = 200.0;
/// A user owes its share of at most this much time: fairness is a matter of seconds.
const MAX_DEBT_MS: f64 = 10_000.0;
/// A limit stays for this many times the longest recent pause between two times that it bound.
const HOLD_PAUSES: f64 = 2.0;
/// Half-life of the average CPU time, longer than most periods.
const USED_HALF_LIFE_MS: f64 = 150.0;
/// The longest limit hold time.
const MAX_HOLD_MS: f64 = 10_000.0;

/// What the controller remembers of one user.
#[derive(Clone, Debug)]
pub(super) struct UserState {
    /// Bytes per CPU second.
    pub(super) rate: Ewma,
    /// Average CPU time, in CPUs.
    pub(super) used: Ewma,
    pub(super) demand: DemandPredictor,
    /// Whether its limit held it back in the last interval.
    pub(super) held: bool,
    /// The limit that held it back last, in CPUs.
    bound_cpu: f64,
    /// Whether it has clearly used less since.
    has_paused: bool,
    /// Time since its limit began to hold it back, and between the last two such times.
    pub(super) cycle_ms: (f64, f64),
    /// Its average bandwidth over the shortest cycle that is followed, in bytes a second.
    pub(super) mean: Ewma,
    /// Whether its demand changes faster than limits can follow.
    pub(super) is_fast: bool,
    /// Time since it last needed a limit; infinite: never.
    pub(super) idle_ms: f64,
    /// What the last step expected it to move until this one, in bytes a second.
    pub(super) expected: f64,
    /// Whether that was less than its demand.
    pub(super) slowed: bool,
    /// Bytes of its share that it has saved up; negative: that it has moved beyond its share.
    pub(super) credit: f64,
    /// How long its limit must be unused before it is lifted.
    pub(super) hold_ms: f64,
    /// How much less than expected it usually moves while no limit binds, in bytes a second.
    pub(super) baseline_shortfall: f64,
    /// Whether it has existed for one interval only.
    pub(super) new: bool,
}

impl UserState {
    /// A user that was first measured in an interval of this length.
    pub(super) fn new(interval_ms: f64, rate_half_life_ms: f64, limit_hold_ms: f64) -> Self {
        Self {
            rate: Ewma::new(rate_half_life_ms),
            used: Ewma::new(USED_HALF_LIFE_MS),
            demand: DemandPredictor::new(),
            held: false,
            bound_cpu: 0.0,
            has_paused: true,
            cycle_ms: (f64::INFINITY, f64::INFINITY),
            mean: Ewma::new(MIN_CYCLE_INTERVALS * interval_ms),
            is_fast: false,
            idle_ms: f64::INFINITY,
            expected: 0.0,
            slowed: false,
            credit: 0.0,
            hold_ms: limit_hold_ms,
            baseline_shortfall: 0.0,
            new: true,
        }
    }

    /// Accounts for an interval in which it moved `bandwidth` and its share was `share`, both in
    /// bytes a second. `free`: it was not limited while other users were slowed.
    pub(super) fn account(&mut self, interval_ms: f64, share: f64, bandwidth: f64, free: bool) {
        let change = (share - bandwidth) * interval_ms / 1000.0;
        let max_credit = share * MAX_CREDIT_MS / 1000.0;
        let min_credit = match free {
            true => -share * MAX_DEBT_MS / 1000.0,
            // What a limit lets it move, or what no other user wants, is no debt.
            false => self.credit.min(0.0),
        };
        self.credit = (self.credit + change).max(min_credit).min(max_credit);
    }

    /// Ends an interval; `base_ms` is the shortest hold time.
    pub(super) fn hold(&mut self, load: &Load, interval_ms: f64, base_ms: f64) {
        let held = binding(load, self.used.value().unwrap_or(load.cpu));
        let (since_ms, last_ms) = &mut self.cycle_ms;
        *since_ms += interval_ms;
        if held {
            // A limit that is nearly used binds in some intervals and not in others; that is noise.
            if std::mem::take(&mut self.has_paused) {
                *last_ms = std::mem::take(since_ms);
            }
            self.bound_cpu = load.limit.unwrap_or(0.0);
        } else if load.cpu < IDLE_THRESHOLD * self.bound_cpu {
            self.has_paused = true;
        }
        let min_cycle_ms = MIN_CYCLE_INTERVALS * interval_ms;
        self.is_fast = since_ms.max(*last_ms) < min_cycle_ms;
        self.held = held;
        if held {
            return self.return_to_limit(base_ms);
        }
        self.idle_ms += interval_ms;
        if self.idle_ms > HOLD_PAUSES * self.hold_ms {
            self.hold_ms = base_ms;
        }
    }

    /// It needs a limit again, after a pause of `idle_ms`.
    pub(super) fn return_to_limit(&mut self, base_ms: f64) {
        self.hold_ms = match self.idle_ms <= MAX_HOLD_MS {
            true => (HOLD_PAUSES * self.idle_ms)
                .min(MAX_HOLD_MS)
                .max(self.hold_ms),
            // Longer ago than any hold time, or never before.
            false => base_ms,
        };
        self.idle_ms = 0.0;
    }
}

/// Whether the limit holds back a user with this average CPU time.
fn binding(load: &Load, used: f64) -> bool {
    load.limit.is_some_and(|limit| {
        load.cpu >= BINDING_THRESHOLD * limit || load.held_back && used >= IDLE_THRESHOLD * limit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user that used these parts of its limit, in intervals of 50 ms.
    fn after(parts: impl IntoIterator<Item = f64>) -> UserState {
        let mut user = UserState::new(50.0, 30.0, 200.0);
        for part in parts {
            let load = Load {
                limit: Some(0.5),
                ..Load::new(1, 1e9, 0.5 * part)
            };
            user.used.add(50.0, load.cpu);
            user.hold(&load, 50.0, 200.0);
        }
        user
    }

    fn in_turn(values: [f64; 2], each: usize) -> impl Iterator<Item = f64> {
        (0..80).map(move |at| values[at / each % 2])
    }

    #[test]
    fn a_user_that_pauses_often_changes_too_fast_to_be_followed() {
        assert!(after(in_turn([1.0, 0.0], 2)).is_fast);
        assert!(after(in_turn([1.0, 0.3], 2)).is_fast);
        assert!(
            !after(in_turn([1.0, 0.0], 10)).is_fast,
            "a period of a second"
        );
    }

    #[test]
    fn a_user_that_nearly_uses_its_limit_does_not() {
        assert!(!after(in_turn([1.0, 0.9], 1)).is_fast);
        assert!(!after(in_turn([1.0, 0.6], 2)).is_fast);
    }
}
