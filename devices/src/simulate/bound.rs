//! The lower bound of all schedules: the critical path, the work divided by the CPUs, and the
//! longest queue at a slow bus.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Problem;

/// The lower bound of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The longest chain of devices that wait for each other.
    pub critical_path_ns: u64,
    /// Its devices, in the order in which they run; those that take no time are left out.
    pub critical_path: Vec<usize>,
    /// Time on a CPU of all devices, divided by the number of CPUs.
    pub work_per_cpu_ns: u64,
    /// The longest sum of devices that share a slow bus.
    pub busiest_bus_ns: u64,
}

impl Bound {
    /// The largest of them.
    pub fn ns(&self) -> u64 {
        self.critical_path_ns
            .max(self.work_per_cpu_ns)
            .max(self.busiest_bus_ns)
    }
}

/// The bound of a phase on `cpus` CPUs. It counts the devices' own time only, without the overhead
/// of a schedule.
pub fn bound(problem: &Problem, cpus: usize) -> Bound {
    let finish_ns = earliest_finish(problem);
    let last = (0..finish_ns.len()).max_by_key(|&device| finish_ns[device]);
    let mut critical_path = Vec::new();
    let mut next = last;
    while let Some(device) = next {
        if problem.jobs[device].duration_ns() > 0 {
            critical_path.push(device);
        }
        let before = problem.before(device).iter().map(|&d| d as usize);
        next = before.max_by_key(|&d| finish_ns[d]);
    }
    critical_path.reverse();
    let busy_ns: u64 = problem.jobs.iter().map(|job| job.busy_ns).sum();
    let mut buses: BTreeMap<u32, u64> = BTreeMap::new();
    for job in &problem.jobs {
        if let Some(bus) = job.bus {
            *buses.entry(bus).or_default() += job.duration_ns();
        }
    }
    Bound {
        busiest_bus_ns: buses.into_values().max().unwrap_or(0),
        critical_path_ns: last.map_or(0, |device| finish_ns[device]),
        critical_path,
        work_per_cpu_ns: busy_ns.div_ceil(cpus.max(1) as u64),
    }
}

/// When each device would be done with as many CPUs as one could wish for.
fn earliest_finish(problem: &Problem) -> Vec<u64> {
    let mut finish_ns = vec![0; problem.jobs.len()];
    // The walk never has a device before one that it waits for.
    for &device in &problem.walk {
        let before = problem.before(device).iter();
        let start_ns = before.map(|&d| finish_ns[d as usize]).max().unwrap_or(0);
        finish_ns[device] = start_ns + problem.jobs[device].duration_ns();
    }
    finish_ns
}

/// The longest remaining chain of each device, itself included: the priority of list scheduling.
pub fn remaining(problem: &Problem) -> Vec<u64> {
    let mut remaining_ns = vec![0; problem.jobs.len()];
    for &device in problem.walk.iter().rev() {
        let after = problem.after(device).iter();
        let longest_ns = after.map(|&d| remaining_ns[d as usize]).max().unwrap_or(0);
        remaining_ns[device] = longest_ns + problem.jobs[device].duration_ns();
    }
    remaining_ns
}
