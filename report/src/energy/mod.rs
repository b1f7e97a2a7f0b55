//! Joules from durations: the energy of a cycle, and the pauses in which sleeping saves energy.
//!
//! ```text
//! cycles.jsonl: seconds of each phase ─┐
//!                                      ├─▶ account: joules by phase ─▶ pause: break-even
//! profile.toml: watts of each phase ───┘
//! ```
//!
//! Nothing here measures power. A profile states the source of each of its numbers, and a report
//! repeats it.

mod account;
mod pause;
mod profile;

pub use account::{CaseEnergy, Energy, Opponent, Share, WayEnergy, median_parts, of_cases};
pub use pause::{BreakEven, PauseCost};
pub use profile::{BUILT_IN, Origin, Power, Profile, ProfileError, check_power};

/// What the numbers are and are not; the same words on page and terminal.
pub const CAVEAT: &str = "Nothing was metered: these are the durations of the run times the watts \
of the profile. Where the two are of different machines, the joules are of neither.";
