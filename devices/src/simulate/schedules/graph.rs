//! Graph order: ready devices in one queue, a fixed set of workers, as in the kernel
//! (`devices/kernel`, `graph_core.c`).
//!
//! A worker takes the ready device with the longest remaining path, runs it, and makes ready the
//! devices that waited only for it. It wakes another worker only for a slow device or one that sleeps,
//! or if the backlog of quick devices exceeds two thresholds; the woken worker wakes the next one.
//! Light devices come first, and may run in addition to those that need a processor (`sleepers`):
//! those that sleep longer than the threshold; those that mostly sleep, for a quarter of it or more;
//! and those that take next to nothing while something slow waits for them. What devices learn of
//! their buses from earlier transitions is not modelled.
//! Devices that may not be async keep their order: each waits for the one before it in the walk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::bound::remaining;
use super::super::engine::{Program, Step, ThreadId, World};
use super::super::{Outcome, Problem, Setting};
use super::job::Running;

/// Runs the phase; see the module's text.
pub fn graph(problem: &Problem, may_run_async: &[bool], setting: &Setting) -> Outcome {
    let count = problem.jobs.len();
    let mut missing: Vec<usize> = (0..count).map(|d| problem.before(d).len()).collect();
    let mut next_in_list = vec![None; count];
    let mut last = None;
    for &device in &problem.walk {
        if may_run_async[device] {
            continue;
        }
        if let Some(last) = last.replace(device) {
            next_in_list[last] = Some(device);
            missing[device] += 1;
        }
    }
    let mut place = vec![0; count];
    for (index, &device) in problem.walk.iter().enumerate() {
        place[device] = index;
    }
    let mut world = World::new(setting, count);
    let main = world.start();
    let urgency_ns = remaining(problem);
    let workers = setting.workers.max(1) + setting.sleepers;
    let parked = (1..workers).map(|_| world.start_parked()).collect();
    let mut program = GraphOrder {
        problem,
        setting,
        missing,
        next_in_list,
        urgency_ns,
        place,
        light: BinaryHeap::new(),
        others: BinaryHeap::new(),
        backlog_ns: 0,
        running: 0,
        running_beside: 0,
        arriving: 0,
        left: count,
        workers: vec![Worker::default(); workers],
        parked,
        main,
    };
    for device in 0..count {
        if program.missing[device] == 0 {
            program.make_ready(device);
        }
    }
    world.run(&mut program)
}

/// The state of a worker.
#[derive(Clone, Copy, Default)]
struct Worker {
    running: Option<Running>,
    beside: bool,
    /// It was woken and has not taken a device since.
    arriving: bool,
}

/// The longest remaining path first, then the order of the walk.
type Ready = BinaryHeap<(u64, Reverse<usize>, usize)>;

struct GraphOrder<'a> {
    problem: &'a Problem,
    setting: &'a Setting,
    /// How many neighbours each device still waits for.
    missing: Vec<usize>,
    /// The next device that may not be async, of one that may not.
    next_in_list: Vec<Option<usize>>,
    urgency_ns: Vec<u64>,
    place: Vec<usize>,
    /// Ready devices that need no processor of their own, and the others.
    light: Ready,
    others: Ready,
    /// Cost of all that are ready and do not sleep.
    backlog_ns: u64,
    running: usize,
    running_beside: usize,
    arriving: usize,
    left: usize,
    workers: Vec<Worker>,
    parked: Vec<ThreadId>,
    main: ThreadId,
}

