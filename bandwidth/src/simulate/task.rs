//! Tasks, and the machine that runs them.

use super::budget::Budget;
use super::device::Asking;
use super::quota::Quota;
use crate::random::Random;

/// What a task does while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Waits for the CXL device; `most`: bytes a second after which it sleeps.
    Memory { asking: Asking, most: Option<f64> },
    /// Does not use the device.
    Compute,
}

/// A task as the workload describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    pub work: Work,
    /// When it is there.
    pub from_ns: i64,
    pub until_ns: i64,
    pub weight: f64,
    pub protected: bool,
}

impl Spec {
    /// A task that is there all the time.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            from_ns: 0,
            until_ns: i64::MAX,
            weight: 1.0,
            protected: false,
        }
    }
}

/// The machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Logical CPUs; neighbours (2n, 2n+1) share a core.
    pub cpus: usize,
    /// Between two ticks of a CPU.
    pub tick_ns: i64,
    /// Time that a task runs before another one of its CPU does, of the fair class.
    pub slice_ns: i64,
    /// The same, of sched_ext.
    pub ext_slice_ns: i64,
    /// By how much the instants at which processors deal with one tick are apart, in the mean.
    pub tick_spread_ns: f64,
    /// Mean time until some other task of the machine (a kernel thread, a daemon) wakes up.
    pub wake_ns: f64,
    /// Mean time until a compute task changes what it does.
    pub method_ns: f64,
    /// Mean time until a CPU with a queue gives a task away.
    pub migration_ns: f64,
    /// Mean time until the balancer sees that a CPU has two cgroups.
    pub balance_ns: f64,
    /// Share of its lines under way that a task loses to the busiest neighbour.
    pub lines_lost: f64,
    /// Own time for each line that the busiest neighbour adds.
    pub own_added_ns: f64,
}

/// A task while it is simulated.
#[derive(Clone, Debug)]
pub struct Task {
    pub spec: Spec,
    pub quota: Option<Quota>,
    pub budget: Option<Budget>,
    /// How often it was put aside because its budget was used up.
    pub held: u64,
    /// In a cgroup of its own, which makes it as heavy as all others of its CPU together.
    pub own_group: bool,
    pub vruntime: f64,
    pub asleep_until_ns: i64,
    /// How hard a compute task presses its neighbour, 0 to 1 ([`pressure`]).
    pub pressure: f64,
    pub next_method_ns: i64,
    pub cpu_ns: i64,
    pub bytes: f64,
    /// Where the block under way began.
    pub block_ns: i64,
    pub block_bytes: f64,
    /// CPU time of it.
    pub block_cpu_ns: i64,
    /// Work done by a compute task, in seconds of an undisturbed CPU.
    pub work: f64,
}

/// How hard what a compute task does now presses its neighbour: mostly little, sometimes much.
pub fn pressure(random: &mut Random) -> f64 {
    random.unit().powi(2)
}

impl Task {
    pub fn new(spec: Spec, random: &mut Random) -> Self {
        Self {
            spec,
            quota: None,
            budget: None,
            held: 0,
            own_group: false,
            vruntime: random.unit() * 1e6,
            asleep_until_ns: spec.from_ns,
            pressure: pressure(random),
            next_method_ns: 0,
            cpu_ns: 0,
            bytes: 0.0,
            block_ns: spec.from_ns,
            block_bytes: 0.0,
            block_cpu_ns: 0,
            work: 0.0,
        }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self.spec.work, Work::Memory { .. })
    }

    /// How often its limit has held it back.
    pub fn times_held(&self) -> u64 {
        self.held + self.quota.as_ref().map_or(0, |quota| quota.nr_throttled)
    }

    /// Whether it wants a CPU and may have one.
    pub fn is_ready(&self, now_ns: i64) -> bool {
        now_ns >= self.asleep_until_ns
            && now_ns < self.spec.until_ns
            && !self.quota.as_ref().is_some_and(|quota| quota.throttled)
    }

    /// How fast its virtual time passes.
    pub fn weight(&self) -> f64 {
        if self.own_group { 40.0 } else { 1.0 }
    }
}
