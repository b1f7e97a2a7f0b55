//! The results of a simulation.

use serde::Serialize;

use crate::curve::GIB;

/// Mean, spread and quartiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Spread {
    /// Of these values, in any order; 0 for no values.
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = values.iter().map(|value| (value - mean).powi(2));
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
        Self {
            mean,
            stddev: (square.sum::<f64>() / count).sqrt(),
            q1: at(0.25),
            median: at(0.5),
            q3: at(0.75),
            p99: at(0.99),
        }
    }
}

/// Root mean square distance from a target.
pub fn rmse(values: &[f64], target: f64) -> f64 {
    let square = values.iter().map(|value| (value - target).powi(2));
    (square.sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// Latencies in classes of 5 %, weighted by bytes.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    classes: Vec<f64>,
    sum: f64,
    weight: f64,
}

const CLASS: f64 = 1.05;

impl Latencies {
    /// Adds accesses of this latency.
    pub fn add(&mut self, latency_ns: f64, weight: f64) {
        let class = (latency_ns.max(1.0).ln() / CLASS.ln()) as usize;
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0.0);
        }
        self.classes[class] += weight;
        self.sum += latency_ns * weight;
        self.weight += weight;
    }

    /// Mean latency.
    pub fn mean_ns(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }

    /// The upper end of the class at this fraction of the weight.
    pub fn quantile_ns(&self, part: f64) -> f64 {
        let mut left = self.weight * part;
        for (class, weight) in self.classes.iter().enumerate() {
            left -= weight;
            if left <= 0.0 {
                return CLASS.powi(class as i32 + 1);
            }
        }
        0.0
    }
}

/// The outcome of the measured time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Name of the policy.
    pub policy: &'static str,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The threshold in GiB/s.
    pub threshold_gib_s: f64,
    /// Total, in windows.
    pub bandwidth_gib_s: Spread,
    /// Root mean square error of the windows against the threshold.
    pub rmse_gib_s: f64,
    /// Mean latency of an access.
    pub access_ns_mean: f64,
    /// 99th percentile of the latency of an access.
    pub access_ns_p99: f64,
    /// Time to read a block of 4 MiB, including time without a CPU.
    pub block_us: Spread,
    /// The 99.9th percentile of the bandwidth of single blocks.
    pub block_spike_gib_s: f64,
    /// CPU time of memory tasks.
    pub cpu_s_per_gib: f64,
    /// Work of all compute tasks, in CPUs without a busy neighbour.
    pub compute_cpus: f64,
    /// Bandwidth of each memory task.
    pub tasks_gib_s: Vec<f64>,
    /// When the device was first found derated, where a latency is kept.
    pub derated_s: Option<f64>,
    /// Limits written per second.
    pub writes_s: f64,
    /// Total in each window, from the start.
    #[serde(skip)]
    pub windows_gib_s: Vec<f64>,
    /// Traffic of each window without limits.
    #[serde(skip)]
    pub wanted_gib_s: Vec<f64>,
    /// Length of a window.
    #[serde(skip)]
    pub window_ms: f64,
}

impl Outcome {
    /// Settling time: the time after `from_ms` from which on the bandwidth stays within the band
    /// for `hold_ms`; `None` if it never does.
    pub fn settled_ms(&self, from_ms: f64, hold_ms: f64, band: &Band) -> Option<f64> {
        let inside = self.inside(from_ms, band);
        let hold = (hold_ms / self.window_ms).round().max(1.0) as usize;
        let stays = |held: &[bool]| held.iter().all(|&inside| inside);
        let at = inside.windows(hold).position(stays)?;
        Some(at as f64 * self.window_ms)
    }

    /// The fraction of the time after `from_ms` in which the bandwidth is outside the band.
    pub fn outside(&self, from_ms: f64, band: &Band) -> f64 {
        let inside = self.inside(from_ms, band);
        let outside = inside.iter().filter(|&&inside| !inside).count();
        outside as f64 / inside.len().max(1) as f64
    }

    fn inside(&self, from_ms: f64, band: &Band) -> Vec<bool> {
        let span = (band.span_ms / self.window_ms).round().max(1.0) as usize;
        let from = (from_ms / self.window_ms).round() as usize;
        let used = self.windows_gib_s.get(from..).unwrap_or_default();
        let wanted = self.wanted_gib_s.get(from..).unwrap_or_default();
        let due = wanted.iter().map(|wanted| wanted.min(self.threshold_gib_s));
        let due: Vec<f64> = due.collect();
        let means = used.windows(span).zip(due.windows(span));
        let inside = means.map(|(used, due)| {
            let (used, due): (f64, f64) = (used.iter().sum(), due.iter().sum());
            (used - due).abs() <= band.relative * due
        });
        inside.collect()
    }
}

/// The tolerance around the threshold, or around the demand where that is less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Length of the moving averages.
    pub span_ms: f64,
    /// Relative tolerance.
    pub relative: f64,
}

/// Bytes as GiB.
pub fn gib(bytes: f64) -> f64 {
    bytes / GIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_those_of_the_values() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(
            (spread.mean, spread.q1, spread.median, spread.q3),
            (3.0, 2.0, 3.0, 4.0)
        );
        assert!((spread.stddev - 2f64.sqrt()).abs() < 1e-12);
        assert!((rmse(&[3.0, 5.0], 4.0) - 1.0).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn settling_is_staying_near_the_threshold_or_near_what_is_wanted() {
        let run = |windows: &[f64]| Outcome {
            threshold_gib_s: 4.0,
            windows_gib_s: windows.to_vec(),
            wanted_gib_s: [vec![8.0; 6], vec![2.0; 2]].concat(),
            window_ms: 10.0,
            ..Outcome::default()
        };
        let band = Band {
            span_ms: 10.0,
            relative: 0.1,
        };
        let late = run(&[9.0, 4.1, 3.0, 4.0, 4.0, 3.9, 2.0, 2.1]);
        assert_eq!(late.settled_ms(0.0, 20.0, &band), Some(30.0));
        assert_eq!(late.settled_ms(30.0, 20.0, &band), Some(0.0));
        assert_eq!(late.outside(0.0, &band), 2.0 / 8.0);
        let never = run(&[9.0, 4.1, 3.0, 4.0, 9.0, 3.9, 3.0, 2.1]);
        assert_eq!(never.settled_ms(0.0, 20.0, &band), None);
    }

    #[test]
    fn latencies_are_weighted() {
        let mut latencies = Latencies::default();
        latencies.add(400.0, 98.0);
        latencies.add(4000.0, 2.0);
        assert!((latencies.mean_ns() - 472.0).abs() < 1e-9);
        assert!((latencies.quantile_ns(0.5) / 400.0 - 1.0).abs() < 0.06);
        assert!((latencies.quantile_ns(0.99) / 4000.0 - 1.0).abs() < 0.06);
    }
}
