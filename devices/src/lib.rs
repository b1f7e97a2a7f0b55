//! Device suspend and resume: what it takes, why, and what another order would gain.
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

pub mod analyze;
pub mod apply;
pub mod cli;
pub mod model;
pub mod read;
pub mod record;
pub mod simulate;
pub mod sysfs;
