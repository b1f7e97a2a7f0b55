//! The machine of the simulation: CPUs, threads that run, sleep, wait and are woken.
//!
//! ```text
//!            ┌──────────── slice over ───────────┐
//!            ▼                                   │
//!  woken ─▶ ready ──a CPU is free──▶ running ────┤
//!    ▲                                 │ │ │     └─▶ done: the program decides the next step
//!    │       latency                   │ │ └─▶ sleeping ──time──▶ ready
//!    └───────────────── waker ◀────────┘ └───▶ waiting for a device, or parked
//! ```
//!
//! What a thread does is a program ([`Program`]): a state machine that is asked for the next step
//! whenever the one before is done. Time advances from event to event; ties keep their order, so
//! a simulation is repeatable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Outcome, Overheads, Schedule, Setting};

/// How long a thread runs before another that is ready gets the CPU.
pub const SLICE_NS: u64 = 3_000_000;
/// The same for a worker of [`Schedule::Graph`], which asks for short turns.
pub const WORKER_SLICE_NS: u64 = 100_000;

/// A thread's number.
pub type ThreadId = usize;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Work on a callback for so long.
    Work(u64),
    /// Do something for so long that is not the devices' own.
    Overhead(u64),
    /// Sleep, without a CPU.
    Sleep(u64),
    /// Go on when this device is done.
    WaitFor(usize),
    /// Wait until no other thread holds this bus; the thread holds it until [`World::release`].
    Acquire(u32),
    /// Wait until another thread calls [`World::wake`].
    Park,
    /// The thread is no more.
    Exit,
}

/// What threads do.
pub trait Program {
    /// The next step of a thread that is on a CPU and has done its last step.
    fn next(&mut self, thread: ThreadId, world: &mut World) -> Step;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Of the slice with this number; one that was begun anew has another.
    SliceOver(ThreadId, u32),
    Ready(ThreadId),
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    left_ns: u64,
    is_overhead: bool,
    /// When its slice began, how many nanoseconds it takes there for one that is left, and the
    /// slice's number.
    since_ns: u64,
    pace: u64,
    slice: u32,
    parked: bool,
    /// It was woken before it parked.
    wake_pending: bool,
}

/// CPUs, threads and devices.
pub struct World {
    now_ns: u64,
    overheads: Overheads,
    one_clock: bool,
    slice_ns: u64,
    free_cpus: usize,
    running: Vec<ThreadId>,
    ready: VecDeque<ThreadId>,
    threads: Vec<Thread>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    /// Threads that wait for a device.
    waiting: Vec<Vec<ThreadId>>,
    done: Vec<bool>,
    /// Buses that are held, and the threads that wait for them.
    buses: BTreeMap<u32, VecDeque<ThreadId>>,
    outcome: Outcome,
}

impl World {
    /// A machine with no thread yet.
    pub fn new(setting: &Setting, devices: usize) -> World {
        World {
            now_ns: 0,
            overheads: setting.overheads,
            one_clock: setting.one_clock,
            slice_ns: match setting.schedule {
                Schedule::Graph => WORKER_SLICE_NS,
                _ => SLICE_NS,
            },
            free_cpus: setting.cpus.max(1),
            running: Vec::new(),
            ready: VecDeque::new(),
            threads: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            waiting: vec![Vec::new(); devices],
            done: vec![false; devices],
            buses: BTreeMap::new(),
            outcome: Outcome {
                spans: vec![(0, u64::MAX); devices],
                ..Outcome::default()
            },
        }
    }

    /// A thread that is ready at once, without any cost. The first one is the phase's own: it
    /// walks the list, and the phase ends when it does.
    pub fn start(&mut self) -> ThreadId {
        let thread = self.threads.len();
        self.threads.push(Thread::default());
        self.ready.push_back(thread);
        thread
    }

    /// A thread that sleeps until it is woken.
    pub fn start_parked(&mut self) -> ThreadId {
        let thread = self.threads.len();
        self.threads.push(Thread {
            parked: true,
            ..Thread::default()
        });
        thread
    }

    /// A thread for a work item that was just queued. The queueing itself is the caller's step.
    pub fn spawn(&mut self) -> ThreadId {
        let thread = self.start_parked();
        self.outcome.items += 1;
        self.wake(thread);
        thread
    }

    /// Wakes a parked thread. The waker's own cost is the caller's step.
    pub fn wake(&mut self, thread: ThreadId) {
        if self.threads[thread].parked {
            self.threads[thread].parked = false;
            self.make_ready_later(thread);
        } else {
            self.threads[thread].wake_pending = true;
        }
    }

    /// Whether a device is done.
    pub fn is_done(&self, device: usize) -> bool {
        self.done[device]
    }

    /// A device's callback begins now.
    pub fn begin(&mut self, device: usize) {
        self.outcome.spans[device].0 = self.now_ns;
    }

    /// A device is done. Returns the number of woken threads; the caller accounts for them.
    pub fn complete(&mut self, device: usize) -> u64 {
        self.outcome.spans[device].1 = self.now_ns;
        self.done[device] = true;
        let woken = std::mem::take(&mut self.waiting[device]);
        for &thread in &woken {
            self.make_ready_later(thread);
        }
        woken.len() as u64
    }

