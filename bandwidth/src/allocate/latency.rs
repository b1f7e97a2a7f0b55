//! A threshold that follows from measured latency, where neither it nor the device's curve is given.
//!
//! ```text
//!  latency of a probe ──▶ too slow: threshold from the present total downwards
//!  total              ──▶ fast enough, and the threshold is what keeps it so: upwards
//!                         fast enough, and nobody wants more: as it is
//! ```
//!
//! The threshold moves in proportion to itself and to the logarithm of the latency's error, so it
//! does not matter how large device and latency are: integral control, with the loop that holds the
//! threshold ([`super::controller`]) inside. Near the knee latency changes several times as fast as
//! bandwidth, so this loop has to be a good deal slower than the inner one.

use crate::estimate::ewma::Ewma;

/// Times that latency is looked at between two steps: quotas and turns make it swing.
pub const PROBES: u32 = 8;

/// Change of the threshold's logarithm per second, for an error of 1 in the latency's logarithm.
const GAIN_PER_S: f64 = 0.8;
/// A longer interval counts as one of this length: one look says no more of it.
const MOST_INTERVAL_MS: f64 = 1000.0;
/// An error beyond this is one of this size: near saturation latency says little about bandwidth.
const MOST_ERROR: f64 = 0.7;
/// An error within this is none.
const TOLERATED: f64 = 0.02;
/// Half-life of the means of latency and total: quotas and turns make both swing.
const HALF_LIFE_MS: f64 = 150.0;
/// A total this near to the threshold is held there by it.
const HELD: f64 = 0.9;
/// Some of the largest total is always left, whatever the latency: it may have other causes.
const LEAST_SHARE: f64 = 0.05;

/// Finds the threshold at which accesses take so long.
#[derive(Clone, Debug)]
pub struct LatencyTarget {
    most_ns: f64,
    most: f64,
    latency: Ewma,
    total: Ewma,
    /// The largest mean total.
    peak: f64,
    /// The lowest mean latency.
    floor_ns: f64,
    threshold: f64,
}

impl LatencyTarget {
    /// For a latency in nanoseconds; the threshold starts at `most` (bytes a second), and is never
    /// higher.
    pub fn new(most_ns: f64, most: f64) -> Self {
        Self {
            most_ns,
            most,
            latency: Ewma::new(HALF_LIFE_MS),
            total: Ewma::new(HALF_LIFE_MS),
            peak: 0.0,
            floor_ns: f64::INFINITY,
            threshold: most,
        }
    }

    /// The mean latency of late, in nanoseconds.
    pub fn latency_ns(&self) -> Option<f64> {
        self.latency.value()
    }

    /// One step: the latency that was measured in the last `interval_ms`, if any was, and the total
    /// in bytes a second. Returns the threshold, in bytes a second.
    pub fn step(&mut self, interval_ms: f64, measured_ns: Option<f64>, total: f64) -> f64 {
        let measured = measured_ns.filter(|ns| *ns > 0.0 && ns.is_finite());
        let Some(measured) = measured else {
            return self.threshold;
        };
        self.latency.add(interval_ms, measured);
        // Before anything flows nothing is known of what it does.
        if total > 0.0 || self.peak > 0.0 {
            self.total.add(interval_ms, total);
        }
        let (Some(latency), Some(total)) = (self.latency.value(), self.total.value()) else {
            return self.threshold;
        };
        self.peak = self.peak.max(total);
        self.floor_ns = self.floor_ns.min(latency);
        let error = self.error(latency);
        let from = if error < -TOLERATED {
            // What nobody uses is not what makes it slow.
            self.threshold.min(total / HELD)
        } else if error > TOLERATED && total > HELD * self.threshold {
            self.threshold
        } else {
            return self.threshold;
        };
        let seconds = interval_ms.min(MOST_INTERVAL_MS) / 1000.0;
        let next = from * (GAIN_PER_S * seconds * error).exp();
        self.threshold = next.max(self.peak * LEAST_SHARE).min(self.most);
        self.threshold
    }

    /// How far the latency is off: negative, too slow. Below the knee a latency says little of the
    /// bandwidth, and one that is hardly above the least ever seen is far from it, however near to
    /// the one that is wanted.
    fn error(&self, latency: f64) -> f64 {
        let error = (self.most_ns / latency).ln();
        let far = if latency < self.most_ns {
            let room = (self.most_ns - latency) / (self.most_ns - self.floor_ns);
            room * room
        } else {
            error
        };
        error.max(far).clamp(-MOST_ERROR, MOST_ERROR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that answers in 100 ns, and twice as slowly for each 1 GiB/s beyond 4; users who
    /// want `wanted` and are held to the threshold at once.
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
    fn users_who_do_not_fill_the_device_are_not_limited_and_can_come_back() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        assert_eq!(run(&mut target, 3.0, 2.0).0, 3.0);
        run(&mut target, 9.0, 8.0);
        assert_eq!(run(&mut target, 3.0, 5.0).0, 3.0);
        let (total, _) = run(&mut target, 9.0, 2.0);
        assert!((total - 5.0).abs() < 0.1, "{total}");
    }

    #[test]
    fn a_latency_that_nobody_here_makes_leaves_them_some() {
        let mut target = LatencyTarget::new(200.0, 256.0);
        for _ in 0..2000 {
            target.step(50.0, Some(900.0), 1.0);
        }
        assert!((target.step(50.0, Some(900.0), 1.0) - LEAST_SHARE).abs() < 1e-9);
    }

    #[test]
    fn one_look_after_a_long_pause_moves_the_threshold_no_further_than_a_second_would() {
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
