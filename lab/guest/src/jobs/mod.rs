//! A machine that does one job out of its initrd: devices that suspend, or bandwidth control.

pub mod bandwidth;
pub mod devices;
mod job;
pub mod traffic;
