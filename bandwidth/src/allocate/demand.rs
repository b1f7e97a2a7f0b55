//! Predicts what a user moves until the next scan from what it moved before.
//!
//! ```text
//!  moved  ▁▁█▁▁▁▁▁█▁▁▁█▁▁▁     bursts: the mean, so that the shares of others do not jump
//!         ▂▂▂▂▂▁▁▅▅▅▅▅▅▅▅▅     a change: followed at once
//! ```
//!
//! A value is a change if it deviates from the mean by more than twice the recent range.

use crate::estimate::ewma::Ewma;

/// Half-life of the mean.
const MEAN_HALF_LIFE_MS: f64 = 100.0;
/// Half-life of the range: long enough for one burst a second.
const RANGE_HALF_LIFE_MS: f64 = 1000.0;
/// A deviation of more than this many times the range is a change.
const CHANGE: f64 = 2.0;

/// The demand predictor of one user.
#[derive(Clone, Copy, Debug)]
pub struct DemandPredictor {
    mean: Ewma,
    /// The largest recent deviation from the mean.
    range: f64,
}

impl DemandPredictor {
    pub fn new() -> Self {
        Self {
            mean: Ewma::new(MEAN_HALF_LIFE_MS),
            range: 0.0,
        }
    }

    /// Adds what it moved in an interval, in bytes a second.
    pub fn add(&mut self, interval_ms: f64, bandwidth: f64) {
        let Some(mean) = self.mean.value() else {
            return self.mean.set(bandwidth);
        };
        let off = (bandwidth - mean).abs();
        if off > CHANGE * self.range {
            self.mean.set(bandwidth);
        } else {
            self.mean.add(interval_ms, bandwidth);
        }
        self.range *= (-interval_ms / RANGE_HALF_LIFE_MS).exp2();
        self.range = self.range.max(off);
    }

    /// Under a limit the last value is the prediction.
    pub fn set(&mut self, bandwidth: f64) {
        self.mean.set(bandwidth);
    }

    /// The prediction, in bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.mean.value().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_MS: f64 = 50.0;

    fn after(values: &[f64]) -> DemandPredictor {
        let mut predictor = DemandPredictor::new();
        for &value in values {
            predictor.add(INTERVAL_MS, value);
        }
        predictor
    }

    #[test]
    fn a_change_is_followed_at_once() {
        assert_eq!(after(&[5.0]).bandwidth(), 5.0);
        let steady = after(&[5.0, 5.1, 4.9, 5.0, 5.1]);
        assert!((steady.bandwidth() - 5.0).abs() < 0.1);
        for changed in [9.0, 3.0, 0.0] {
            let mut predictor = steady;
            predictor.add(INTERVAL_MS, changed);
            assert_eq!(predictor.bandwidth(), changed);
        }
    }

    #[test]
    fn bursts_are_averaged() {
        let mut predictor = after(&[0.0]);
        let (mut sum, mut count) = (0.0, 0.0);
        for step in 0..200 {
            predictor.add(INTERVAL_MS, if step % 10 == 0 { 10.0 } else { 0.0 });
            if step >= 100 {
                assert!(predictor.bandwidth() < 4.0, "{step}: {predictor:?}");
                sum += predictor.bandwidth();
                count += 1.0;
            }
        }
        assert!((sum / count - 1.0f64).abs() < 0.1, "{}", sum / count);
    }

    #[test]
    fn values_that_are_not_finite_are_ignored() {
        let mut predictor = after(&[5.0, f64::NAN]);
        assert_eq!(predictor.bandwidth(), 5.0);
        predictor.add(INTERVAL_MS, 7.0);
        assert_eq!(predictor.bandwidth(), 7.0);
    }
}
