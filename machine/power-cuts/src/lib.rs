//! The firmware way of Suspend-to-CXL on a simulated machine, with power cut anywhere.
//!
//! The image library and the firmware's driver are compiled as they are; only the instructions
//! that store past the caches, write lines back and order them are the simulation's, and tell
//! [`dormouse_medium::Medium`]. The module's part is `c/kernel.c`, in the module's order.
//!
//! ```text
//!  power on ─▶ wake.c: select, check, restore, consume ─▶ jump │ cold boot with its reason
//!     ▲                                                          │
//!     └── power off ◀── save.c: copy, commit ◀── smi.c ◀── kernel: mark, request ◀─ programs run
//! ```
//!
//! Before each fence, the medium may hold any mix of what was stored since the one before
//! ([`Cut`]). For each of them the machine is switched on again and judged ([`judge`]): *resumed
//! and equal*, or *cold boot with the one reason that fits*.

mod judge;
mod life;
mod machine;
mod memory;
pub mod search;
mod sys;

pub use judge::{Expected, Found, Wrong, judge};
pub use life::{LifeShape, live};
pub use machine::{Cut, End, Machine, Mutation, Step, Tracked};
pub use memory::{Content, Method, Shape, Way};
