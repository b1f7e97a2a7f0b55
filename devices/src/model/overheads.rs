//! The overhead of scheduling: list handling, work items, wake-ups, switches.

use serde::{Deserialize, Serialize};

/// Overheads of scheduling, in nanoseconds.
///
/// `dormouse devices record` measures `wake_ns` and `latency_ns` with threads of its own (see
/// `record::measure`); the others keep their defaults, which are round numbers for a small x86
/// virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overheads {
    /// For each device: locks, lists, finding its callbacks.
    pub per_device_ns: u64,
    /// For queueing one work item, in the thread that queues it.
    pub queue_ns: u64,
    /// For waking a thread, in the thread that wakes it.
    pub wake_ns: u64,
    /// From there until the woken thread can run.
    pub latency_ns: u64,
    /// For switching to a woken thread.
    pub switch_ns: u64,
    /// The time that tracing added to each recorded callback. It is not scheduling overhead; the
    /// simulator subtracts it first.
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
    /// Scheduling without overhead.
    pub const NONE: Overheads = Overheads {
        per_device_ns: 0,
        queue_ns: 0,
        wake_ns: 0,
        latency_ns: 0,
        switch_ns: 0,
        trace_ns: 0,
    };
}
