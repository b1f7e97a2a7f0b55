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
//! over, and a last user of the device is never parked. Processors tick together: several whose
//! slices end in one tick find the normal queue empty, because queueing takes the seed's scheduler
//! as long as ticks are apart, and each takes a parked task. That is how they are released all at
//! once (seed, section 7.4.1). An overload is noticed only when a task is queued.

use std::collections::VecDeque;

use super::task::{Machine, Task};
use crate::random::Random;

/// What weighs a new bandwidth against the average (seed, section 7.4).
const NEW: f64 = 0.3;
/// Between two looks at the counters (seed, section 5.4.1.1).
const LOOK_NS: i64 = 1_000_000;
/// From the decision to run another task until the previous one is queued (seed, section 6.8.1).
const ENQUEUE_NS: f64 = 10_700.0;

/// Queues and who runs.
#[derive(Clone, Debug)]
pub struct Ext {
    threshold: f64,
    normal: VecDeque<usize>,
    parked: VecDeque<usize>,
    pub running: Vec<Option<usize>>,
    left_ns: Vec<i64>,
    tick_ns: i64,
    /// CPU limit of each task.
    limits: Vec<f64>,
    queued: Vec<bool>,
    average: f64,
    looked_ns: i64,
    looked_bytes: f64,
    /// When another task of the machine wakes up.
    wake_ns: i64,
}

impl Ext {
    pub fn new(machine: &Machine, tasks: usize, threshold: f64) -> Self {
        Self {
            threshold,
            normal: VecDeque::new(),
            parked: VecDeque::new(),
            running: vec![None; machine.cpus],
            left_ns: vec![0; machine.cpus],
            tick_ns: 0,
            limits: vec![1.0; tasks],
            queued: vec![false; tasks],
            average: 0.0,
            looked_ns: 0,
            looked_bytes: 0.0,
            wake_ns: 0,
        }
    }

    /// Decides who runs in the step that begins now; `bytes`: what the device has carried so far.
    pub fn schedule(
        &mut self,
        now_ns: i64,
        bytes: f64,
        machine: &Machine,
        tasks: &[Task],
        random: &mut Random,
    ) {
        self.wake_others(now_ns, bytes, machine, tasks, random);
        for task in 0..tasks.len() {
            if !self.queued[task] && tasks[task].is_ready(now_ns) {
                self.queued[task] = true;
                self.enqueue(task, now_ns, bytes, tasks);
                self.use_idle(now_ns, machine, tasks);
            }
        }
        if now_ns == 0 {
            // Tasks did not all start in the same tick.
            for left_ns in &mut self.left_ns {
                *left_ns = (random.unit() * *left_ns as f64) as i64;
            }
        }
        for cpu in 0..self.running.len() {
            if let Some(task) = self.running[cpu]
                && !tasks[task].is_ready(now_ns)
            {
                self.queued[task] = false;
                self.running[cpu] = None;
                self.next(cpu, now_ns, machine, tasks);
            }
        }
        if now_ns >= self.tick_ns {
            self.tick_ns += machine.tick_ns;
            self.tick(now_ns, bytes, machine, tasks, random);
        }
    }

    /// All processors tick at the same instant, give or take `tick_spread_ns`, and those whose
    /// slices are over look for the next task; their previous tasks are queued a little later.
    fn tick(
        &mut self,
        now_ns: i64,
        bytes: f64,
        machine: &Machine,
        tasks: &[Task],
        random: &mut Random,
    ) {
        let mut over: Vec<(f64, usize)> = (0..self.running.len())
            .filter(|&cpu| self.left_ns[cpu] <= 0 && self.running[cpu].is_some())
            .map(|cpu| (random.exponential(machine.tick_spread_ns), cpu))
            .collect();
        over.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut before: VecDeque<(f64, usize)> = VecDeque::new();
        for (at, cpu) in over {
            while let Some(&(queued, task)) = before.front()
                && queued <= at
            {
                before.pop_front();
                self.enqueue(task, now_ns, bytes, tasks);
            }
            let task = self.running[cpu];
            match self.dispatch(tasks, now_ns) {
                Some(next) => {
                    before.extend(task.map(|task| (at + ENQUEUE_NS, task)));
                    self.running[cpu] = Some(next);
                    self.slice(cpu, machine, tasks);
                }
                // It goes on, with the kernel's own slice, without having been queued.
                None => self.left_ns[cpu] = machine.ext_slice_ns,
            }
        }
        for (_, task) in before {
            self.enqueue(task, now_ns, bytes, tasks);
        }
    }

    /// A processor that has nothing to do asks for a task.
    fn next(&mut self, cpu: usize, now_ns: i64, machine: &Machine, tasks: &[Task]) {
        self.running[cpu] = self.dispatch(tasks, now_ns);
        self.slice(cpu, machine, tasks);
    }

    /// A task that wakes up wakes an idle processor, which asks for a task.
    fn use_idle(&mut self, now_ns: i64, machine: &Machine, tasks: &[Task]) {
        if let Some(cpu) = self.running.iter().position(Option::is_none) {
            self.next(cpu, now_ns, machine, tasks);
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

    /// Other tasks of the machine (kernel threads, daemons) wake up, are queued, which makes the
    /// scheduler look, run for a moment, and leave their CPU to whoever is next.
    fn wake_others(
        &mut self,
        now_ns: i64,
        bytes: f64,
        machine: &Machine,
        tasks: &[Task],
        random: &mut Random,
    ) {
        while now_ns >= self.wake_ns {
            self.wake_ns += random.exponential(machine.wake_ns) as i64 + 1;
            self.look(now_ns, bytes);
            self.use_idle(now_ns, machine, tasks);
        }
    }

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
