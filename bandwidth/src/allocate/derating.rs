//! Detects a device that carries less than when its latency curve was measured, and derives how
//! much it carries now.
//!
//! ```text
//!  latency ▲      now   as measured          each sample of the latency tells the bandwidth at
//!          │       /      /                  which the curve has it: the *implied* bandwidth
//!  sample ─┼──────●------○
//!          │     /      /                    factor = mean of the total ÷ mean implied bandwidth
//!          │  __/  ____/                     expected = mean of the curve at factor × implied
//!          └─────┴──────┴──▶ bandwidth
//!              total  implied
//! ```
//!
//! The mean latency of a device whose load oscillates (quotas, turns) is above that of its mean
//! load, because curves are convex. Each sample is therefore converted on its own, and only
//! bandwidths are averaged.
//!
//! The device counts as derated when accesses take [`SLOW`] longer than the curve says for the
//! total; the factor alone would depend on noise where the curve is flat. Then the threshold is
//! multiplied by the factor: at that bandwidth accesses take as long as they did at the configured
//! threshold. From then on it changes as far as latencies that are off by [`TOLERATED`] do not
//! explain, and rises while accesses are as fast as the curve says.

use std::ops::RangeInclusive;

use crate::curve::Curve;
use crate::estimate::ewma::Ewma;

/// Half-life of the averages: eight samples of each of eight passes.
const HALF_LIFE_MS: f64 = 400.0;
/// Half-life of the factor's approach to what the samples say: one unusual second changes little.
const FOLLOW_HALF_LIFE_MS: f64 = 1000.0;
/// Longer intervals count as one of this length: a few samples say no more about them.
const MAX_INTERVAL_MS: f64 = 1000.0;
/// Accesses that take this much longer than the curve says are too slow.
const SLOW: f64 = 1.06;
/// A factor that may be above this is no loss, whatever the latency.
const LOSS: f64 = 0.95;
/// So long accesses must be too slow before the device counts as derated, and the threshold must
/// have been the configured one before it no longer does.
const SETTLED_MS: f64 = 1000.0;
/// Latencies may be off by this much: another way of measuring, another temperature.
const TOLERATED: f64 = 1.03;
/// Change of the factor's logarithm per second, for an error of 1 in the latency's logarithm.
const GAIN_PER_S: f64 = 1.6;
/// The smallest factor: a device that lost three of four lanes. Slower accesses have other causes,
/// which less traffic does not remove.
const MIN_FACTOR: f64 = 0.25;
/// At less than this fraction of the threshold users and not limits determine the total, so
/// nothing shows whether the device could carry more or less.
const USED_AT: f64 = 0.8;

/// Compares measured latencies with a curve.
#[derive(Clone, Debug)]
pub struct Derating {
    curve: Curve,
    /// The configured threshold, in bytes a second.
    threshold: f64,
    /// If the device were faster by [`TOLERATED`], as it was measured, and if it were slower.
    implied: [Ewma; 3],
    total: Ewma,
    latency: Ewma,
    expected: Ewma,
    /// The part of the threshold that is in force.
    factor: f64,
    /// For how long accesses have been too slow.
    slow_ms: f64,
    /// For how long the configured threshold has been in force again.
    restored_ms: f64,
    is_derated: bool,
}

impl Derating {
    /// A device with this curve and this threshold, in bytes a second.
    pub fn new(curve: Curve, threshold: f64) -> Self {
        Self {
            curve,
            threshold,
            implied: [Ewma::new(HALF_LIFE_MS); 3],
            total: Ewma::new(HALF_LIFE_MS),
            latency: Ewma::new(HALF_LIFE_MS),
            expected: Ewma::new(HALF_LIFE_MS),
            factor: 1.0,
            slow_ms: 0.0,
            restored_ms: 0.0,
            is_derated: false,
        }
    }

    /// Whether accesses take longer than the curve says for the total.
    pub fn is_derated(&self) -> bool {
        self.is_derated
    }

    /// The part of the configured threshold that is in force; 1 unless the device is derated.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// The latency that the curve has for the present total, in nanoseconds.
    pub fn expected_ns(&self) -> Option<f64> {
        self.expected.value()
    }

