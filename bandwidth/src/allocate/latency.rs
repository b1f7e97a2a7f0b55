//! Derives the threshold from measured latency, where neither a threshold nor a latency curve is
//! configured.
//!
//! ```text
//!  latency of the probe ──▶ too high: the threshold falls from the present total
//!  total                ──▶ low enough, and the total is at the threshold: it rises
//!                           low enough, and users want no more: it stays
//! ```
//!
//! The threshold changes in proportion to itself and to the logarithm of the latency error, so the
//! gain does not depend on the size of device and latency. This is integral control; the loop that
//! holds the threshold ([`super::controller`]) is the inner loop. Near the knee latency changes
//! several times as fast as bandwidth, so this loop must be much slower than the inner one.

use crate::estimate::ewma::Ewma;

/// Change of the threshold's logarithm per second, for an error of 1 in the latency's logarithm.
const GAIN_PER_S: f64 = 0.8;
/// Longer intervals count as one of this length: a single sample says no more about them.
const MAX_INTERVAL_MS: f64 = 1000.0;
/// Errors are clamped to this: near saturation, latency says little about bandwidth.
const MAX_ERROR: f64 = 0.7;
/// Errors within this are ignored.
const TOLERATED: f64 = 0.02;
/// Half-life of the averages of latency and total: quotas and turns make both oscillate.
const HALF_LIFE_MS: f64 = 150.0;
/// A total above this fraction of the threshold is limited by it.
const HELD_AT: f64 = 0.9;
/// The threshold stays above this fraction of the largest total: the latency may have other
/// causes.
const MIN_SHARE: f64 = 0.05;

/// The latency must be too high for this long before the device counts as derated: longer than any
/// average, so that it is no single burst.
const DERATED_AFTER_MS: f64 = 1000.0;
/// Above this fraction of the threshold, users and not the device cause the latency.
const OVERLOADED_AT: f64 = 1.1;
/// A threshold above this fraction of its maximum fits again.
const FITS_AT: f64 = 0.95;

/// Searches the threshold at which an access takes the wanted time.
#[derive(Clone, Debug)]
pub struct LatencyTarget {
    max_ns: f64,
    max_threshold: f64,
    latency: Ewma,
    total: Ewma,
    /// The largest average total.
    peak: f64,
    /// The lowest average latency.
    floor_ns: f64,
    threshold: f64,
    /// For how long accesses have taken too long although the total was within the threshold.
    slow_ms: f64,
    is_derated: bool,
}

impl LatencyTarget {
    /// For a latency in nanoseconds. The threshold starts at `max_threshold` (bytes a second) and
    /// never exceeds it.
    pub fn new(max_ns: f64, max_threshold: f64) -> Self {
        Self {
            max_ns,
            max_threshold,
            latency: Ewma::new(HALF_LIFE_MS),
            total: Ewma::new(HALF_LIFE_MS),
            peak: 0.0,
            floor_ns: f64::INFINITY,
            threshold: max_threshold,
            slow_ms: 0.0,
            is_derated: false,
        }
    }

    /// The latency that is kept, in nanoseconds.
    pub fn max_ns(&self) -> f64 {
        self.max_ns
    }

    /// Whether the device answers too slowly at the maximum threshold: it carries less than when
    /// that was chosen.
    pub fn is_derated(&self) -> bool {
        self.is_derated
    }

    fn judge(&mut self, interval_ms: f64, latency: f64, total: f64) {
        // The threshold only falls because of the latency.
        let fits = self.threshold >= FITS_AT * self.max_threshold;
        let is_slow = latency > self.max_ns * (1.0 + TOLERATED);
        if (is_slow || !fits) && total <= OVERLOADED_AT * self.threshold {
            self.slow_ms += interval_ms.min(MAX_INTERVAL_MS);
        } else {
            self.slow_ms = 0.0;
        }
        if self.slow_ms >= DERATED_AFTER_MS {
            self.is_derated = true;
        } else if fits {
            self.is_derated = false;
        }
    }

    /// One step, with the latency measured in the last `interval_ms`, if there is one, and the
    /// total in bytes a second. Returns the threshold, in bytes a second.
    pub fn step(&mut self, interval_ms: f64, measured_ns: Option<f64>, total: f64) -> f64 {
        let measured = measured_ns.filter(|ns| *ns > 0.0 && ns.is_finite());
        let Some(measured) = measured else {
            return self.threshold;
        };
        self.latency.add(interval_ms, measured);
        // Before the first traffic the total says nothing about the device.
        if total > 0.0 || self.peak > 0.0 {
            self.total.add(interval_ms, total);
        }
        let (Some(latency), Some(total)) = (self.latency.value(), self.total.value()) else {
            return self.threshold;
        };
        self.peak = self.peak.max(total);
        self.floor_ns = self.floor_ns.min(latency);
        self.judge(interval_ms, latency, total);
        let error = self.error(latency);
        let from = if error < -TOLERATED {
            // Unused bandwidth does not cause the latency.
            self.threshold.min(total / HELD_AT)
        } else if error > TOLERATED && total > HELD_AT * self.threshold {
            self.threshold
        } else {
            return self.threshold;
        };
        let seconds = interval_ms.min(MAX_INTERVAL_MS) / 1000.0;
        let next = from * (GAIN_PER_S * seconds * error).exp();
        self.threshold = next.max(self.peak * MIN_SHARE).min(self.max_threshold);
        self.threshold
    }

