//! CXL bandwidth control: keep a CXL device below the knee of its latency curve.
//!
//! ```text
//!  counters, tasks ──estimate──▶ bandwidth of each user ──allocate──▶ CPU limit of each user
//! ```
//!
//! Both are pure functions of what they are given.

pub mod allocate;
pub mod estimate;
