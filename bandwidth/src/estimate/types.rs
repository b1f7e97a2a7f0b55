//! Inputs and results of the estimator.

use super::counter::{CounterSpec, Counts, Fault};

/// A task; the start time distinguishes it from a later one with the same PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// Process ID.
    pub pid: i32,
    /// In nanoseconds, on the clock of the samples.
    pub start_ns: u64,
}

/// What is known of a task's traffic in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activity {
    /// Bytes since the task started, sampled by the processor.
    Counted {
        /// Bytes of loads.
        read_bytes: u64,
        /// Bytes of stores.
        write_bytes: u64,
    },
    /// A weight for this interval, for example CPU time × resident CXL pages. It is the prior
    /// where [`Settings::learn_half_life_ms`] is set.
    Weight(f64),
    /// A weight for this interval from samples of the task's accesses.
    Sampled(f64),
    /// Bytes in this interval, from samples of all traffic of the group.
    Moved(f64),
    /// The same, of no known user.
    Unattributed(f64),
    /// Bytes in this interval that are counted elsewhere: the others divide the rest.
    Known(f64),
    /// A weight for this interval from samples of no known user.
    UnattributedWeight(f64),
}

/// One task at the time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskSample {
    /// The task.
    pub id: TaskId,
    /// The monitoring group that it uses.
    pub group: u32,
    /// Its traffic.
    pub activity: Activity,
    /// CPU time since it started.
    pub cpu_ns: u64,
}

/// One monitoring group at the time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupSample {
    /// The monitoring group.
    pub group: u32,
    /// `None`: the counters could not be read.
    pub counts: Option<Counts>,
}

/// Parameters of the estimator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Half-life of the averages of bandwidths.
    pub half_life_ms: f64,
    /// What the counters can show; see [`CounterSpec`].
    pub counter_spec: CounterSpec,
    /// Whether a store reads its cache line first and therefore counts twice (true for cached
    /// stores, false for non-temporal ones).
    pub write_allocate: bool,
    /// Half-life of the data from which bytes per CPU second are learned. 0: weights are used as
    /// they are.
    pub learn_half_life_ms: f64,
}

/// Bandwidth and CPU time of one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskEstimate {
    /// The task.
    pub id: TaskId,
    /// The monitoring group.
    pub group: u32,
    /// In bytes a second.
    pub bandwidth: f64,
    /// The bytes attributed to it in this step.
    pub bytes: f64,
    /// In CPUs.
    pub cpu: f64,
    /// The relative error of its bytes per CPU second, where they are learned; 0 elsewhere.
    pub rate_error: f64,
}

/// The traffic of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupEstimate {
    /// The monitoring group.
    pub group: u32,
    /// In bytes a second; while the counter is at fault, the last valid value.
    pub bandwidth: f64,
    /// The part that belongs to no known task.
    pub unattributed: f64,
    /// The fault of its counters.
    pub fault: Option<Fault>,
}

/// The result of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// All groups.
    pub groups: Vec<GroupEstimate>,
    /// All tasks.
    pub tasks: Vec<TaskEstimate>,
}

impl Estimate {
    /// Bandwidth of the whole device, in bytes a second.
    pub fn total(&self) -> f64 {
        self.groups.iter().map(|group| group.bandwidth).sum()
    }

    /// Whether the counters of all groups are valid.
    pub fn is_trusted(&self) -> bool {
        self.groups.iter().all(|group| group.fault.is_none())
    }
}
