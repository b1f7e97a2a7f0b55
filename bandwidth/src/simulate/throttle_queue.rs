//! The sched_ext schedulers of Kämmerer 2025 (sections 5.4.1.1 to 5.4.1.5): round robin with
//! shorter slices, the same in the order of virtual time, and with a throttling dispatch queue.
//!
//! ```text
//!  end of slice, another task waits ──▶ enqueue ──▶ normal queue ────────────────▶ any CPU
//!                                          └──────▶ throttled, in an overload ─ ─▶ any CPU whose
//!                                                                     normal queue is empty,
//!                                                                     without an overload
//! ```
//!
//! The kernel asks for the next task before the previous one is queued, and continues the previous
//! one if there is none. So a throttled task runs at the next end of a slice after the overload,
//! and the last user of the device is never throttled. Processors tick together: if several slices
//! end in one tick, they find the normal queue empty, because queueing takes as long as ticks are
//! apart, and each takes a throttled task. That is why tasks are released all at once (section
//! 7.4.1). An overload is noticed only when a task is queued.

use std::collections::VecDeque;

use super::task::{Machine, Task};
use crate::random::Random;

/// Weight of a new bandwidth in the average (section 7.4).
const NEW: f64 = 0.3;
/// Time between two readings of the counters (section 5.4.1.1).
const READ_EVERY_NS: i64 = 1_000_000;
/// Time from the decision to run another task until the previous one is queued (section 6.8.1).
const ENQUEUE_NS: f64 = 10_700.0;

/// What the scheduler does in an overload, beside giving users of the device shorter slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Nothing else.
    RoundRobin,
    /// Time passes faster for users of the device, and tasks run in the order of their time.
    VirtualTime,
    /// Users of the device wait in a queue of their own.
    ThrottleQueue,
}

/// A step of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// When it begins.
    pub now_ns: i64,
    /// The device's traffic so far.
    pub bytes: f64,
    pub machine: &'a Machine,
    pub tasks: &'a [Task],
}

impl Step<'_> {
    fn is_ready(&self, task: usize) -> bool {
        self.tasks[task].is_ready(self.now_ns)
    }
}

/// The queues and the running tasks.
#[derive(Clone, Debug)]
pub struct ThrottleQueue {
    threshold: f64,
    variant: Variant,
    /// Virtual time of each task, and the largest one of a task that has run.
    times_ns: Vec<f64>,
    time_ns: f64,
    /// A slice of a task that is not slowed.
    slice_ns: f64,
    normal: VecDeque<usize>,
    parked: VecDeque<usize>,
    pub running: Vec<Option<usize>>,
    left_ns: Vec<i64>,
    tick_ns: i64,
    /// CPU limit of each task.
    limits: Vec<f64>,
    queued: Vec<bool>,
    average: f64,
    scanned_ns: i64,
    read_bytes_sum: f64,
    /// When another task of the machine wakes up.
    wake_ns: i64,
}

impl ThrottleQueue {
    pub fn new(machine: &Machine, tasks: usize, threshold: f64, variant: Variant) -> Self {
        Self {
            threshold,
            variant,
            times_ns: vec![0.0; tasks],
            time_ns: 0.0,
            slice_ns: machine.ext_slice_ns as f64,
            normal: VecDeque::new(),
            parked: VecDeque::new(),
            running: vec![None; machine.cpus],
            left_ns: vec![0; machine.cpus],
            tick_ns: 0,
            limits: vec![1.0; tasks],
            queued: vec![false; tasks],
            average: 0.0,
            scanned_ns: 0,
            read_bytes_sum: 0.0,
            wake_ns: 0,
        }
    }

    /// Decides which tasks run in the step that begins now.
    pub fn schedule(&mut self, step: Step<'_>, random: &mut Random) {
        self.wake_others(step, random);
        for task in 0..step.tasks.len() {
            if !self.queued[task] && step.is_ready(task) {
                self.queued[task] = true;
                self.enqueue(task, step);
                self.use_idle(step);
            }
        }
        if step.now_ns == 0 {
            // Tasks do not all start in the same tick.
            for left_ns in &mut self.left_ns {
                *left_ns = (random.unit() * *left_ns as f64) as i64;
            }
        }
        for cpu in 0..self.running.len() {
            if let Some(task) = self.running[cpu]
                && !step.is_ready(task)
            {
                self.queued[task] = false;
                self.running[cpu] = None;
                self.next(cpu, step);
            }
        }
        if step.now_ns >= self.tick_ns {
            self.tick_ns += step.machine.tick_ns;
            self.tick(step, random);
        }
    }

