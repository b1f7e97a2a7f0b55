//! One pass over the devices: its duration, its lower bound, and the reasons for the difference.

use serde::Serialize;

use super::title;
use crate::model::{Callback, Cycle, DevicePhase, Recording};
use crate::simulate::{Problem, bound};

/// One device on a critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainLink {
    /// The number of the device.
    pub device: usize,
    /// The name.
    pub name: String,
    /// Duration, ns.
    pub duration_ns: u64,
}

/// One pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseAnalysis {
    /// The pass.
    pub phase: DevicePhase,
    /// From the pass's begin to its end; where these were not seen, from the first callback's
    /// begin to the last one's end.
    pub duration_ns: u64,
    /// Devices with a callback.
    pub callbacks: usize,
    /// Devices without one, that the pass handles all the same.
    pub without_callback: usize,
    /// All callbacks, one after the other.
    pub sum_ns: u64,
    /// `sum_ns` over the time in which any callback ran: how many ran at a time on average.
    pub parallelism: f64,
    /// Time of the pass in which no callback ran: the kernel's own.
    pub between_ns: u64,
    /// No schedule can be faster on these CPUs.
    pub bound_ns: u64,
    /// The longest chain of devices that wait for each other, in the order in which they run.
    pub critical_path: Vec<ChainLink>,
    /// Duration of the critical path, ns.
    pub critical_path_ns: u64,
    /// Of all CPUs' time, from 0 to 1, where the recording has scheduling events.
    pub idle_share: Option<f64>,
    /// The slowest callbacks.
    pub slowest: Vec<ChainLink>,
    /// Callbacks that failed: device and error.
    pub failed: Vec<(String, i64)>,
}

/// All passes of a cycle that were seen.
pub fn of(
    recording: &Recording,
    cycle: &Cycle,
    cpus: usize,
    max_rows: usize,
) -> Vec<PhaseAnalysis> {
    DevicePhase::ALL
        .into_iter()
        .filter(|&phase| {
            cycle.device_phase(phase).is_some() || cycle.callbacks_of(phase).next().is_some()
        })
        .map(|phase| one(recording, cycle, phase, cpus, max_rows))
        .collect()
}

fn one(
    recording: &Recording,
    cycle: &Cycle,
    phase: DevicePhase,
    cpus: usize,
    max_rows: usize,
) -> PhaseAnalysis {
    let mut callbacks: Vec<&Callback> = cycle.callbacks_of(phase).collect();
    let problem = Problem::of(recording, cycle, phase);
    let bound = bound(&problem, cpus);
    let covered_ns = covered(&callbacks);
    let sum_ns: u64 = callbacks
        .iter()
        .map(|callback| callback.duration_ns())
        .sum();
    let seen = cycle.device_phase(phase).map(|span| span.duration_ns());
    let duration_ns = seen.unwrap_or_else(|| {
        let end_ns = callbacks.iter().map(|c| c.end_ns).max().unwrap_or(0);
        let begin_ns = callbacks.iter().map(|c| c.begin_ns).min().unwrap_or(0);
        end_ns - begin_ns
    });
    let named = |device: usize, duration_ns| ChainLink {
        device,
        name: title(recording, device),
        duration_ns,
    };
    let failed = callbacks.iter().filter(|callback| callback.error != 0);
    let failed = failed
        .map(|callback| (title(recording, callback.device), callback.error))
        .collect();
    let with_callback = problem.jobs.iter().filter(|job| job.has_callback).count();
    let idle = cycle
        .idle
        .iter()
        .rev()
        .find(|idle| idle.phase == phase.span_name());
    callbacks.sort_by_key(|callback| std::cmp::Reverse(callback.duration_ns()));
    PhaseAnalysis {
        phase,
        duration_ns,
        callbacks: with_callback,
        without_callback: problem.jobs.len() - with_callback,
        sum_ns,
        parallelism: sum_ns as f64 / covered_ns.max(1) as f64,
        between_ns: duration_ns.saturating_sub(covered_ns),
        bound_ns: bound.ns(),
        critical_path: bound
            .critical_path
            .iter()
            .map(|&device| named(device, problem.jobs[device].duration_ns()))
            .collect(),
        critical_path_ns: bound.critical_path_ns,
        idle_share: idle.map(|idle| {
            let whole_ns = duration_ns.max(1) as f64 * cpus as f64;
            (idle.idle_ns as f64 / whole_ns).min(1.0)
        }),
        slowest: callbacks
            .iter()
            .take(max_rows)
            .map(|callback| named(callback.device, callback.duration_ns()))
            .collect(),
        failed,
    }
}

/// Time in which at least one of the callbacks (ascending in their begin) ran.
fn covered(callbacks: &[&Callback]) -> u64 {
    let (mut covered_ns, mut until_ns) = (0, 0);
    for callback in callbacks {
        let begin_ns = callback.begin_ns.max(until_ns);
        covered_ns += callback.end_ns.saturating_sub(begin_ns);
        until_ns = until_ns.max(callback.end_ns);
    }
    covered_ns
}
