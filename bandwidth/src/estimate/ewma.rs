//! An exponentially weighted moving average whose half-life is a time and not a number of samples,
//! so that it does not depend on the sampling rate.

/// The average; empty until the first value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ewma {
    half_life_ms: f64,
    value: Option<f64>,
}

impl Ewma {
    /// With a half-life of 0 it is the last value.
    pub fn new(half_life_ms: f64) -> Self {
        Self {
            half_life_ms,
            value: None,
        }
    }

    /// Adds the value of an interval; ignores a value that is not finite.
    pub fn add(&mut self, interval_ms: f64, value: f64) {
        if !value.is_finite() {
            return;
        }
        let old = self.value.unwrap_or(value);
        let kept = if self.half_life_ms > 0.0 {
            (-interval_ms.max(0.0) / self.half_life_ms).exp2()
        } else {
            0.0
        };
        self.value = Some(value + (old - value) * kept);
    }

    /// Replaces the average.
    pub fn set(&mut self, value: f64) {
        if value.is_finite() {
            self.value = Some(value);
        }
    }

    pub fn value(&self) -> Option<f64> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_in_a_half_life_however_often_it_is_fed() {
        for steps in [1, 4, 100] {
            let mut average = Ewma::new(100.0);
            average.set(8.0);
            for _ in 0..steps {
                average.add(100.0 / f64::from(steps), 0.0);
            }
            assert!((average.value().unwrap() - 4.0).abs() < 1e-9, "{steps}");
        }
    }

    #[test]
    fn the_first_value_is_the_average_and_invalid_ones_are_ignored() {
        let mut average = Ewma::new(100.0);
        average.add(1.0, f64::NAN);
        assert_eq!(average.value(), None);
        average.add(1.0, 3.0);
        average.add(1.0, f64::INFINITY);
        assert_eq!(average.value(), Some(3.0));
        let mut last = Ewma::new(0.0);
        last.add(1.0, 3.0);
        last.add(1.0, 5.0);
        assert_eq!(last.value(), Some(5.0));
    }
}
