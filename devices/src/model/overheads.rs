//! What scheduling costs: list handling, work items, wake-ups, switches.

use serde::{Deserialize, Serialize};

/// Costs of scheduling, in nanoseconds.
///
/// `dormouse devices record` measures `wake_ns` and `latency_ns` with threads of its own (see
/// `record::measure`); the others keep their defaults, which are round numbers for a small x86
/// virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overheads {
    /// Of each device, whatever it does: locks, lists, looking for callbacks.
    pub per_device_ns: u64,
    /// Of queueing one work item, for who queues it.
    pub queue_ns: u64,
    /// Of waking a thread, for who wakes it.
    pub wake_ns: u64,
    /// From there until the woken thread can run.
    pub latency_ns: u64,
    /// Of switching to a thread that was woken.
    pub switch_ns: u64,
    /// What tracing has added to the recorded time of each callback. It is no cost of scheduling,
    /// and taken off before anything is simulated.
    pub trace_ns: u64,
}

impl Default for Overheads {
    fn default() -> Overheads {
        Overheads {
            per_device_ns: 500,
            queue_ns: 1_000,
            wake_ns: 2_000,
            latency_ns: 5_000,
            switch_ns: 2_000,
            trace_ns: 0,
        }
    }
}

impl Overheads {
    /// Scheduling that costs nothing.
    pub const NONE: Overheads = Overheads {
        per_device_ns: 0,
        queue_ns: 0,
        wake_ns: 0,
        latency_ns: 0,
        switch_ns: 0,
        trace_ns: 0,
    };
}
