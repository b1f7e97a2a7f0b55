//! Joules from durations: what a cycle costs, and from which pause on it pays.
//!
//! ```text
//! cycles.jsonl: seconds of each phase ─┐
//!                                      ├─▶ account: joules by phase ─▶ pause: break-even
//! profile.toml: watts of each phase ───┘
//! ```
//!
//! Nothing here measures power. A profile says where each of its numbers comes from, and a report
//! repeats it.

mod account;
pub mod html;
mod pause;
mod profile;
pub mod terminal;

pub use account::{CaseEnergy, Energy, Opponent, Share, WayEnergy, median_parts, of_cases};
pub use pause::{BreakEven, PauseCost};
pub use profile::{BUILT_IN, Origin, Power, Profile, ProfileError, check_power};
