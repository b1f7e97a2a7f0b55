//! A machine with a CXL device, simulated: what a policy does to latency, fairness and CPU time.
//!
//! ```text
//!  tasks ──▶ scheduler (fair class with quotas, or sched_ext queues) ──▶ who runs ──▶ device
//!    ▲                                                                               (curve)
//!    └────────── limits ◀── policy (seed's, or the daemon's code) ◀── counters ◀───────┘
//! ```
//!
//! It is calibrated with the seed's evaluation ([`seed`]).

mod budget;
mod cfs;
pub mod device;
pub mod engine;
mod ext;
pub mod metrics;
pub mod policy;
mod quota;
pub mod seed;
pub mod task;

pub use engine::{Setting, simulate};
pub use metrics::Outcome;
pub use policy::Policy;
