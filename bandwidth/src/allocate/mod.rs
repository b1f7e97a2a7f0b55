//! How much CPU time each user of a CXL device gets, so that the device stays below its knee.
//!
//! ```text
//!                    ┌── total      every user reduced by the same factor (Kämmerer 2025)
//!  loads, threshold ─┼── balance    heavier users reduced more (Kämmerer 2025)             ─▶ limits
//!                    └── controller max–min fair shares (fair) of the threshold for the predicted
//!                                   demands (demand), with feedback
//! ```
//!
//! A *user* is the unit that is limited: a task or a cgroup. This module knows nothing of /proc,
//! cgroups or clocks, so the daemon and the simulator run the same code.

pub(crate) mod balance;
pub(crate) mod controller;
mod demand;
mod derating;
mod dither;
pub mod fair;
mod latency;
pub mod latency_watch;
pub(crate) mod total;
mod user_state;

pub use controller::{Controller, Decision, Settings};

/// The minimum CPU time of a user, in CPUs: `cpu.max` can still express it with a period of 100
/// ms.
pub const MIN_CPU: f64 = 0.01;

/// The measurements of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its number, the same in each step.
    pub id: u64,
    /// Bandwidth of the CXL device that it uses, in bytes a second.
    pub bandwidth: f64,
    /// CPU time that it uses, in CPUs (1.0: one of them, all the time).
    pub cpu: f64,
    /// The limit in force, in CPUs.
    pub limit: Option<f64>,
    /// Whether that limit held it back since the last step.
    pub held_back: bool,
    /// Its share relative to other users', as `cpu.weight`; above 0.
    pub weight: f64,
    /// Latency-critical: never slowed, and served before others.
    pub protected: bool,
    /// The relative error of its bytes per CPU second, where they are learned; 0: it is measured.
    pub rate_error: f64,
}

impl Load {
    /// A user without limit, with the default weight.
    pub fn new(id: u64, bandwidth: f64, cpu: f64) -> Self {
        Self {
            id,
            bandwidth,
            cpu,
            limit: None,
            held_back: false,
            weight: 1.0,
            protected: false,
            rate_error: 0.0,
        }
    }
}

/// The limit of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The user, as in [`Load`].
    pub id: u64,
    /// In CPUs; `None`: not limited.
    pub cpu: Option<f64>,
}

/// Bandwidth of all users, in bytes a second.
pub fn total_of(loads: &[Load]) -> f64 {
    loads.iter().map(|load| load.bandwidth).sum()
}
