//! Suspend and resume of devices: where the time goes, why, and what another order would gain.
//!
//! ```text
//!  trace, log ──read──▶┐
//!  /sys ───────sysfs──▶├─▶ Recording ─┬─▶ analyze ──▶ totals, findings, page, timeline (report)
//!  this machine record▶┘   (model)    ├─▶ simulate ─▶ any schedule, lower bound
//!                                     └─▶ apply ────▶ /sys switches, undo
//! ```
//!
//! Everything between reading and writing is a pure function of a recording. It works on stock
//! kernels.
//!
//! # Example
//!
//! A parent with two children that each sleep for 3 ms: list order takes 6 ms, and graph order the
//! 3 ms that no order can beat.
//!
//! ```
//! use dormouse_devices::model::{Direction, Edge, Edges};
//! use dormouse_devices::simulate::{Job, Overheads, Problem, Schedule, Setting, bound, simulate};
//!
//! let sleeps = |wait_ns| Job { busy_ns: 0, wait_ns, bus: None, has_callback: true };
//! let edges = [1, 2].map(|subordinate| Edge { superior: 0, subordinate });
//! let edges = Edges::from_candidates(3, edges.into_iter());
//! let jobs = vec![sleeps(0), sleeps(3_000_000), sleeps(3_000_000)];
//! let problem = Problem::new(Direction::Suspend, jobs, edges, &[0, 1, 2]);
//! let makespan_ns = |schedule| {
//!     let mut setting = Setting::new(schedule, 2);
//!     setting.overheads = Overheads::NONE;
//!     simulate(&problem, &[true; 3], &setting).makespan_ns
//! };
//! assert_eq!(makespan_ns(Schedule::List), 6_000_000);
//! assert_eq!(makespan_ns(Schedule::Graph), 3_000_000);
//! assert_eq!(bound(&problem, 2).ns(), 3_000_000);
//! ```

pub mod analyze;
pub mod apply;
pub mod cli;
pub mod model;
pub mod read;
pub mod record;
pub mod simulate;
pub mod sysfs;
