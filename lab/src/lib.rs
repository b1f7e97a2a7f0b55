//! The emulated machine: builds its firmware, module and disks, and drives it.
//!
//! # Example
//!
//! ```
//! use dormouse_lab::size::Size;
//!
//! // `dormouse lab cycle --dram 1G --fill 512M`
//! let (dram, fill): (Size, Size) = ("1G".parse().unwrap(), "512M".parse().unwrap());
//! assert_eq!((dram, fill), (Size::mib(1024), Size::mib(512)));
//! ```

pub mod accelerator;
pub mod apt;
pub mod attach;
mod awkward;
pub mod bandwidth;
pub mod build;
pub mod cache;
pub mod cli;
pub mod console;
pub mod cxl_device;
pub mod cycle;
pub mod cycle_options;
pub mod devices;
pub mod error;
pub mod fault;
pub mod hibernation;
mod image_file;
pub mod interrupt;
mod job_machine;
pub mod kernels;
pub mod lab;
pub mod line;
pub mod machine;
mod memory_file;
pub mod power;
pub mod qemu;
pub mod qmp;
pub mod record;
pub mod size;
pub mod stress;
pub mod tamper;
pub mod terminal;
mod times;

pub use error::LabError;
