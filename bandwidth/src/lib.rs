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
//!
//! # Example
//!
//! Three users share 4 GiB/s; the first wants less than its share.
//!
//! ```
//! use dormouse_bandwidth::allocate::fair::{Demand, shares};
//!
//! let demands = [0.5, 3.0, f64::INFINITY].map(|wanted| Demand { wanted, weight: 1.0 });
//! assert_eq!(shares(4.0, &demands).shares, [0.5, 1.75, 1.75]);
//! ```

pub mod allocate;
pub mod cli;
pub mod curve;
pub mod daemon;
pub mod enforce;
pub mod estimate;
mod line_samples;
mod perf;
mod probe;
mod random;
mod resctrl;
mod resource;
mod samples;
pub mod simulate;
