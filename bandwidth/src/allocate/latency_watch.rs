//! The threshold that follows from measured latency: a maximum latency, a curve to compare with,
//! or both. The daemon and the simulator run this code.
//!
//! ```text
//!  samples ─┬─▶ derating: slower than the curve says?    ─▶ threshold × factor ─┐
//!           └─▶ target:   slower than the maximum latency? ─▶ threshold ────────┴─▶ the smaller
//! ```

use std::collections::VecDeque;

use super::derating::Derating;
use super::latency::LatencyTarget;
use crate::curve::Curve;
use crate::estimate::ewma::Ewma;

/// Latency samples between two steps: quotas and turns make latency oscillate.
pub const PROBES: u32 = 8;
/// Half-life of the average latency that is reported.
const HALF_LIFE_MS: f64 = 150.0;
/// Samples that are kept between two steps; a delayed pass has more.
const MAX_SAMPLES: usize = 64;
/// Samples of which quantiles are reported: those of a dozen seconds.
const MAX_RECENT: usize = 2048;

/// Watches the latency of one device.
#[derive(Clone, Debug)]
pub struct LatencyWatch {
    target: Option<LatencyTarget>,
    derating: Option<Derating>,
    latency: Ewma,
    max_threshold: f64,
    samples: Vec<f64>,
    recent: VecDeque<f64>,
}

impl LatencyWatch {
    /// Keeps the latency within `max_ns`, if there is one, and compares it with the curve, if there
    /// is one. The threshold, in bytes a second, never exceeds `max_threshold`.
    pub fn new(max_ns: Option<f64>, max_threshold: f64, curve: Option<Curve>) -> Self {
        Self {
            target: max_ns.map(|ns| LatencyTarget::new(ns, max_threshold)),
            derating: curve.map(|curve| Derating::new(curve, max_threshold)),
            latency: Ewma::new(HALF_LIFE_MS),
            max_threshold,
            samples: Vec::new(),
            recent: VecDeque::new(),
        }
    }

    /// Keeps the latency within `max_ns` from now on; `None`: no latency is kept.
    pub fn keep(&mut self, max_ns: Option<f64>) {
        if self.max_ns() != max_ns {
            self.target = max_ns.map(|ns| LatencyTarget::new(ns, self.max_threshold));
        }
    }

    /// Adds a latency sample, in nanoseconds.
    pub fn sample(&mut self, ns: f64) {
        if ns > 0.0 && ns.is_finite() && self.samples.len() < MAX_SAMPLES {
            self.samples.push(ns);
            if self.recent.len() == MAX_RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back(ns);
        }
    }

    /// The latencies that these fractions of the recent samples do not exceed, in nanoseconds;
    /// `None`: there is no sample.
    pub fn quantiles_ns<const N: usize>(&self, of: [f64; N]) -> Option<[f64; N]> {
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(of.map(|part| sorted[(part * last as f64).round() as usize]))
    }

    /// The threshold after an interval in which the device moved `total` bytes a second.
    pub fn step(&mut self, interval_ms: f64, total: f64) -> f64 {
        let samples = std::mem::take(&mut self.samples);
        let sum: f64 = samples.iter().sum();
        let mean = (!samples.is_empty()).then(|| sum / samples.len() as f64);
        if let Some(mean) = mean {
            self.latency.add(interval_ms, mean);
        }
        let target = self.target.as_mut();
        let target = target.map(|target| target.step(interval_ms, mean, total));
        let derating = self.derating.as_mut();
        let derating = derating.map(|derating| derating.step(interval_ms, &samples, total));
        let thresholds = target.into_iter().chain(derating);
        thresholds.fold(self.max_threshold, f64::min)
    }

    /// The latency that is kept, in nanoseconds, if one is.
    pub fn max_ns(&self) -> Option<f64> {
        self.target.as_ref().map(LatencyTarget::max_ns)
    }

    /// The recent average latency, in nanoseconds.
    pub fn latency_ns(&self) -> Option<f64> {
        self.latency.value()
    }

    /// The latency that the curve has for the present total, in nanoseconds.
    pub fn expected_ns(&self) -> Option<f64> {
        self.derating.as_ref().and_then(Derating::expected_ns)
    }

    /// The part of the curve's bandwidth that the device is taken to carry; 1 unless it is slower
    /// than its curve.
    pub fn factor(&self) -> f64 {
        self.derating.as_ref().map_or(1.0, Derating::factor)
    }

    /// Whether the device answers more slowly than its curve says; without a curve, too slowly at
    /// the maximum threshold: it carries less than when that was chosen.
    pub fn is_derated(&self) -> bool {
        match (&self.derating, &self.target) {
            (Some(derating), _) => derating.is_derated(),
            (None, target) => target.as_ref().is_some_and(LatencyTarget::is_derated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_recent_samples() {
        let mut watch = LatencyWatch::new(None, 1e9, None);
        assert_eq!(watch.quantiles_ns([0.5]), None);
        for round in 0..100 {
            // Old samples are slower.
            let slow = if round < 20 { 9000.0 } else { 0.0 };
            (1..=MAX_SAMPLES).for_each(|at| watch.sample(at as f64 + slow));
            watch.step(50.0, 1e9);
        }
        let [half, most, all] = watch.quantiles_ns([0.5, 0.99, 1.0]).unwrap();
        assert!((half - 32.5).abs() <= 1.0 && (most - 63.5).abs() <= 1.0 && all == 64.0);
    }

    #[test]
    fn a_latency_that_is_no_longer_kept_restores_the_threshold() {
        let mut watch = LatencyWatch::new(None, 8e9, None);
        watch.keep(Some(300.0));
        let mut threshold = 8e9;
        for _ in 0..200 {
            (0..8).for_each(|_| watch.sample(600.0));
            threshold = watch.step(50.0, 8e9);
            // The same latency again changes nothing.
            watch.keep(Some(300.0));
        }
        assert!(threshold < 4e9, "{threshold}");
        watch.keep(None);
        watch.sample(600.0);
        assert_eq!(watch.step(50.0, 8e9), 8e9);
    }
}
