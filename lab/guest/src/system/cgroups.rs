//! The machine's control groups: what sleeps (workload, services) apart from what puts it to sleep.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, GuestError};

const ROOT: &str = "/sys/fs/cgroup";
/// The agent and what it runs for the lab; never frozen.
pub const AGENT: &str = "agent";
pub const WORKLOAD: &str = "workload";
pub const REDIS: &str = "redis";

/// Makes the groups.
pub fn prepare() -> Result<(), GuestError> {
    for controller in ["+memory", "+cpu", "+cpuset", "+pids"] {
        // Which controllers there are depends on the kernel; freezing needs none.
        let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), controller);
    }
    for group in [AGENT, WORKLOAD, REDIS] {
        path_of(group)?;
    }
    Ok(())
}

/// The group's folder, made if absent.
pub fn path_of(group: &str) -> Result<PathBuf, GuestError> {
    if group.is_empty()
        || group
            .split('/')
            .any(|part| part.is_empty() || part.starts_with('.'))
    {
        return Err(GuestError::Other(format!(
            "{group:?} is no control group's name"
        )));
    }
    let path = Path::new(ROOT).join(group);
    fs::create_dir_all(&path).doing(format!("create control group {group}"))?;
    Ok(path)
}

/// Moves a process into a group.
pub fn enter(group: &str, pid: u32) -> Result<(), GuestError> {
    let file = path_of(group)?.join("cgroup.procs");
    fs::write(&file, pid.to_string()).doing(format!("move process {pid} to {group}"))
}
