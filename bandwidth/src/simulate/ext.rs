//! The seed's sched_ext scheduler with a throttling dispatch queue (sections 5.4.1.1 to 5.4.1.5).
//!
//! ```text
//!  slice over, another task there ──▶ enqueue ──▶ normal queue ────────────────▶ any CPU
//!                                        └──────▶ parked, in an overload ─ ─ ─ ─▶ any CPU whose
//!                                                                   normal queue is empty, and
//!                                                                   there is no overload
//! ```
//!
//! The kernel asks for the next task while the previous one is not queued yet, and lets it go on
//! if there is none; so a parked task runs at the next end of anybody's slice once the overload is
//! over, and a last user of the device is never parked.

use std::collections::VecDeque;

use super::task::{Machine, Task};

/// What weighs a new bandwidth against the average (seed, section 7.4).
const NEW: f64 = 0.3;
/// Between two looks at the counters (seed, section 5.4.1.1).
const LOOK_NS: i64 = 1_000_000;

/// Queues and who runs.
#[derive(Clone, Debug)]
pub struct Ext {
    threshold: f64,
    normal: VecDeque<usize>,
    parked: VecDeque<usize>,
    pub running: Vec<Option<usize>>,
    left_ns: Vec<i64>,
    tick_ns: Vec<i64>,
    /// CPU limit of each task.
    limits: Vec<f64>,
    queued: Vec<bool>,
    average: f64,
    looked_ns: i64,
    looked_bytes: f64,
}

impl Ext {
    pub fn new(machine: &Machine, tasks: usize, threshold: f64) -> Self {
        let tick = |cpu: usize| machine.tick_ns * cpu as i64 / machine.cpus as i64;
        Self {
            threshold,
            normal: VecDeque::new(),
            parked: VecDeque::new(),
            running: vec![None; machine.cpus],
            left_ns: vec![0; machine.cpus],
            tick_ns: (0..machine.cpus).map(tick).collect(),
            limits: vec![1.0; tasks],
            queued: vec![false; tasks],
            average: 0.0,
            looked_ns: 0,
            looked_bytes: 0.0,
        }
    }

    /// Decides who runs in the step that begins now; `bytes`: what the device has carried so far.
    pub fn schedule(&mut self, now_ns: i64, bytes: f64, machine: &Machine, tasks: &[Task]) {
        self.look(now_ns, bytes);
        for task in 0..tasks.len() {
            if !self.queued[task] && tasks[task].is_ready(now_ns) {
                self.queued[task] = true;
                self.enqueue(task, now_ns, bytes, tasks);
            }
        }
        for cpu in 0..self.running.len() {
            if let Some(task) = self.running[cpu]
                && !tasks[task].is_ready(now_ns)
            {
                self.queued[task] = false;
                self.running[cpu] = None;
            }
            if self.running[cpu].is_none() {
                self.running[cpu] = self.dispatch(tasks, now_ns);
                self.slice(cpu, machine, tasks);
            }
            if now_ns < self.tick_ns[cpu] {
                continue;
            }
            self.tick_ns[cpu] += machine.tick_ns;
            if self.left_ns[cpu] > 0 {
                continue;
            }
            if let Some(next) = self.dispatch(tasks, now_ns) {
                let before = self.running[cpu].replace(next);
                if let Some(before) = before {
                    self.enqueue(before, now_ns, bytes, tasks);
                }
            }
            self.slice(cpu, machine, tasks);
        }
    }

    /// The step has passed.
    pub fn pass(&mut self, step_ns: i64) {
        for left_ns in &mut self.left_ns {
            *left_ns -= step_ns;
        }
    }

    fn slice(&mut self, cpu: usize, machine: &Machine, tasks: &[Task]) {
        let limit = match self.running[cpu] {
            Some(task) if tasks[task].is_memory() => self.limits[task],
            _ => 1.0,
        };
        self.left_ns[cpu] = (machine.ext_slice_ns as f64 * limit) as i64;
    }

    fn overloaded(&self) -> bool {
        self.average > self.threshold
    }

    fn dispatch(&mut self, tasks: &[Task], now_ns: i64) -> Option<usize> {
        loop {
            let next = match self.normal.pop_front() {
                None if !self.overloaded() => self.parked.pop_front(),
                next => next,
            }?;
            if tasks[next].is_ready(now_ns) {
                return Some(next);
            }
            self.queued[next] = false;
        }
    }

    /// Other tasks of a machine wake up all the time, and each queued task makes the scheduler look.
    fn look(&mut self, now_ns: i64, bytes: f64) {
        let passed = now_ns - self.looked_ns;
        if passed >= LOOK_NS {
            let now = (bytes - self.looked_bytes) * 1e9 / passed as f64;
            self.average += NEW * (now - self.average);
            self.looked_ns = now_ns;
            self.looked_bytes = bytes;
        }
    }

    fn enqueue(&mut self, task: usize, now_ns: i64, bytes: f64, tasks: &[Task]) {
        self.look(now_ns, bytes);
        if !tasks[task].is_memory() {
            self.normal.push_back(task);
            return;
        }
        let factor = self.threshold / self.average.max(1.0);
        self.limits[task] = factor.clamp(0.01, 1.0);
        if self.overloaded() {
            self.parked.push_back(task);
        } else {
            self.normal.push_back(task);
        }
    }
}
