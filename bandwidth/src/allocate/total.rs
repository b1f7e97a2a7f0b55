//! The seed's reduction by the total: everybody's CPU time times threshold over total.
//!
//! Source: Kämmerer, *Hardware-Assisted Memory Bandwidth Management for CXL-based Memory Devices*
//! (2025), section 4.3.3.1, equation 4. As there, the factor is applied to the CPU time that was
//! used, and a limit that is not reached by much is none.

use super::{LEAST_CPU, Limit, Load, total_of};

/// The next limits. `threshold` is in bytes a second.
///
/// A user that never waits has one CPU at most in the seed (its users are single-threaded), so a
/// limit of one CPU or more is no limit.
pub fn limits(threshold: f64, loads: &[Load]) -> Vec<Limit> {
    let total = total_of(loads);
    loads
        .iter()
        .map(|load| Limit {
            id: load.id,
            cpu: bounded(load, threshold / total),
        })
        .collect()
}

/// The CPU time that was used times a factor, as a limit.
pub(super) fn bounded(load: &Load, factor: f64) -> Option<f64> {
    if !factor.is_finite() {
        return None;
    }
    // Nobody who was not limited is limited by what leaves room.
    if factor >= 1.0 && load.limit.is_none() {
        return None;
    }
    let cpu = (load.cpu * factor).max(LEAST_CPU);
    (cpu < 1.0).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_reduced_by_the_same_factor() {
        let loads = [Load::new(1, 2.0, 1.0), Load::new(2, 6.0, 0.5)];
        let limits = limits(4.0, &loads);
        assert_eq!(limits[0].cpu, Some(0.5));
        assert_eq!(limits[1].cpu, Some(0.25));
    }

    #[test]
    fn nobody_is_limited_below_the_threshold() {
        let loads = [Load::new(1, 1.0, 1.0), Load::new(2, 2.0, 0.5)];
        assert!(limits(4.0, &loads).iter().all(|limit| limit.cpu.is_none()));
        let idle = [Load::new(1, 0.0, 0.0)];
        assert_eq!(limits(4.0, &idle)[0].cpu, None);
    }

    #[test]
    fn no_limit_is_below_the_least() {
        let loads = [Load::new(1, 100.0, 0.001)];
        assert_eq!(limits(1.0, &loads)[0].cpu, Some(LEAST_CPU));
    }
}
