//! Reduction by the total: each limit is multiplied by threshold over total.
//!
//! Source: Kämmerer 2025, section 4.3.3.1, equation 4. The factor applies to the limit in force,
//! not to the CPU time used: in figure 12 a user of a quarter of a CPU has a limit of two thirds,
//! and section 6.4 finds such a limit at fio's control process, too.

use super::{Limit, Load, MIN_CPU, total_of};

/// The next limits. `threshold` is in bytes a second.
///
/// Users in Kämmerer 2025 have one thread, so a limit of one CPU or more is no limit.
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

/// The limit in force times a factor; without a limit, one CPU is the start (Kämmerer 2025, figure
/// 3).
pub(super) fn bounded(load: &Load, factor: f64) -> Option<f64> {
    if !factor.is_finite() {
        return None;
    }
    // An unlimited user stays unlimited while there is room.
    if factor >= 1.0 && load.limit.is_none() {
        return None;
    }
    let cpu = (load.limit.unwrap_or(1.0) * factor).max(MIN_CPU);
    (cpu < 1.0).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_reduced_by_the_same_factor() {
        let mut loads = [Load::new(1, 2.0, 1.0), Load::new(2, 6.0, 0.3)];
        loads[1].limit = Some(0.5);
        let limits = limits(4.0, &loads);
        assert_eq!(limits[0].cpu, Some(0.5));
        assert_eq!(limits[1].cpu, Some(0.25));
    }

    #[test]
    fn no_user_is_limited_below_the_threshold() {
        let loads = [Load::new(1, 1.0, 1.0), Load::new(2, 2.0, 0.5)];
        assert!(limits(4.0, &loads).iter().all(|limit| limit.cpu.is_none()));
        let idle = [Load::new(1, 0.0, 0.0)];
        assert_eq!(limits(4.0, &idle)[0].cpu, None);
    }

    #[test]
    fn no_limit_is_below_the_minimum() {
        let loads = [Load::new(1, 1000.0, 1.0)];
        assert_eq!(limits(1.0, &loads)[0].cpu, Some(MIN_CPU));
    }
}