    /// All processors tick at the same instant, within `tick_spread_ns`. Those whose slices have
    /// ended look for the next task; their previous tasks are queued a little later.
    fn tick(&mut self, step: Step<'_>, random: &mut Random) {
        let mut over: Vec<(f64, usize)> = (0..self.running.len())
            .filter(|&cpu| self.left_ns[cpu] <= 0 && self.running[cpu].is_some())
            .map(|cpu| (random.exponential(step.machine.tick_spread_ns), cpu))
            .collect();
        over.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut before: VecDeque<(f64, usize)> = VecDeque::new();
        for (at, cpu) in over {
            while let Some(&(queued, task)) = before.front()
                && queued <= at
            {
                before.pop_front();
                self.enqueue(task, step);
            }
            let task = self.running[cpu];
            match self.dispatch(step) {
                Some(next) => {
                    before.extend(task.map(|task| (at + ENQUEUE_NS, task)));
                    self.running[cpu] = Some(next);
                    self.slice(cpu, step);
                }
                // It continues with the kernel's own slice and is not queued.
                None => self.left_ns[cpu] = step.machine.ext_slice_ns,
            }
        }
        for (_, task) in before {
            self.enqueue(task, step);
        }
    }

    /// An idle processor asks for a task.
    fn next(&mut self, cpu: usize, step: Step<'_>) {
        self.running[cpu] = self.dispatch(step);
        self.slice(cpu, step);
    }

    /// A task that wakes up wakes an idle processor, which asks for a task.
    fn use_idle(&mut self, step: Step<'_>) {
        if let Some(cpu) = self.running.iter().position(Option::is_none) {
            self.next(cpu, step);
        }
    }

    /// Ends the step.
    pub fn pass(&mut self, step_ns: i64) {
        for left_ns in &mut self.left_ns {
            *left_ns -= step_ns;
        }
        for &task in self.running.iter().flatten() {
            self.times_ns[task] += step_ns as f64 / self.limits[task];
        }
    }

    fn slice(&mut self, cpu: usize, step: Step<'_>) {
        let limit = match self.running[cpu] {
            Some(task) if step.tasks[task].is_memory() => self.limits[task],
            _ => 1.0,
        };
        self.left_ns[cpu] = (step.machine.ext_slice_ns as f64 * limit) as i64;
    }

    fn overloaded(&self) -> bool {
        self.average > self.threshold
    }

    fn dispatch(&mut self, step: Step<'_>) -> Option<usize> {
        loop {
            let next = match self.pop() {
                None if !self.overloaded() => self.parked.pop_front(),
                next => next,
            }?;
            if step.is_ready(next) {
                self.time_ns = self.time_ns.max(self.times_ns[next]);
                return Some(next);
            }
            self.queued[next] = false;
        }
    }

    /// The next task of the normal queue.
    fn pop(&mut self) -> Option<usize> {
        if self.variant != Variant::VirtualTime {
            return self.normal.pop_front();
        }
        let times = self.normal.iter().map(|&task| self.times_ns[task]);
        let first = times.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.normal.remove(first.0)
    }

    /// Other tasks of the machine (kernel threads, daemons) wake up and are queued, which makes
    /// the scheduler read the counters. They run for a moment and leave their CPU to the next
    /// task.
    fn wake_others(&mut self, step: Step<'_>, random: &mut Random) {
        while step.now_ns >= self.wake_ns {
            self.wake_ns += random.exponential(step.machine.wake_ns) as i64 + 1;
            self.read_counters(step);
            self.use_idle(step);
        }
    }

    fn read_counters(&mut self, step: Step<'_>) {
        let passed = step.now_ns - self.scanned_ns;
        if passed >= READ_EVERY_NS {
            let now = (step.bytes - self.read_bytes_sum) * 1e9 / passed as f64;
            self.average += NEW * (now - self.average);
            self.scanned_ns = step.now_ns;
            self.read_bytes_sum = step.bytes;
        }
    }

    fn enqueue(&mut self, task: usize, step: Step<'_>) {
        self.read_counters(step);
        // A task that has waited is not ahead of others by more than a slice.
        self.times_ns[task] = self.times_ns[task].max(self.time_ns - self.slice_ns);
        if !step.tasks[task].is_memory() {
            self.normal.push_back(task);
            return;
        }
        let factor = self.threshold / self.average.max(1.0);
        self.limits[task] = factor.clamp(0.01, 1.0);
        if self.overloaded() && self.variant == Variant::ThrottleQueue {
            self.parked.push_back(task);
        } else {
            self.normal.push_back(task);
        }
    }
}
