//! Permissions to be async: as recorded, all, none, or by the threshold rule of Kannan 2024.

use serde::Serialize;

use super::Problem;
use crate::model::{Edges, Recording};

/// A rule for `power/async`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// As recorded (`power/async`).
    AsRecorded,
    /// Every device.
    All,
    /// No device.
    None,
    /// Devices slower than this in their worst case, all their direct and indirect dependents, and
    /// all devices that they depend on.
    Threshold(u64),
}

/// The permission of each device under a rule. `worst_ns` is each device's worst time, for
/// [`Permission::Threshold`].
pub fn permissions(
    rule: Permission,
    recording: &Recording,
    edges: &Edges,
    worst_ns: &[u64],
) -> Vec<bool> {
    let devices = &recording.graph.devices;
    match rule {
        Permission::AsRecorded => devices
            .iter()
            .map(|device| device.is_async == Some(true))
            .collect(),
        Permission::All => vec![true; devices.len()],
        Permission::None => vec![false; devices.len()],
        Permission::Threshold(threshold_ns) => closure(edges, worst_ns, threshold_ns),
    }
}

/// The threshold rule of Kannan 2024: `async` for each
/// device whose worst time exceeds the threshold, for its consumers and children and theirs, and
/// for its suppliers and parents and theirs. So no async device waits for a sync one that stands
/// deep in the list.
pub fn closure(edges: &Edges, worst_ns: &[u64], threshold_ns: u64) -> Vec<bool> {
    let slow: Vec<usize> = (0..edges.devices())
        .filter(|&device| worst_ns.get(device).is_some_and(|&ns| ns > threshold_ns))
        .collect();
    let below = reached(edges, &slow, Edges::subordinates);
    let above = reached(edges, &slow, Edges::superiors);
    below
        .into_iter()
        .zip(above)
        .map(|(below, above)| below || above)
        .collect()
}

fn reached(
    edges: &Edges,
    from: &[usize],
    neighbours: impl Fn(&Edges, usize) -> &[u32],
) -> Vec<bool> {
    let mut reached = vec![false; edges.devices()];
    let mut stack = from.to_vec();
    for &device in from {
        reached[device] = true;
    }
    while let Some(device) = stack.pop() {
        for &next in neighbours(edges, device) {
            let next = next as usize;
            if !std::mem::replace(&mut reached[next], true) {
                stack.push(next);
            }
        }
    }
    reached
}

/// Each device's worst time over several problems.
pub fn worst_ns(problems: &[Problem]) -> Vec<u64> {
    let mut worst = Vec::new();
    for problem in problems {
        worst.resize(worst.len().max(problem.jobs.len()), 0);
        for (worst, job) in worst.iter_mut().zip(&problem.jobs) {
            *worst = job.duration_ns().max(*worst);
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Edge;

    #[test]
    fn a_slow_device_takes_all_that_depends_on_it_and_all_it_depends_on_and_nobody_else() {
        // 0 ─ 1 ─ 2 (slow) ─ 3 ─ 4; 5 is 1's other child.
        let pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)];
        let edges = pairs.map(|(superior, subordinate)| Edge {
            superior,
            subordinate,
        });
        let edges = Edges::from_candidates(6, edges.into_iter());
        let flags = closure(&edges, &[0, 0, 10, 0, 0, 9], 9);
        assert_eq!(flags, [true, true, true, true, true, false]);
        assert_eq!(closure(&edges, &[0, 0, 10, 0, 0, 9], 10), [false; 6]);
    }
}
