//! Machines with one job in their initrd: device suspend, or bandwidth control.

mod ap_boot;
pub mod bandwidth;
pub mod devices;
mod functions;
mod job;
mod modules;
mod pm_ports;
pub mod traffic;
