//! Confidence interval of the failure rate after a number of cycles.

/// Failures in this share of repeated runs would lie above the bound.
const ALPHA: f64 = 0.05;

/// The 95 % interval of the failure rate after `failures` in `cycles`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Bound {
    pub low: f64,
    pub high: f64,
    /// How it was found, for the reader.
    pub method: &'static str,
}

/// Without a failure the rule of three (Hanley, Lippman-Hand: "If nothing goes wrong, is
/// everything all right?", 1983): the one-sided 95 % bound is 3/N. With failures the exact
/// two-sided interval of Clopper and Pearson (1934). None where nothing was run.
pub fn bound(failures: u64, cycles: u64) -> Option<Bound> {
    if cycles == 0 || failures > cycles {
        return None;
    }
    if failures == 0 {
        return Some(Bound {
            low: 0.0,
            high: (3.0 / cycles as f64).min(1.0),
            method: "rule of three, 95 %",
        });
    }
    let high = if failures == cycles {
        1.0
    } else {
        // The rate at which this many failures, or fewer, would be rare.
        falling_root(|rate| probability_up_to(failures, cycles, rate) - ALPHA / 2.0)
    };
    // The rate at which this many failures, or more, would be rare.
    let low =
        falling_root(|rate| probability_up_to(failures - 1, cycles, rate) - (1.0 - ALPHA / 2.0));
    Some(Bound {
        low,
        high,
        method: "Clopper-Pearson, 95 %",
    })
}

/// Where a function that falls from 0 to 1 crosses zero.
fn falling_root(function: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if function(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The binomial distribution: the probability of at most `failures` in `cycles`.
fn probability_up_to(failures: u64, cycles: u64, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    if rate >= 1.0 {
        return f64::from(u8::from(failures >= cycles));
    }
    // In logarithms, so that (1 - rate)^cycles does not vanish.
    let mut term = cycles as f64 * (1.0 - rate).ln();
    let odds = (rate / (1.0 - rate)).ln();
    let mut sum = term.exp();
    for count in 0..failures {
        term += ((cycles - count) as f64 / (count + 1) as f64).ln() + odds;
        sum += term.exp();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_hundred_good_cycles_bound_the_rate_at_one_percent() {
        let bound = bound(0, 300).unwrap();
        assert_eq!((bound.low, bound.high), (0.0, 0.01));
        assert_eq!(super::bound(0, 2).unwrap().high, 1.0);
        assert!(super::bound(0, 0).is_none());
    }

    /// Values of R's `binom.test(k, n)$conf.int`.
    #[test]
    fn with_failures_the_interval_is_clopper_and_pearsons() {
        for (failures, cycles, low, high) in [
            (1, 10, 0.002_528_579, 0.445_016_117),
            (5, 10, 0.187_086_029, 0.812_913_971),
            (1, 300, 8.438_9e-5, 0.018_435),
            (10, 10, 0.691_502_892, 1.0),
        ] {
            let bound = bound(failures, cycles).unwrap();
            assert!(
                (bound.low - low).abs() < 2e-6,
                "{failures}/{cycles}: {bound:?}"
            );
            assert!(
                (bound.high - high).abs() < 2e-5,
                "{failures}/{cycles}: {bound:?}"
            );
        }
    }
}
