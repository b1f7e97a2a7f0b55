//! Tasks, and the machine that runs them.

use super::budget::Budget;
use super::device::AccessProfile;
use super::quota::Quota;
use crate::random::Random;

/// The behaviour of a running task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Waits for the CXL device; `max_bytes_s`: the rate above which it sleeps.
    Memory {
        /// How it accesses the device.
        access: AccessProfile,
        /// The rate above which it sleeps.
        max_bytes_s: Option<f64>,
    },
    /// Does not use the device.
    Compute,
}

/// A task that alternates between running and sleeping, in step with all others of this period and
/// offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulse {
    /// Length of the period.
    pub period_ns: i64,
    /// The part of the period, from its start, in which it runs.
    pub on_ns: i64,
    /// When the first period begins.
    pub offset_ns: i64,
}

/// The specification of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its behaviour.
    pub work: Work,
    /// When it starts.
    pub from_ns: i64,
    /// When it ends.
    pub until_ns: i64,
    /// Its weight in fair shares; 1 is ordinary.
    pub weight: f64,
    /// Whether it is never limited.
    pub protected: bool,
    /// `None`: it runs all the time.
    pub pulse: Option<Pulse>,
}

impl Spec {
    /// A task that exists all the time.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            from_ns: 0,
            until_ns: i64::MAX,
            weight: 1.0,
            protected: false,
            pulse: None,
        }
    }

    /// Whether it wants to run, apart from a rate of its own.
    pub fn is_on(&self, now_ns: i64) -> bool {
        let in_pulse =
            |pulse: Pulse| (now_ns - pulse.offset_ns).rem_euclid(pulse.period_ns) < pulse.on_ns;
        now_ns < self.until_ns && self.pulse.is_none_or(in_pulse)
    }
}

/// The machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Logical CPUs; neighbours (2n, 2n+1) share a core.
    pub cpus: usize,
    /// Time between two ticks of a CPU.
    pub tick_ns: i64,
    /// Time slice of the fair class.
    pub slice_ns: i64,
    /// Time slice of sched_ext.
    pub ext_slice_ns: i64,
    /// Mean delay between the processors' handling of one tick.
    pub tick_spread_ns: f64,
    /// Mean time between wakeups of other tasks of the machine (kernel threads, daemons).
    pub wake_ns: f64,
    /// Mean time until a compute task changes its behaviour.
    pub method_ns: f64,
    /// Mean time until a CPU with a queue gives a task away.
    pub migration_ns: f64,
    /// Mean time until the load balancer finds a CPU with two cgroups.
    pub balance_ns: f64,
    /// Fraction of the lines in flight that a task loses to the busiest neighbour.
    pub lines_lost: f64,
    /// Own time for each line that the busiest neighbour adds.
    pub own_added_ns: f64,
}

/// The state of a simulated task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its specification.
    pub spec: Spec,
    /// State of its quota, with quotas.
    pub quota: Option<Quota>,
    /// State of its budget, with the budget scheduler.
    pub budget: Option<Budget>,
    /// How often it was held because its budget was used up.
    pub held: u64,
    /// In a cgroup of its own, as heavy as all other tasks of its CPU together.
    pub own_group: bool,
    /// Virtual run time of the fair scheduler.
    pub vruntime: f64,
    /// When it wakes.
    pub asleep_until_ns: i64,
    /// How much a compute task slows its neighbour, 0 to 1 ([`pressure`]).
    pub pressure: f64,
    /// When a compute task next changes its pressure.
    pub next_method_ns: i64,
    /// CPU time so far.
    pub cpu_ns: i64,
    /// Bytes so far.
    pub bytes: f64,
    /// When the present block began.
    pub block_ns: i64,
    /// Bytes of the present block so far.
    pub block_bytes: f64,
    /// Its CPU time.
    pub block_cpu_ns: i64,
    /// Work of a compute task, in seconds of a CPU without a busy neighbour.
    pub work: f64,
}

/// How much a compute task slows its neighbour at present: mostly little, sometimes much.
pub fn pressure(random: &mut Random) -> f64 {
    random.unit().powi(2)
}

impl Task {
    /// A task that has not started.
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

    /// Whether it uses the device.
    pub fn is_memory(&self) -> bool {
        matches!(self.spec.work, Work::Memory { .. })
    }

    /// How often its limit held it back.
    pub fn times_held(&self) -> u64 {
        self.held + self.quota.as_ref().map_or(0, |quota| quota.nr_throttled)
    }

    /// Whether it is runnable.
    pub fn is_ready(&self, now_ns: i64) -> bool {
        now_ns >= self.asleep_until_ns
            && self.spec.is_on(now_ns)
            && !self.quota.as_ref().is_some_and(|quota| quota.throttled)
    }

    /// The weight of its virtual time.
    pub fn weight(&self) -> f64 {
        if self.own_group { 40.0 } else { 1.0 }
    }
}
