//! A device phase under any schedule, by discrete-event simulation; pure functions of plain data.
//!
//! ```text
//! Recording ──▶ problem ──▶ engine + one of schedules/ ──▶ Outcome     bound: no schedule
//!               jobs,        CPUs, threads, completions     spans,      is faster
//!               edges, list                                 makespan
//! ```
//!
//! A thread that runs a device's callback holds a CPU while the callback is busy and none while
//! it sleeps; threads that are ready share the CPUs in turns of [`engine::SLICE_NS`], workers of graph
//! order in turns of [`engine::WORKER_SLICE_NS`]. [`Overheads`] has the overhead of scheduling itself.

pub mod bound;
pub mod check;
pub mod engine;
pub mod flags;
pub mod problem;
mod schedules;
pub mod table;

use serde::Serialize;

pub use crate::model::Overheads;
pub use bound::{Bound, bound, bound_with_handling};
pub use flags::{Permission, permissions};
pub use problem::{Job, Problem};

/// The order in which the kernel runs the devices of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One after the other in list order (`/sys/power/pm_async` is 0).
    List,
    /// The kernel up to 6.15: a work item for each device that may be async, which waits for its
    /// neighbours; the rest in list order. On suspend, an item is queued when the list's walk
    /// arrives at its device; on resume, all are queued first.
    WorkItems,
    /// The kernel since 6.17 (partly 6.16): items start with leaves (suspend) or roots (resume),
    /// and a device that is done starts its superiors or subordinates; the walk queues what is
    /// left.
    LeavesFirst,
    /// Dormouse's kernel: ready devices in one queue, a fixed set of workers, no item for each
    /// device and no waiting for neighbours. Devices that may not be async keep their order among
    /// themselves.
    Graph,
}

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The order of the devices.
    pub schedule: Schedule,
    /// Number of CPUs.
    pub cpus: usize,
    /// Workers of [`Schedule::Graph`] that need a processor; the others start as many threads as
    /// they have items.
    pub workers: usize,
    /// Its workers beside them, for devices that are known to sleep longer than the threshold.
    pub sleepers: usize,
    /// A device slower than this makes [`Schedule::Graph`] wake another worker.
    pub wake_threshold_ns: u64,
    /// The overheads of scheduling.
    pub overheads: Overheads,
    /// The machine is an emulator that counts the instructions of all CPUs on one clock: each CPU
    /// that is not idle prolongs the overhead of scheduling. A device's own work ends at a fixed
    /// time on that clock.
    pub one_clock: bool,
}

impl Setting {
    /// A schedule on `cpus` CPUs with default settings.
    pub fn new(schedule: Schedule, cpus: usize) -> Setting {
        Setting {
            schedule,
            cpus: cpus.max(1),
            workers: cpus.max(1),
            // As the kernel's part has them.
            sleepers: 32,
            // As the kernel's part has it.
            wake_threshold_ns: 200_000,
            overheads: Overheads::default(),
            one_clock: false,
        }
    }
}

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From the begin of the phase until all devices are done and the phase's own thread knows.
    pub makespan_ns: u64,
    /// Begin and end of each device's callback, by device.
    pub spans: Vec<(u64, u64)>,
    /// Time of all CPUs together on callbacks and scheduling.
    pub cpu_busy_ns: u64,
    /// The part of it that scheduling took.
    pub overhead_ns: u64,
    /// Work items queued.
    pub items: u64,
    /// Threads that were woken from waiting.
    pub wakeups: u64,
}

/// Simulates one phase. The result depends only on the arguments.
///
/// `may_run_async[d]` is the permission of device `d` (`power/async`); [`Schedule::List`] ignores
/// it.
///
/// # Panics
/// `may_run_async` or a vector of the problem does not have one entry per device.
pub fn simulate(problem: &Problem, may_run_async: &[bool], setting: &Setting) -> Outcome {
    assert_eq!(
        may_run_async.len(),
        problem.jobs.len(),
        "one flag per device"
    );
    match setting.schedule {
        Schedule::List => schedules::list(problem, setting),
        Schedule::WorkItems => schedules::items(problem, may_run_async, setting, false),
        Schedule::LeavesFirst => schedules::items(problem, may_run_async, setting, true),
        Schedule::Graph => schedules::graph(problem, may_run_async, setting),
    }
}
