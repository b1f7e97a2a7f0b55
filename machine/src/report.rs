//! Reports of a sleep and of migrating back; scripts rely on the names of the fields.

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

/// A process that the cgroup freezer cannot stop because it shares our cgroup or an ancestor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfrozenProcess {
    /// Process ID.
    pub pid: i32,
    /// The name of its program.
    pub name: String,
}

/// What a sleep is going to do, and whether it fits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// NUMA node of the CXL memory.
    pub node: u32,
    /// The dax device of the node, where there is one.
    pub device: Option<String>,
    /// User pages in DRAM that will move, each counted once.
    pub user_bytes: u64,
    /// What firmware will have to save besides, about.
    pub kernel_bytes: u64,
    /// Bytes that the sleep needs.
    pub needed_bytes: u64,
    /// Bytes of CXL memory available.
    pub available_bytes: u64,
    /// Number of user processes.
    pub processes: u64,
    /// Cgroups that will be frozen.
    pub freeze: Vec<String>,
    /// User processes that run on until the kernel stops them itself.
    pub not_frozen: Vec<UnfrozenProcess>,
    /// Pids in the order in which they migrate back.
    pub home_order: Vec<i32>,
    /// What vouches that the device keeps its contents: `device`, `firmware`, or `accepted`.
    #[serde(default)]
    pub persistence: String,
    /// The answer of each source, where none vouches.
    #[serde(default)]
    pub persistence_reasons: Vec<String>,
    /// What wakes the machine: firmware, a boot entry by its number, or the usual boot, and then why not the
    /// entry, where one is set up.
    #[serde(default)]
    pub woken_by: String,
}

/// One sleep, from the call to user space running again (and pages in DRAM, if that was waited
/// for).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SleepReport {
    /// `resumed`, or `dry-run`.
    pub outcome: String,
    /// NUMA node of the CXL memory.
    pub node: u32,
    /// From the call to the write that enters S3.
    pub suspend_s: f64,
    /// Bringing the CXL node online.
    pub node_online_s: f64,
    /// Until user space stood still.
    pub freeze_s: f64,
    /// Dropping caches.
    pub caches_s: f64,
    /// Migrating user pages to the node.
    pub migrate_s: f64,
    /// From the write that enters S3 to the module's last step: kernel freezer and devices. Null
    /// where the module's clock cannot be compared.
    pub devices_s: Option<f64>,
    /// Bytes of user pages that moved to the node, each counted once.
    pub user_bytes_migrated: u64,
    /// Pages of processes that could not move; firmware saved them.
    pub pages_failed: u64,
    /// What stayed in DRAM, with owner and reason, largest first: all owners of those pages, and
    /// what no process maps from 1 MiB on.
    #[serde(default)]
    pub not_moved: Vec<Owner>,
    /// Bytes of the kernel's pages that were saved.
    pub saved_bytes: u64,
    /// Bytes that were restored.
    pub restored_bytes: u64,
    /// From firmware's jump to the first instruction of user space. Null as above.
    pub resume_kernel_s: Option<f64>,
    /// User processes that the cgroup freezer could not stop.
    pub not_frozen: Vec<UnfrozenProcess>,
    /// As in the plan, and recorded in the image.
    #[serde(default)]
    pub persistence: String,
    /// The plan, with a dry run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<Plan>,
    /// Migrating back, where the sleep waited for it.
    pub home: Option<MigrateBackReport>,
}

/// Migrating pages back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MigrateBackReport {
    /// NUMA node of the CXL memory.
    pub node: u32,
    /// From the call until the node was offline (or as far as it went).
    pub home_s: f64,
    /// User pages that left the CXL node, each counted once.
    pub home_bytes: u64,
    /// Bytes in use on the CXL node at the end; 0 once it is offline.
    pub left_bytes: u64,
    /// The node is offline again.
    pub offline: bool,
    /// Processes that were looked at.
    pub processes: u64,
    /// Pages that could not move.
    pub failed_pages: u64,
    /// The order that was followed: `hot-first` falls back to `process-order` where the kernel
    /// cannot say which pages are hot.
    #[serde(default)]
    pub policy: String,
    /// Why it fell back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Moved before their turn, because they were hot.
    #[serde(default)]
    pub hot_bytes: u64,
    /// It was asked to stop before it was done; call again to go on.
    pub stopped: bool,
}
