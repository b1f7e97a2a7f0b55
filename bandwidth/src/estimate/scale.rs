//! The ratio of counted bytes to sampled bytes of a group whose samples cover all traffic.
//!
//! Samples and counters are not read at the same instant: a burst may be counted in one interval
//! and sampled in the next. Dividing each interval's count among its samples would charge such a
//! burst to other users. Therefore samples are used as they are, times one factor that changes
//! slowly: in the long run everything that was counted is charged, and nothing twice.

/// Half-life of both sums: two hundred intervals, so that samples that are late by one interval
/// cause an error of less than half a percent.
const HALF_LIFE_MS: f64 = 10_000.0;
/// The initial sums: the factor starts at 1.
const BELIEVED: f64 = 1048576.0;

/// Both sums, decayed.
#[derive(Clone, Debug)]
pub struct Scale {
    counted: f64,
    sampled: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            counted: BELIEVED,
            sampled: BELIEVED,
        }
    }
}

impl Scale {
    /// The factor after an interval with these counted and sampled bytes.
    pub fn factor(&mut self, interval_ms: f64, counted: f64, sampled: f64) -> f64 {
        let kept = 0.5f64.powf(interval_ms / HALF_LIFE_MS);
        self.counted = self.counted * kept + counted;
        self.sampled = self.sampled * kept + sampled;
        match self.sampled > 0.0 {
            true => self.counted / self.sampled,
            // Only after a very long time without samples; there is nothing to charge then.
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_another_interval_are_not_charged_to_the_present_users() {
        // Each burst is counted in one interval and sampled in the next; another user moves
        // little.
        let mut scale = Scale::default();
        let (mut burst, mut other) = (0.0, 0.0);
        for at in 0..2000 {
            let counted = if at % 4 == 0 { 1e6 } else { 0.0 } + 1e4;
            let sampled = if at % 4 == 1 { 1e6 } else { 0.0 };
            let factor = scale.factor(50.0, counted, sampled + 1e4);
            burst += factor * sampled;
            other += factor * 1e4;
        }
        assert!((burst / 500e6 - 1.0).abs() < 0.01, "{burst}");
        assert!((other / 20e6 - 1.0).abs() < 0.01, "{other}");
    }

    #[test]
    fn one_of_how_many_is_sampled_need_not_be_known() {
        let mut scale = Scale::default();
        let mut factor = 1.0;
        for _ in 0..2000 {
            factor = scale.factor(50.0, 7e6, 1e6);
        }
        assert!((factor - 7.0).abs() < 0.01, "{factor}");
        for _ in 0..100_000 {
            factor = scale.factor(50.0, 0.0, 0.0);
        }
        assert!(factor.is_finite());
    }
}