    /// One step: the device moved `total` bytes a second while these latencies were measured, in
    /// nanoseconds. Returns the threshold, in bytes a second.
    pub fn step(&mut self, interval_ms: f64, samples: &[f64], total: f64) -> f64 {
        if samples.is_empty() || !total.is_finite() || total <= 0.0 {
            return self.factor * self.threshold;
        }
        let interval_ms = interval_ms.min(MAX_INTERVAL_MS);
        let mean = |of: &dyn Fn(f64) -> f64| {
            samples.iter().map(|&ns| of(ns)).sum::<f64>() / samples.len() as f64
        };
        let curve = &self.curve;
        for (implied, off) in self
            .implied
            .iter_mut()
            .zip([1.0 / TOLERATED, 1.0, TOLERATED])
        {
            implied.add(interval_ms, mean(&|ns| curve.bandwidth_at(ns * off)));
        }
        self.total.add(interval_ms, total);
        self.latency.add(interval_ms, mean(&|ns| ns));
        let [max, carried, min] = self.carried();
        let expected = |ns| self.curve.latency_ns(carried * self.curve.bandwidth_at(ns));
        self.expected.add(interval_ms, mean(&expected));
        self.judge(interval_ms, carried, min..=max);
        self.factor * self.threshold
    }

    /// The part of the curve's bandwidth that the device carries, according to the samples: the
    /// maximum, the best estimate, and the minimum.
    fn carried(&self) -> [f64; 3] {
        self.implied
            .map(|implied| match (self.total.value(), implied.value()) {
                (Some(total), Some(implied)) if implied > 0.0 => (total / implied).min(1.0),
                _ => 1.0,
            })
    }

    fn judge(&mut self, interval_ms: f64, carried: f64, possible: RangeInclusive<f64>) {
        let (Some(latency), Some(expected)) = (self.latency.value(), self.expected.value()) else {
            return;
        };
        let excess = latency / expected;
        self.slow_ms = match excess > SLOW && *possible.end() < LOSS {
            true => self.slow_ms + interval_ms,
            false => (self.slow_ms - interval_ms).max(0.0),
        };
        if self.slow_ms >= SETTLED_MS && !self.is_derated {
            self.is_derated = true;
            self.slow_ms = 0.0;
            self.factor = carried.max(MIN_FACTOR);
        } else if self.is_derated {
            self.follow(interval_ms, excess, possible);
        }
    }

