//! What this program uses of Linux: control groups, disks, modules, serial lines.

pub mod cgroups;
pub mod console;
pub mod disk;
pub mod kernel_log;
pub mod modules;
pub mod mounts;
pub mod nvdimm;
pub mod power;
pub mod run;
pub mod serial;

/// Where init mounts the disk with our programs and modules.
pub const PAYLOAD: &str = "/run/payload";
