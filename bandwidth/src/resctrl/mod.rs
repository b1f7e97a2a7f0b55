//! Memory bandwidth monitoring of processors (resctrl): counts of monitoring groups.
//!
//! ```text
//!  /sys/fs/resctrl/
//!    info/L3_MON/mbm_total_bytes_config          0=0x7f;1=0x7f    what each domain counts (AMD, BMEC)
//!    info/L3_MON/event_configs/…/event_filter    local_reads,…    the same, from Linux 6.18 on
//!    mon_data/mon_L3_00/mbm_total_bytes          779247936        the default CTRL_MON group
//!    mon_groups/dormouse-7/                      a MON group: its own RMID
//!    other/mon_data, other/mon_groups            another CTRL_MON group
//! ```
//!
//! AMD has an L3 domain for each core complex, Intel one for each socket, so a machine's count is a
//! sum over domains. The count of a CTRL_MON group contains those of its MON groups.
//!
//! Source: Documentation/filesystems/resctrl.rst of Linux (sections "info directory", "mbm_total_bytes_config",
//! "event_configs", "MON groups", "tasks"). It has never run with a processor that supports it;
//! tests use a folder in which a fake follows that text (`tests_support`).

pub mod counts;
pub mod groups;
mod kernel;
mod slow;
#[cfg(test)]
pub(crate) mod tests_support;

pub use kernel::{Kernel, Linux};
pub use slow::{SlowMemory, describe};

/// Where the kernel mounts it.
pub const ROOT: &str = "/sys/fs/resctrl";
