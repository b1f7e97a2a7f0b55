//! The parameters of a simulation.

use super::policy::Policy;
use super::task::{Machine, Spec};
use crate::curve::Curve;

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The processors.
    pub machine: Machine,
    /// The device's latency curve.
    pub curve: Curve,
    /// The workload.
    pub tasks: Vec<Spec>,
    /// The policy under test.
    pub policy: Policy,
    /// In bytes a second; the start value if `max_latency_ns` is given.
    pub threshold: f64,
    /// The feedback policies search the threshold with this access latency.
    pub max_latency_ns: Option<f64>,
    /// Latency is compared with the curve, as the daemon does where one is configured.
    pub compares_curve: bool,
    /// The device carries only this part of its bandwidth from this second on.
    pub derated: Option<(f64, f64)>,
    /// How the feedback policies attribute the device's traffic to tasks.
    pub attribution: Attribution,
    /// Time between two passes of the daemon.
    pub interval_ms: f64,
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// Time at the beginning that is not measured.
    pub warm_up_seconds: f64,
    /// Length of a window of the bandwidth statistics.
    pub window_ms: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// How the traffic of a device is attributed to its users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribution {
    /// By CPU time, the daemon's default where no samples exist.
    #[default]
    CpuTime,
    /// Bytes per CPU second are learned, as with `learn_half_life_ms` in the configuration.
    Learned,
    /// Each task's traffic is counted.
    Exact,
}
