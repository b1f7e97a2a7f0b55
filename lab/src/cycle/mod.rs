//! The life cycle: fill memory, sleep, lose all power, wake, migrate back, compare everything.
//!
//! ```text
//!  boot → fill → sleep ─→ power is gone ─→ power on ─→ resumed → home → compare ─┐
//!           ↑     │ │                        └──────→ cold boot (with a reason)  │
//!           │     │ └→ refused: continues to run → compare                       │
//!           │     └ power cut at a fault point → power on ↗                      │
//!           └────────────────── next cycle, same running system ←────────────────┘
//! ```

pub(crate) mod cxl;
pub mod hard_to_move;
pub(crate) mod hibernation;
pub mod hibernation_options;
pub mod line;
pub(crate) mod method;
pub mod options;
mod outcome;
mod run;
pub mod seal;
mod sleep;
pub(crate) mod times;
mod wake;

pub use line::{CycleLine, Outcome, ResumeTimes, SuspendTimes};
pub use run::Cycles;
