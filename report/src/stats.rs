//! Statistics of few values: what plots, tables and comparisons say of repeated measurements.
//!
//! Median and median absolute deviation instead of mean and standard deviation: durations are
//! skewed and have outliers. Pure functions; values that are not finite are left out.

/// What a number of values has in common.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// The minimum.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// The median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// The maximum.
    pub max: f64,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
}

impl Summary {
    /// Of what is finite among `values`; `None` where nothing is.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let sorted = sorted(values);
        let middle = quantile(&sorted, 0.5)?;
        Some(Summary {
            n: sorted.len(),
            min: sorted[0],
            q1: quantile(&sorted, 0.25)?,
            median: middle,
            q3: quantile(&sorted, 0.75)?,
            max: sorted[sorted.len() - 1],
            mad: mad(sorted.iter().copied())?,
        })
    }
}

/// The finite values, ascending.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The quantile at `p` (0 to 1) of ascending values: linear between the two nearest, type 7 of
/// Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), which R and NumPy use too.
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    let share = position - below as f64;
    // Not a + (b - a) * share: the difference of two huge values need not be finite.
    let between = sorted[below] * (1.0 - share) + sorted[above] * share;
    Some(between.clamp(sorted[below], sorted[above]))
}

/// The median of what is finite, or `None` where nothing is.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// The median absolute deviation from the median, not scaled.
pub fn mad(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    let middle = quantile(&sorted, 0.5)?;
    median(sorted.iter().map(|value| (value - middle).abs()))
}

/// A Gaussian kernel density estimate at `steps` places from the least to the most value, as
/// (place, density); the bandwidth is Silverman's rule of thumb ("Density Estimation for
/// Statistics and Data Analysis", 1986, equation 3.31). Empty where the values do not differ.
///
/// Cut at the extremes: beyond them nothing was measured.
pub fn density(values: impl IntoIterator<Item = f64>, steps: usize) -> Vec<(f64, f64)> {
    let sorted = sorted(values);
    let Some(summary) = Summary::of(sorted.iter().copied()) else {
        return Vec::new();
    };
    let n = sorted.len() as f64;
    let mean = sorted.iter().map(|value| value / n).sum::<f64>();
    let deviation = (sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    let quartiles = (summary.q3 - summary.q1) / 1.34;
    let spread = if quartiles > 0.0 {
        deviation.min(quartiles)
    } else {
        deviation
    };
    let bandwidth = 0.9 * spread * n.powf(-0.2);
    let range = summary.max - summary.min;
    let has_shape = bandwidth.is_finite() && bandwidth > 0.0 && range.is_finite() && range > 0.0;
    if !has_shape || steps < 2 {
        return Vec::new();
    }
    let scale = 1.0 / (n * bandwidth * (2.0 * std::f64::consts::PI).sqrt());
    (0..steps)
        .map(|step| {
            let at = summary.min + range * step as f64 / (steps - 1) as f64;
            let kernels = sorted
                .iter()
                .map(|value| (-0.5 * ((at - value) / bandwidth).powi(2)).exp());
            (at, scale * kernels.sum::<f64>())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([f64::NAN, 7.0, f64::INFINITY]), Some(7.0));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn the_figures_of_a_known_sample() {
        // NumPy: np.percentile([1,2,4,7,11], [25,50,75]) = [2,4,7]; deviations 3,2,0,3,7.
        let summary = Summary::of([7.0, 1.0, 11.0, 2.0, 4.0]).unwrap();
        assert_eq!((summary.n, summary.min, summary.max), (5, 1.0, 11.0));
        assert_eq!((summary.q1, summary.median, summary.q3), (2.0, 4.0, 7.0));
        assert_eq!(summary.mad, 3.0);
        // Between two values: np.percentile([1,2,3,4], 25) = 1.75.
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), Some(1.75));
    }

    #[test]
    fn values_that_do_not_differ_have_no_density() {
        assert!(density([2.0; 9], 20).is_empty());
        assert!(density([], 20).is_empty());
    }

    #[test]
    fn a_density_of_a_wide_sample_is_nearly_one_in_all() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let density = density(values, 200);
        let area: f64 = density
            .windows(2)
            .map(|w| (w[1].0 - w[0].0) * (w[0].1 + w[1].1) / 2.0)
            .sum();
        assert!((0.85..=1.0).contains(&area), "{area}");
    }

    fn any_values() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(-1e9..1e9, 1..60)
    }

    proptest! {
        #[test]
        fn quantiles_are_ordered_and_within_the_values(values in any_values()) {
            let s = Summary::of(values.iter().copied()).unwrap();
            prop_assert!(s.min <= s.q1 && s.q1 <= s.median && s.median <= s.q3 && s.q3 <= s.max);
            prop_assert!(s.mad >= 0.0 && s.mad <= s.max - s.min);
            prop_assert_eq!(s.n, values.len());
        }

        #[test]
        fn a_quantile_grows_with_its_p(values in any_values(), p in 0.0..1.0, q in 0.0..1.0) {
            let sorted = sorted(values);
            let (low, high) = if p < q { (p, q) } else { (q, p) };
            prop_assert!(quantile(&sorted, low) <= quantile(&sorted, high));
        }

        #[test]
        fn at_least_half_of_the_values_are_on_each_side_of_the_median(values in any_values()) {
            let middle = median(values.iter().copied()).unwrap();
            let below = values.iter().filter(|v| **v <= middle).count();
            let above = values.iter().filter(|v| **v >= middle).count();
            prop_assert!(2 * below >= values.len() && 2 * above >= values.len());
        }

        #[test]
        fn order_changes_nothing_and_a_shift_moves_the_median_only(
            values in proptest::collection::vec(-1000i32..1000, 1..40), by in -1000i32..1000
        ) {
            let forwards: Vec<f64> = values.iter().copied().map(f64::from).collect();
            let one = Summary::of(forwards.iter().copied()).unwrap();
            prop_assert_eq!(Some(one), Summary::of(forwards.iter().rev().copied()));
            let moved = Summary::of(forwards.iter().map(|v| v + f64::from(by))).unwrap();
            prop_assert!((moved.median - one.median - f64::from(by)).abs() < 1e-9);
            prop_assert!((moved.mad - one.mad).abs() < 1e-9);
        }

        #[test]
        fn a_density_is_never_negative_and_stays_within_the_values(values in any_values()) {
            let summary = Summary::of(values.iter().copied()).unwrap();
            for (at, density) in density(values, 40) {
                prop_assert!(density >= 0.0 && density.is_finite());
                prop_assert!(at >= summary.min - 1e-6 && at <= summary.max + 1e-6);
            }
        }

        #[test]
        fn what_is_not_finite_is_left_out(values in proptest::collection::vec(any::<f64>(), 0..20)) {
            let finite = values.iter().filter(|v| v.is_finite()).count();
            prop_assert_eq!(Summary::of(values).map_or(0, |s| s.n), finite);
        }
    }
}
