//! The kernel's own schedules: a walk over the list, and work items that wait for neighbours.
//!
//! Up to 6.15 a suspend queues an item when the walk arrives at its device, and a resume queues
//! all of them before it walks (`dpm_suspend`, `dpm_resume` in drivers/base/power/main.c). Since
//! 6.17 only leaves or roots are queued before the walk, and a device that is done queues its
//! superiors or subordinates (`dpm_async_suspend_superior`, `dpm_async_resume_subordinate`).
//!
//! Up to 6.15 no more than [`MAX_ACTIVE`] items are at work or waiting at once: where more devices
//! than that depend on slow ones, their items keep others from starting. Items start in list
//! order, so the first of them can always proceed. The effect of the limit on the order of newer
//! kernels is not known; it is not simulated there.

use std::collections::VecDeque;

use super::super::engine::{Program, Step, ThreadId, World};
use super::super::{Outcome, Problem, Setting};
use super::job::Running;
use crate::model::Direction;

/// Of the kernel's work queue for asynchronous functions (`WQ_DFL_ACTIVE`, Linux 6.12).
pub const MAX_ACTIVE: usize = 256;

/// Everything in list order, in one thread.
pub fn list(problem: &Problem, setting: &Setting) -> Outcome {
    let none = vec![false; problem.jobs.len()];
    items(problem, &none, setting, false)
}

/// Work items for those that may be async.
pub fn items(
    problem: &Problem,
    may_run_async: &[bool],
    setting: &Setting,
    neighbours_first: bool,
) -> Outcome {
    let mut world = World::new(setting, problem.jobs.len());
    let walker = world.start();
    let starts_early = |device: usize| match (neighbours_first, problem.direction) {
        (true, _) => problem.before(device).is_empty(),
        (false, Direction::Resume) => true,
        (false, Direction::Suspend) => false,
    };
    let early = problem
        .walk
        .iter()
        .copied()
        .filter(|&device| may_run_async[device] && starts_early(device))
        .collect();
    let mut items = Items {
        problem,
        may_run_async,
        setting,
        neighbours_first,
        queued: vec![false; problem.jobs.len()],
        threads: Vec::new(),
        active: 0,
        waiting: VecDeque::new(),
        early,
    };
    items.set(walker, State::Early(0));
    world.run(&mut items)
}

#[derive(Clone, Copy)]
enum State {
    /// The walker, before it walks: the place in `early`.
    Early(usize),
    /// The walker: the place in the list.
    Walk(usize),
    /// The walker at the end: waits for all.
    Join(usize),
    /// Waits for its neighbours: the place among them, and where the walker goes on.
    Neighbours(usize, usize, Option<usize>),
    Run(Running, Option<usize>),
    /// A device is done: accounts for wake-ups, then queues the devices that became ready.
    After(usize, usize, Option<usize>),
    End,
}

struct Items<'a> {
    problem: &'a Problem,
    may_run_async: &'a [bool],
    setting: &'a Setting,
    neighbours_first: bool,
    queued: Vec<bool>,
    threads: Vec<State>,
    /// Items that have started and not ended, and those that may not start yet.
    active: usize,
    waiting: VecDeque<usize>,
    early: Vec<usize>,
}

impl Items<'_> {
    fn set(&mut self, thread: ThreadId, state: State) {
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, State::End);
        }
        self.threads[thread] = state;
    }

    /// Queues a device's item unless it was queued before. Returns whether it was queued.
    fn queue(&mut self, device: usize, world: &mut World) -> bool {
        if !self.may_run_async[device] || std::mem::replace(&mut self.queued[device], true) {
            return false;
        }
        if self.neighbours_first || self.active < MAX_ACTIVE {
            self.begin(device, world);
        } else {
            self.waiting.push_back(device);
        }
        true
    }

    fn begin(&mut self, device: usize, world: &mut World) {
        self.active += 1;
        let thread = world.spawn();
        self.set(thread, State::Neighbours(0, device, None));
    }

    fn end_item(&mut self, world: &mut World) {
        self.active -= 1;
        if let Some(device) = self.waiting.pop_front() {
            self.begin(device, world);
        }
    }

    /// One step from a state. Returns the next state and the step.
    fn step(&mut self, state: State, world: &mut World) -> (State, Step) {
        let costs = self.setting.overheads;
        let queue_ns = costs.queue_ns + costs.wake_ns;
        match state {
            State::Early(place) => match self.early.get(place) {
                Some(&device) => {
                    self.queue(device, world);
                    (State::Early(place + 1), Step::Overhead(queue_ns))
                }
                None => (State::Walk(0), Step::Overhead(0)),
            },
            State::Walk(place) => match self.problem.walk.get(place) {
                None => (State::Join(0), Step::Overhead(0)),
                Some(&device) if self.may_run_async[device] => {
                    let cost_ns = if self.queue(device, world) {
                        queue_ns
                    } else {
                        0
                    };
                    (State::Walk(place + 1), Step::Overhead(cost_ns))
                }
                Some(&device) => (
                    State::Neighbours(0, device, Some(place + 1)),
                    Step::Overhead(0),
                ),
            },
            State::Join(place) => match self.problem.walk.get(place) {
                Some(&device) => (State::Join(place + 1), Step::WaitFor(device)),
                None => (State::End, Step::Exit),
            },
            State::Neighbours(place, device, walk) => {
                match self.problem.before(device).get(place) {
                    Some(&neighbour) => (
                        State::Neighbours(place + 1, device, walk),
                        Step::WaitFor(neighbour as usize),
                    ),
                    None => (State::Run(Running::new(device), walk), Step::Overhead(0)),
                }
            }
            State::Run(mut running, walk) => {
                let job = &self.problem.jobs[running.device];
                match running.next(job, costs.per_device_ns, world) {
                    Some(step) => (State::Run(running, walk), step),
                    None => {
                        let woken = world.complete(running.device);
                        (
                            State::After(running.device, 0, walk),
                            Step::Overhead(woken * costs.wake_ns),
                        )
                    }
                }
            }
            State::After(device, place, walk) => {
                let next = self
                    .neighbours_first
                    .then(|| self.problem.after(device).get(place))
                    .flatten();
                match (next, walk) {
                    (Some(&next), _) => {
                        let cost_ns = if self.queue(next as usize, world) {
                            queue_ns
                        } else {
                            0
                        };
                        (
                            State::After(device, place + 1, walk),
                            Step::Overhead(cost_ns),
                        )
                    }
                    (None, Some(place)) => (State::Walk(place), Step::Overhead(0)),
                    (None, None) => {
                        self.end_item(world);
                        (State::End, Step::Exit)
                    }
                }
            }
            State::End => (State::End, Step::Exit),
        }
    }
}

impl Program for Items<'_> {
    fn next(&mut self, thread: ThreadId, world: &mut World) -> Step {
        let (state, step) = self.step(self.threads[thread], world);
        self.threads[thread] = state;
        step
    }
}
