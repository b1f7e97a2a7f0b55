//! The emulated machine: builds its firmware, module and disks, and drives it.

pub mod apt;
pub mod build;
pub mod cache;
