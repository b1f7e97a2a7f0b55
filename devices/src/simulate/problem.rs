//! One device phase for the simulator: the time of each device, and the dependencies.

use crate::model::{Cycle, DevicePhase, Direction, Edges, Recording, list_order};

/// What one device takes in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Time on a CPU.
    pub busy_ns: u64,
    /// Time asleep, holding a thread but no CPU.
    pub wait_ns: u64,
    /// A bus that serves one at a time, from begin to end of the callback.
    pub bus: Option<u32>,
    /// False for a device that has nothing to do in this phase.
    pub has_callback: bool,
}

impl Job {
    /// From begin to end of the callback, when it need not wait for a CPU.
    pub fn duration_ns(&self) -> u64 {
        self.busy_ns + self.wait_ns
    }
}

/// A phase to schedule.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Suspend or resume.
    pub direction: Direction,
    /// By device.
    pub jobs: Vec<Job>,
    /// The dependencies.
    pub edges: Edges,
    /// The order in which the kernel walks the list in this direction: on suspend subordinates
    /// come first, on resume superiors.
    pub walk: Vec<usize>,
}

/// Callbacks shorter than this are taken for busy where the recording has no scheduling events,
/// longer ones for asleep after this time: what takes a millisecond and more nearly always
/// waits for hardware.
pub const ASSUMED_BUSY_NS: u64 = 500_000;

impl Problem {
    /// A problem from its parts; `list` has superiors first, as the kernel's list does.
    pub fn new(direction: Direction, jobs: Vec<Job>, edges: Edges, list: &[usize]) -> Problem {
        let mut walk = list.to_vec();
        if direction == Direction::Suspend {
            walk.reverse();
        }
        Problem {
            direction,
            jobs,
            edges,
            walk,
        }
    }

    /// One phase of a recorded cycle. Several callbacks of one device in a phase are one job. The
    /// recorded overhead of tracing is subtracted from each.
    pub fn of(recording: &Recording, cycle: &Cycle, phase: DevicePhase) -> Problem {
        let edges = Edges::of(&recording.graph);
        let list = recorded_order(recording, &edges);
        let devices = recording.graph.devices.iter();
        let trace_ns = recording
            .overheads
            .map_or(0, |overheads| overheads.trace_ns);
        let mut jobs: Vec<Job> = devices
            .map(|device| Job {
                bus: device.bus,
                ..Job::default()
            })
            .collect();
        for callback in cycle.callbacks_of(phase) {
            let Some(job) = jobs.get_mut(callback.device) else {
                continue;
            };
            // Waiting for a CPU is the schedule's doing, not the device's.
            let duration_ns = callback.duration_ns().saturating_sub(callback.delayed_ns);
            let traced_busy_ns = callback
                .busy_ns
                .unwrap_or_else(|| duration_ns.min(ASSUMED_BUSY_NS))
                .min(duration_ns);
            let busy_ns = traced_busy_ns.saturating_sub(trace_ns);
            let duration_ns = duration_ns - (traced_busy_ns - busy_ns);
            job.busy_ns += busy_ns;
            job.wait_ns += duration_ns - busy_ns;
            job.has_callback = true;
        }
        Problem::new(phase.direction(), jobs, edges, &list)
    }

    /// The sum of all jobs.
    pub fn sum_ns(&self) -> u64 {
        self.jobs.iter().map(Job::duration_ns).sum()
    }

    /// The devices that a device waits for in this direction.
    pub fn before(&self, device: usize) -> &[u32] {
        self.edges.before(device, self.direction)
    }

    /// The devices that wait for a device in this direction.
    pub fn after(&self, device: usize) -> &[u32] {
        self.edges.after(device, self.direction)
    }
}

/// The kernel's list, as far as a recording shows it: superiors first; among those that may
/// come next, in the order of registration, and where that is unknown, in the order of the
/// recording.
pub fn recorded_order(recording: &Recording, edges: &Edges) -> Vec<usize> {
    let devices = &recording.graph.devices;
    list_order(edges, |device| {
        (devices[device].registered.unwrap_or(u64::MAX), device)
    })
}
