//! CXL bandwidth control: keep a CXL device below the knee of its latency curve.
//!
//! ```text
//!  counters, tasks ──estimate──▶ bandwidth of each user ──allocate──▶ CPU limit of each user
//!         ▲                                                                │
//!         │                                                             enforce
//!         └───────── this machine (daemon), or a simulated one ◀──── cpu.max of cgroups
//!                                  (simulate)
//! ```
//!
//! Estimate and allocate are pure functions of what they are given; the daemon and the simulator
//! run the same ones.

pub mod allocate;
pub mod cli;
pub mod curve;
pub mod daemon;
pub mod enforce;
pub mod estimate;
pub mod line_samples;
pub mod perf;
pub mod probe;
mod random;
mod resource;
pub mod samples;
pub mod simulate;