impl GraphOrder<'_> {
    fn is_urgent(&self, device: usize) -> bool {
        self.urgency_ns[device] > self.setting.wake_threshold_ns
    }

    fn is_sleeper(&self, device: usize) -> bool {
        let job = &self.problem.jobs[device];
        let threshold_ns = self.setting.wake_threshold_ns;
        let mostly_sleeps = 4 * job.wait_ns > threshold_ns && 2 * job.wait_ns > job.duration_ns();
        self.setting.sleepers > 0 && (job.wait_ns > threshold_ns || mostly_sleeps)
    }

    fn is_light(&self, device: usize) -> bool {
        let takes_nothing =
            self.problem.jobs[device].duration_ns() <= self.setting.wake_threshold_ns / 20;
        self.is_sleeper(device)
            || (self.setting.sleepers > 0 && takes_nothing && self.is_urgent(device))
    }

    /// What it adds to the backlog while it is ready.
    fn of_backlog_ns(&self, device: usize) -> u64 {
        if self.is_sleeper(device) {
            return 0;
        }
        self.problem.jobs[device].duration_ns()
    }

    fn make_ready(&mut self, device: usize) {
        let entry = (self.urgency_ns[device], Reverse(self.place[device]), device);
        self.backlog_ns += self.of_backlog_ns(device);
        if self.is_light(device) {
            self.light.push(entry);
        } else {
            self.others.push(entry);
        }
    }

    fn has_processor(&self) -> bool {
        self.running - self.running_beside < self.setting.workers.max(1)
    }

    fn may_run_beside(&self) -> bool {
        !self.light.is_empty() && self.running_beside < self.setting.sleepers
    }

    fn is_available(&self) -> bool {
        let any = !self.others.is_empty() || !self.light.is_empty();
        self.may_run_beside() || (any && self.has_processor())
    }

    /// The next device, and whether it runs beside the others.
    fn pick(&mut self) -> Option<(usize, bool)> {
        if !self.is_available() {
            return None;
        }
        let mut beside = false;
        let device = if self.may_run_beside() {
            let device = self.light.pop()?.2;
            // One that is done at once takes a processor that is free.
            beside = self.is_sleeper(device) || !self.has_processor();
            device
        } else if let Some((_, _, device)) = self.others.pop() {
            device
        } else {
            self.light.pop()?.2
        };
        self.backlog_ns -= self.of_backlog_ns(device);
        self.running += 1;
        self.running_beside += usize::from(beside);
        Some((device, beside))
    }

    fn wants_worker(&self, device: usize) -> bool {
        if self.arriving > 0 || !self.is_available() {
            return false;
        }
        let threshold_ns = self.setting.wake_threshold_ns;
        let is_slow = self.problem.jobs[device].duration_ns() > threshold_ns;
        // Half of the backlog, for each of two workers, must exceed the cost of a wakeup.
        let has_backlog = self.backlog_ns > 2 * threshold_ns && self.has_processor();
        is_slow || self.is_sleeper(device) || has_backlog
    }

    fn take(&mut self, thread: ThreadId, world: &mut World) -> Step {
        self.arriving -= usize::from(std::mem::take(&mut self.workers[thread].arriving));
        let Some((device, beside)) = self.pick() else {
            return self.rest(thread, world);
        };
        self.workers[thread].running = Some(Running::new(device));
        self.workers[thread].beside = beside;
        if !self.wants_worker(device) {
            return Step::Overhead(0);
        }
        // The phase's own thread is as good as any other.
        match self.parked.pop() {
            Some(other) => {
                self.workers[other].arriving = true;
                self.arriving += 1;
                world.wake(other);
                Step::Overhead(self.setting.overheads.wake_ns)
            }
            None => Step::Overhead(0),
        }
    }

    fn finish(&mut self, thread: ThreadId, device: usize) {
        self.left -= 1;
        self.running -= 1;
        self.running_beside -= usize::from(self.workers[thread].beside);
        self.workers[thread].running = None;
        let problem = self.problem;
        let after = problem.after(device).iter().map(|&next| next as usize);
        for next in after.chain(self.next_in_list[device]) {
            self.missing[next] -= 1;
            if self.missing[next] == 0 {
                self.make_ready(next);
            }
        }
    }

    /// Nothing is available: the phase's own thread ends with the last device, others wait.
    fn rest(&mut self, thread: ThreadId, world: &mut World) -> Step {
        if self.left > 0 {
            self.parked.push(thread);
            return Step::Park;
        }
        if thread != self.main && self.parked.contains(&self.main) {
            self.parked.retain(|&other| other != self.main);
            world.wake(self.main);
            return Step::Overhead(self.setting.overheads.wake_ns);
        }
        Step::Exit
    }
}

impl Program for GraphOrder<'_> {
    fn next(&mut self, thread: ThreadId, world: &mut World) -> Step {
        let Some(mut running) = self.workers[thread].running else {
            return self.take(thread, world);
        };
        let job = &self.problem.jobs[running.device];
        let per_device_ns = self.setting.overheads.per_device_ns;
        match running.next(job, per_device_ns, world) {
            Some(step) => {
                self.workers[thread].running = Some(running);
                step
            }
            None => {
                world.complete(running.device);
                self.finish(thread, running.device);
                Step::Overhead(0)
            }
        }
    }
}