    /// Releases a bus; the thread that has waited longest holds it from now on.
    pub fn release(&mut self, bus: u32) {
        let next = self.buses.get_mut(&bus).and_then(VecDeque::pop_front);
        match next {
            Some(thread) => self.make_ready_later(thread),
            None => drop(self.buses.remove(&bus)),
        }
    }

    fn make_ready_later(&mut self, thread: ThreadId) {
        self.outcome.wakeups += 1;
        let state = &mut self.threads[thread];
        state.left_ns = self.overheads.switch_ns;
        state.is_overhead = true;
        self.at(
            self.now_ns + self.overheads.latency_ns,
            Event::Ready(thread),
        );
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time_ns, self.sequence, event)));
    }

    fn run_slice(&mut self, thread: ThreadId) {
        self.running.push(thread);
        self.begin_slice(thread);
    }

    fn begin_slice(&mut self, thread: ThreadId) {
        let pace = self.pace(thread);
        let state = &mut self.threads[thread];
        state.since_ns = self.now_ns;
        state.pace = pace;
        state.slice += 1;
        let slice_ns = (state.left_ns * pace).min(self.slice_ns);
        let event = Event::SliceOver(thread, state.slice);
        self.at(self.now_ns + slice_ns, event);
    }

    fn pace(&self, thread: ThreadId) -> u64 {
        if self.one_clock && self.threads[thread].is_overhead {
            self.running.len() as u64
        } else {
            1
        }
    }

    /// Takes off what a running thread has done since its slice began.
    fn account(&mut self, thread: ThreadId) {
        let state = &mut self.threads[thread];
        let ran_ns = self.now_ns - state.since_ns;
        state.since_ns = self.now_ns;
        state.left_ns = state.left_ns.saturating_sub(ran_ns / state.pace);
        self.outcome.cpu_busy_ns += ran_ns;
        if state.is_overhead {
            self.outcome.overhead_ns += ran_ns;
        }
    }

    /// Restarts the slices of threads whose speed changed with the set of running threads.
    fn restart_changed_slices(&mut self) {
        for place in 0..self.running.len() {
            let thread = self.running[place];
            if self.threads[thread].pace != self.pace(thread) {
                self.account(thread);
                self.begin_slice(thread);
            }
        }
    }

    /// Runs until nothing more can happen.
    pub fn run(mut self, program: &mut impl Program) -> Outcome {
        self.dispatch(program);
        self.restart_changed_slices();
        while let Some(Reverse((time_ns, _, event))) = self.events.pop() {
            self.now_ns = time_ns;
            match event {
                Event::Ready(thread) => self.ready.push_back(thread),
                Event::SliceOver(thread, slice) if slice == self.threads[thread].slice => {
                    self.slice_over(thread, program);
                }
                Event::SliceOver(..) => continue,
            }
            self.dispatch(program);
            self.restart_changed_slices();
        }
        self.outcome
    }

    fn dispatch(&mut self, program: &mut impl Program) {
        while self.free_cpus > 0 {
            let Some(thread) = self.ready.pop_front() else {
                return;
            };
            self.free_cpus -= 1;
            if self.threads[thread].left_ns > 0 {
                self.run_slice(thread);
            } else {
                self.advance(thread, program);
            }
        }
    }

    fn slice_over(&mut self, thread: ThreadId, program: &mut impl Program) {
        self.account(thread);
        self.running.retain(|&other| other != thread);
        if self.threads[thread].left_ns == 0 {
            self.advance(thread, program);
        } else if self.ready.is_empty() {
            self.run_slice(thread);
        } else {
            self.ready.push_back(thread);
            self.free_cpus += 1;
        }
    }

    /// Asks for steps until one takes time or gives the CPU up.
    fn advance(&mut self, thread: ThreadId, program: &mut impl Program) {
        loop {
            let step = program.next(thread, self);
            match step {
                Step::Work(0) | Step::Overhead(0) | Step::Sleep(0) => continue,
                Step::Work(ns) | Step::Overhead(ns) => {
                    let state = &mut self.threads[thread];
                    state.left_ns = ns;
                    state.is_overhead = matches!(step, Step::Overhead(_));
                    self.run_slice(thread);
                    return;
                }
                Step::Acquire(bus) => match self.buses.get_mut(&bus) {
                    Some(waiting) => waiting.push_back(thread),
                    None => {
                        self.buses.insert(bus, VecDeque::new());
                        continue;
                    }
                },
                Step::WaitFor(device) if self.done[device] => continue,
                Step::WaitFor(device) => self.waiting[device].push(thread),
                Step::Park if std::mem::take(&mut self.threads[thread].wake_pending) => continue,
                Step::Park => self.threads[thread].parked = true,
                Step::Sleep(ns) => self.at(self.now_ns + ns, Event::Ready(thread)),
                // The phase ends with its own thread, whoever may still be on the way.
                Step::Exit if thread == 0 => self.outcome.makespan_ns = self.now_ns,
                Step::Exit => {}
            }
            self.free_cpus += 1;
            return;
        }
    }
}
