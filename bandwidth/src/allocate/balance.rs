//! Reduction by balance points: users with more bandwidth are reduced more.
//!
//! Source: Kämmerer 2025, section 4.3.3.2 and figure 3. Users are sorted by bandwidth and split
//! where the sums of both parts are nearest. The reduction of the lighter part shrinks by the
//! fraction by which its average is below the other's; the reduction of the heavier part grows by
//! the same. Each part is split again.

use super::total::bounded;
use super::{Limit, Load, total_of};

/// The next limits, in the order of the loads. `threshold` is in bytes a second.
pub fn limits(threshold: f64, loads: &[Load]) -> Vec<Limit> {
    let total = total_of(loads);
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by(|&a, &b| loads[a].bandwidth.total_cmp(&loads[b].bandwidth));
    let sorted: Vec<f64> = order.iter().map(|&at| loads[at].bandwidth).collect();
    let mut reductions = vec![0.0; loads.len()];
    if total > 0.0 {
        let mut of_sorted = vec![0.0; loads.len()];
        split(&sorted, 1.0 - threshold / total, &mut of_sorted);
        for (&at, reduction) in order.iter().zip(of_sorted) {
            reductions[at] = reduction;
        }
    }
    let limit = |(load, reduction): (&Load, f64)| Limit {
        id: load.id,
        cpu: bounded(load, 1.0 - reduction),
    };
    loads.iter().zip(reductions).map(limit).collect()
}

/// Reductions (0: none, 1: all; negative: more than now) of bandwidths in ascending order.
fn split(sorted: &[f64], reduction: f64, out: &mut [f64]) {
    if sorted.len() < 2 {
        out.fill(reduction);
        return;
    }
    let at = balance_point(sorted);
    let average = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (left, right) = (average(&sorted[..at]), average(&sorted[at..]));
    let apart = if right > 0.0 { 1.0 - left / right } else { 0.0 };
    let (lighter, heavier) = out.split_at_mut(at);
    let shift = reduction * apart;
    split(&sorted[..at], reduction - shift, lighter);
    split(&sorted[at..], reduction + shift, heavier);
}

/// The first index at which the left sum exceeds the right one; both parts have an entry.
fn balance_point(sorted: &[f64]) -> usize {
    let total: f64 = sorted.iter().sum();
    let mut left = 0.0;
    for (at, bandwidth) in sorted.iter().enumerate() {
        if at > 0 && left > total - left {
            return at;
        }
        left += bandwidth;
    }
    sorted.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_thesis_is_reproduced() {
        let bandwidths = [0.5, 1.2, 3.3];
        let loads: Vec<Load> = (0..3)
            .map(|at| Load::new(at as u64, bandwidths[at], 1.0))
            .collect();
        let limits = limits(4.0, &loads);
        let cpu: Vec<f64> = limits.iter().map(|limit| limit.cpu.unwrap()).collect();
        for (cpu, reduction) in cpu.iter().zip([0.02147, 0.08156, 0.34848]) {
            assert!((1.0 - cpu - reduction).abs() < 1e-4, "{cpu}");
        }
        let total: f64 = cpu.iter().zip(bandwidths).map(|(cpu, b)| cpu * b).sum();
        assert!((total - 3.74).abs() < 0.005, "{total}");
    }

    #[test]
    fn equal_users_are_reduced_as_by_the_total() {
        let loads: Vec<Load> = (0..5).map(|id| Load::new(id, 1.6, 0.9)).collect();
        let same = super::super::total::limits(4.0, &loads);
        for (a, b) in limits(4.0, &loads).iter().zip(same) {
            assert!((a.cpu.unwrap() - b.cpu.unwrap()).abs() < 1e-12);
        }
    }
}
