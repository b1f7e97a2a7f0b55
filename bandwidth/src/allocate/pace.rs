//! What a user is taken to move until the next look, of what it moved until this one.
//!
//! ```text
//!  moved  ▁▁█▁▁▁▁▁█▁▁▁█▁▁▁     comes in bursts: the mean; what others are left does not jump with it
//!         ▂▂▂▂▂▁▁▅▅▅▅▅▅▅▅▅     changed: as it is now, at once
//! ```
//!
//! It has changed if it is off its mean by more than twice of what it was off lately.

use crate::estimate::ewma::Ewma;

/// Half-life of the mean.
const MEAN_HALF_LIFE_MS: f64 = 100.0;
/// Half-life of how far off the mean it was: long enough for a burst or more a second.
const RANGE_HALF_LIFE_MS: f64 = 1000.0;
/// What is this many times as far off is a change.
const CHANGE: f64 = 2.0;

/// The pace of one user.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    mean: Ewma,
    /// How far off the mean it was lately, at most.
    range: f64,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            mean: Ewma::new(MEAN_HALF_LIFE_MS),
            range: 0.0,
        }
    }

    /// What it moved in an interval, in bytes a second.
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

    /// It moved that under a limit, which makes the pace.
    pub fn set(&mut self, bandwidth: f64) {
        self.mean.set(bandwidth);
    }

    /// In bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.mean.value().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_MS: f64 = 50.0;

    fn after(values: &[f64]) -> Pace {
        let mut pace = Pace::new();
        for &value in values {
            pace.add(INTERVAL_MS, value);
        }
        pace
    }

    #[test]
    fn a_change_is_followed_at_once() {
        assert_eq!(after(&[5.0]).bandwidth(), 5.0);
        let steady = after(&[5.0, 5.1, 4.9, 5.0, 5.1]);
        assert!((steady.bandwidth() - 5.0).abs() < 0.1);
        for changed in [9.0, 3.0, 0.0] {
            let mut pace = steady;
            pace.add(INTERVAL_MS, changed);
            assert_eq!(pace.bandwidth(), changed);
        }
    }

    #[test]
    fn of_bursts_it_is_the_mean() {
        let mut pace = after(&[0.0]);
        let (mut sum, mut count) = (0.0, 0.0);
        for step in 0..200 {
            pace.add(INTERVAL_MS, if step % 10 == 0 { 10.0 } else { 0.0 });
            if step >= 100 {
                assert!(pace.bandwidth() < 4.0, "{step}: {pace:?}");
                sum += pace.bandwidth();
                count += 1.0;
            }
        }
        assert!((sum / count - 1.0f64).abs() < 0.1, "{}", sum / count);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut pace = after(&[5.0, f64::NAN]);
        assert_eq!(pace.bandwidth(), 5.0);
        pace.add(INTERVAL_MS, 7.0);
        assert_eq!(pace.bandwidth(), 7.0);
    }
}