    /// The latency error; negative: too slow. Below the knee latency says little about bandwidth:
    /// a latency near the lowest one ever seen counts as far from the target, even if the target
    /// is near.
    fn error(&self, latency: f64) -> f64 {
        let error = (self.max_ns / latency).ln();
        let distance = if latency < self.max_ns {
            let room = (self.max_ns - latency) / (self.max_ns - self.floor_ns);
            room * room
        } else {
            error
        };
        error.max(distance).clamp(-MAX_ERROR, MAX_ERROR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that answers in 100 ns, and twice as slowly for each 1 GiB/s beyond 4. Users want
    /// `wanted` and follow the threshold at once.
    fn run(target: &mut LatencyTarget, wanted: f64, seconds: f64) -> (f64, f64) {
        let (mut total, mut latency) = (wanted, 0.0);
        for _ in 0..(seconds / 0.05) as u32 {
            latency = 100.0 * (total - 4.0).max(0.0).exp2();
            total = wanted.min(target.step(50.0, Some(latency), total));
        }
        (total, latency)
    }

    #[test]
    fn the_total_settles_where_accesses_take_as_long_as_they_may() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        let (total, latency) = run(&mut target, 9.0, 8.0);
        assert!((total - 5.0).abs() < 0.1, "{total}");
        assert!((latency / 200.0 - 1.0).abs() < 0.05, "{latency}");
    }

    #[test]
    fn users_below_the_knee_are_not_limited_and_can_return() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        assert_eq!(run(&mut target, 3.0, 2.0).0, 3.0);
        run(&mut target, 9.0, 8.0);
        assert_eq!(run(&mut target, 3.0, 5.0).0, 3.0);
        let (total, _) = run(&mut target, 9.0, 2.0);
        assert!((total - 5.0).abs() < 0.1, "{total}");
    }

    #[test]
    fn latency_with_other_causes_leaves_users_a_minimum() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        for _ in 0..2000 {
            target.step(50.0, Some(900.0), 1.0);
        }
        assert!((target.step(50.0, Some(900.0), 1.0) - MIN_SHARE).abs() < 1e-9);
    }

    #[test]
    fn a_device_that_carries_less_than_before_is_noticed_and_one_that_recovers_too() {
        let mut target = LatencyTarget::new(200.0, 5.0);
        let mut run = |knee: f64, seconds: f64| {
            let mut noticed_s = None;
            for step in 0..(seconds / 0.05) as u32 {
                let total = target.threshold.min(9.0);
                let latency = 100.0 * (total - knee).max(0.0).exp2();
                target.step(50.0, Some(latency), total);
                if target.is_derated() {
                    noticed_s.get_or_insert(f64::from(step) * 0.05);
                }
            }
            (noticed_s, target.is_derated(), target.threshold)
        };
        assert_eq!(run(4.1, 20.0).0, None);
        let (noticed_s, is_derated, threshold) = run(3.0, 20.0);
        assert!(noticed_s.is_some_and(|after| after < 3.0), "{noticed_s:?}");
        assert!(is_derated && (threshold - 4.0).abs() < 0.1, "{threshold}");
        let (_, is_derated, threshold) = run(4.5, 20.0);
        assert!(!is_derated && threshold == 5.0, "{threshold}");
    }

    #[test]
    fn users_that_overload_the_device_are_no_derating() {
        let mut target = LatencyTarget::new(200.0, 5.0);
        for _ in 0..20 {
            target.step(50.0, Some(900.0), 8.0);
        }
        assert!(!target.is_derated());
    }

    #[test]
    fn one_step_after_a_long_pause_counts_as_one_second() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        target.step(60_000.0, Some(900.0), 250.0);
        assert!(target.threshold > 256.0 / 1.8, "{}", target.threshold);
    }

    #[test]
    fn a_probe_that_says_nothing_or_nonsense_changes_nothing() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        let before = run(&mut target, 9.0, 8.0).0;
        for measured in [None, Some(f64::NAN), Some(0.0), Some(-1.0)] {
            let after = target.step(50.0, measured, 9.0);
            assert!((after / before - 1.0).abs() < 0.01, "{measured:?}");
        }
    }
}