    fn follow(&mut self, interval_ms: f64, excess: f64, possible: RangeInclusive<f64>) {
        let possible = self.factor.clamp(*possible.start(), *possible.end());
        let kept = (-interval_ms / FOLLOW_HALF_LIFE_MS).exp2();
        let mut factor = possible + (self.factor - possible) * kept;
        let used = self.total.value().unwrap_or(0.0) / (self.factor * self.threshold);
        if excess < TOLERATED && used >= USED_AT {
            factor *= (GAIN_PER_S * interval_ms / 1000.0 * (TOLERATED / excess).ln()).exp();
        }
        self.factor = factor.clamp(MIN_FACTOR, 1.0);
        self.restored_ms = match self.factor >= 1.0 {
            true => self.restored_ms + interval_ms,
            false => 0.0,
        };
        if self.restored_ms >= SETTLED_MS {
            (self.is_derated, self.restored_ms) = (false, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::GIB;
    use crate::random::Random;

    const THRESHOLD: f64 = 4.8 * GIB;

    fn derating() -> Derating {
        Derating::new(Curve::find("kaemmerer-fpga").unwrap(), THRESHOLD)
    }

    /// A device that carries `part` of the curve's bandwidth. Users want `wanted`, in GiB/s, and
    /// follow the threshold at once; latencies are measured with a relative error of up to `noise`
    /// and are `off` times as long as they are. Returns after how many seconds it was derated.
    struct Device {
        part: f64,
        wanted: f64,
        noise: f64,
        off: f64,
    }

    const AS_MEASURED: Device = Device {
        part: 1.0,
        wanted: 9.0,
        noise: 0.0,
        off: 1.0,
    };

    fn run(derating: &mut Derating, device: &Device, seconds: f64) -> Option<f64> {
        let curve = derating.curve.derated(device.part);
        let (mut random, mut noticed_s) = (Random::new(7), None);
        for step in 0..(seconds / 0.05) as u32 {
            let mean = (device.wanted * GIB).min(derating.factor * THRESHOLD);
            let mut samples = Vec::new();
            for at in 0..8 {
                // Quotas and turns: the load oscillates around its mean.
                let bandwidth = mean * if at % 2 == 0 { 0.5 } else { 1.5 };
                let noise = 1.0 + device.noise * (2.0 * random.unit() - 1.0);
                samples.push(curve.latency_ns(bandwidth) * noise * device.off);
            }
            derating.step(50.0, &samples, mean);
            if derating.is_derated() {
                noticed_s.get_or_insert(f64::from(step) * 0.05);
            }
        }
        noticed_s
    }

    #[test]
    fn a_loss_of_three_tenths_is_noticed_within_three_seconds_and_followed() {
        for noise in [0.0, 0.1, 0.2] {
            let mut derating = derating();
            let (part, wanted) = (0.7, 9.0);
            let device = Device {
                part,
                wanted,
                noise,
                off: 1.0,
            };
            assert_eq!(run(&mut derating, &AS_MEASURED, 10.0), None);
            let noticed_s = run(&mut derating, &device, 20.0);
            assert!(noticed_s.is_some_and(|after| after < 3.0), "{noticed_s:?}");
            let factor = derating.factor();
            assert!((factor - part).abs() < 0.1, "noise {noise}: {factor}");
        }
    }

    #[test]
    fn noise_and_latencies_that_are_always_a_little_off_are_no_loss() {
        for (noise, off) in [
            (0.0, 0.95),
            (0.0, 1.03),
            (0.05, 1.03),
            (0.1, 1.03),
            (0.1, 1.0),
            (0.2, 1.0),
        ] {
            for wanted in [0.5, 3.0, 4.5, 9.0] {
                let device = Device {
                    wanted,
                    noise,
                    off,
                    ..AS_MEASURED
                };
                let mut derating = derating();
                let noticed_s = run(&mut derating, &device, 60.0);
                assert_eq!(noticed_s, None, "noise {noise}, off {off}, wanted {wanted}");
                assert_eq!(derating.factor(), 1.0);
            }
        }
    }

    #[test]
    fn a_device_that_recovers_gets_its_threshold_back_and_keeps_it() {
        let mut derating = derating();
        let lost = Device {
            part: 0.7,
            ..AS_MEASURED
        };
        run(&mut derating, &lost, 20.0);
        assert!(derating.is_derated());
        run(&mut derating, &AS_MEASURED, 30.0);
        assert!(!derating.is_derated(), "{}", derating.factor());
        assert_eq!(derating.factor(), 1.0);
        assert_eq!(run(&mut derating, &AS_MEASURED, 30.0), None);
    }

    #[test]
    fn what_is_known_stays_while_users_want_little() {
        let mut derating = derating();
        let lost = Device {
            part: 0.5,
            ..AS_MEASURED
        };
        run(&mut derating, &lost, 20.0);
        let before = derating.factor();
        let little = Device {
            wanted: 0.3,
            ..lost
        };
        run(&mut derating, &little, 60.0);
        assert!(derating.is_derated());
        assert!(
            (derating.factor() / before - 1.0).abs() < 0.3,
            "{before} {}",
            derating.factor()
        );
    }

    #[test]
    fn slow_accesses_that_less_traffic_does_not_make_faster_leave_a_quarter() {
        let mut derating = derating();
        let slow = Device {
            off: 3.0,
            ..AS_MEASURED
        };
        run(&mut derating, &slow, 60.0);
        assert_eq!(derating.factor(), MIN_FACTOR);
    }

    #[test]
    fn a_step_without_samples_or_traffic_changes_nothing() {
        let mut derating = derating();
        for _ in 0..200 {
            derating.step(50.0, &[], THRESHOLD);
            derating.step(50.0, &[900.0; 8], 0.0);
            derating.step(50.0, &[900.0; 8], f64::NAN);
        }
        assert!(!derating.is_derated());
        assert_eq!(derating.expected_ns(), None);
    }
}
