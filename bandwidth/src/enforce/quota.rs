//! A CPU limit as quota and period.
//!
//! The kernel takes quotas of 1 ms at least and periods up to 1 s; it looks at quotas on ticks, so
//! short periods make a task run often and briefly, which keeps the device's load even. Users whose
//! periods are equal would get their quotas at the same instants and fill the device together, so
//! each has a period of its own.

/// Least quota (`min_cfs_quota_period` in kernel/sched/core.c).
const LEAST_QUOTA_US: f64 = 1000.0;
/// Shorter periods would cost more timer interrupts than they are worth.
const LEAST_PERIOD_US: f64 = 4000.0;
/// Longest period (`max_cfs_quota_period`).
const MOST_PERIOD_US: f64 = 1_000_000.0;
/// Periods differ by up to this share.
const SPREAD: f64 = 0.4;
/// A limit that changes by less is not worth a write, which gives away what was used of the
/// running period.
const DEAD_BAND: f64 = 0.02;

/// What `cpu.max` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub quota_us: u64,
    pub period_us: u64,
}

impl Quota {
    /// A limit in CPUs, for the user with this number (any; neighbours differ most).
    pub fn of(cpu: f64, slot: u64) -> Self {
        // Multiples of the golden ratio are spread evenly, however many there are.
        let part = (slot as f64 * 0.618_033_988_749_895).fract();
        let period = (LEAST_QUOTA_US / cpu).max(LEAST_PERIOD_US) * (1.0 + SPREAD * part);
        let period_us = period.min(MOST_PERIOD_US).round();
        Self {
            quota_us: (cpu * period_us).round().max(LEAST_QUOTA_US) as u64,
            period_us: period_us as u64,
        }
    }

    /// The limit in CPUs.
    pub fn cpu(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// Whether a limit differs enough from the one in force to be written.
pub fn worth_writing(in_force: Option<f64>, wanted: Option<f64>) -> bool {
    match (in_force, wanted) {
        (Some(old), Some(new)) => (new / old - 1.0).abs() > DEAD_BAND,
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn the_kernel_takes_it_and_it_is_what_was_wanted(
            cpu in 0.01..64.0f64, slot in 0u64..100_000,
        ) {
            let quota = Quota::of(cpu, slot);
            prop_assert!(quota.quota_us >= 1000 && (1000..=1_000_000).contains(&quota.period_us));
            prop_assert!((quota.cpu() / cpu - 1.0).abs() < 0.001, "{quota:?}");
        }
    }

    #[test]
    fn quotas_do_not_refill_together() {
        let periods: HashSet<u64> = (0..100)
            .map(|slot| Quota::of(0.3, slot).period_us)
            .collect();
        assert!(periods.len() > 95, "{}", periods.len());
    }

    #[test]
    fn a_running_period_is_not_reset_for_nothing() {
        assert!(!worth_writing(Some(0.5), Some(0.505)));
        assert!(!worth_writing(None, None));
        assert!(worth_writing(Some(0.5), Some(0.4)));
        assert!(worth_writing(None, Some(0.9)));
        assert!(worth_writing(Some(0.9), None));
    }
}
