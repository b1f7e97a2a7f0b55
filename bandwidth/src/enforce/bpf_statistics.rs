//! The kernel's run-time statistics of BPF programs.

use std::os::fd::{FromRawFd, OwnedFd};

/// The cost of one of a scheduler's callbacks.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    /// The first 15 characters of its name.
    pub name: String,
    pub runs: u64,
    pub mean_ns: f64,
}

/// The kernel's run-time statistics of BPF programs, enabled while this value lives. They have a
/// small overhead.
pub struct Statistics {
    _on: OwnedFd,
}

impl Statistics {
    /// # Errors
    /// The kernel refuses.
    pub fn switch_on() -> Result<Self, std::io::Error> {
        // SAFETY: takes a number; returns a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(std::io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new and has no other owner.
        let _on = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _on })
    }

    /// The programs with this prefix that have run since they were loaded.
    pub fn of(&self, prefix: &str) -> Vec<Cost> {
        let programs = libbpf_rs::query::ProgInfoIter::default();
        let cost = |program: libbpf_rs::query::ProgramInfo| Cost {
            name: program.name.to_string_lossy().into_owned(),
            runs: program.run_cnt,
            mean_ns: program.run_time_ns as f64 / program.run_cnt.max(1) as f64,
        };
        let mut costs: Vec<Cost> = programs.map(cost).collect();
        costs.retain(|cost| cost.name.starts_with(prefix) && cost.runs > 0);
        costs
    }
}
