//! One power-on of the emulated machine: QEMU's arguments, its control, and what the machine
//! sends back.

pub mod accelerator;
pub(crate) mod attach;
pub(crate) mod console;
pub(crate) mod job_machine;
pub mod lab;
pub mod limit;
pub(crate) mod monitor;
pub mod power;
pub mod qemu;
pub mod qmp;
pub(crate) mod record;
mod signals;
pub(crate) mod stall;
