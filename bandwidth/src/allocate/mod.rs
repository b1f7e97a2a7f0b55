//! How much CPU time each user of a CXL device may have, so that the device stays below its knee.
//!
//! ```text
//!                    ┌── total      every user reduced by the same factor (seed)
//!  loads, threshold ─┼── balance    heavier users reduced more, by recursion (seed)    ─▶ limits
//!                    └── controller fair shares (fair) of the threshold for what users are taken
//!                                   to want (pace), with feedback
//! ```
//!
//! A *user* is whatever limits are set for: a task or a cgroup. Nothing here knows of /proc,
//! cgroups or time other than what it is given, so the daemon and the simulator run the same code.

pub mod balance;
pub mod controller;
pub mod fair;
pub mod latency;
mod pace;
pub mod total;

pub use controller::{Controller, Decision, Settings};

/// The least CPU time that anybody is left with, in CPUs: what `cpu.max` can still express with
/// a period of 100 ms.
pub const LEAST_CPU: f64 = 0.01;

/// What is known of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Who it is; the same number in each step.
    pub id: u64,
    /// Bandwidth of the CXL device that it uses, in bytes a second.
    pub bandwidth: f64,
    /// CPU time that it uses, in CPUs (1.0: one of them, all the time).
    pub cpu: f64,
    /// The limit in force, in CPUs.
    pub limit: Option<f64>,
    /// Whether that limit held it back since the last step.
    pub held_back: bool,
    /// Its share relative to others', as `cpu.weight`; above 0.
    pub weight: f64,
    /// Latency-critical: never slowed, and served before others.
    pub protected: bool,
}

impl Load {
    /// A user without limit, of ordinary weight.
    pub fn new(id: u64, bandwidth: f64, cpu: f64) -> Self {
        Self {
            id,
            bandwidth,
            cpu,
            limit: None,
            held_back: false,
            weight: 1.0,
            protected: false,
        }
    }
}

/// The limit that one user is to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub id: u64,
    /// In CPUs; nothing: not limited.
    pub cpu: Option<f64>,
}

/// Bandwidth of all users, in bytes a second.
pub fn total_of(loads: &[Load]) -> f64 {
    loads.iter().map(|load| load.bandwidth).sum()
}
