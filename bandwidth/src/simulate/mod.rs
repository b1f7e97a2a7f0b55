//! A simulated machine with a CXL device: the effect of a policy on latency, fairness and CPU
//! time.
//!
//! ```text
//!  tasks ──▶ scheduler (fair class with quotas, or sched_ext queues) ──▶ running tasks ──▶ device
//!    ▲                                                                                  (curve)
//!    └────────── limits ◀── policy (of the thesis, or the daemon's code) ◀── counters ◀────┘
//! ```
//!
//! It is calibrated with the evaluation of Kämmerer 2025 ([`kaemmerer`]).

mod budget;
mod budget_scheduler;
mod cfs;
mod control;
pub mod device;
pub(crate) mod engine;
pub mod kaemmerer;
pub mod metrics;
pub(crate) mod policy;
mod quota;
mod setting;
pub mod task;
mod throttle_queue;

pub use engine::simulate;
pub use metrics::Outcome;
pub use policy::Policy;
pub use setting::{Attribution, Setting};
