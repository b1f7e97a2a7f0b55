//! The emulated machine: builds its firmware, module and disks, and drives it.
//!
//! ```text
//!  cli ──▶ stress ──▶ cycle ──▶ faults ──▶ machine     what stays when power is gone
//!   │  └──▶ devices, bandwidth      │
//!   │              └──▶ emulator ◀──┘                  one power-on of QEMU
//!   └──▶ build ──▶ apt, cache                          firmware, kernel, disks
//! ```
//!
//! # Example
//!
//! ```
//! use dormouse_system::arguments::Size;
//!
//! // `dormouse lab cycle --dram 1G --fill 512M`
//! let (dram, fill): (Size, Size) = ("1G".parse().unwrap(), "512M".parse().unwrap());
//! assert_eq!((dram, fill), (Size::mib(1024), Size::mib(512)));
//! ```

pub mod apt;
mod bandwidth;
pub mod build;
pub mod cache;
mod child;
pub mod cli;
mod cycle;
pub mod devices;
pub mod emulator;
mod error;
mod faults;
mod interrupt;
pub mod kernels;
pub mod machine;
mod stress;
mod terminal;

pub use cycle::{CycleLine, Outcome, ResumeTimes, SuspendTimes};
pub use error::LabError;
