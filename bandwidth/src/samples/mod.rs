//! Samples of accesses to the device, from the processors ([`crate::perf`]) or from the device
//! itself ([`crate::line_samples`]).

pub mod shares;

use std::path::{Path, PathBuf};

use shares::{Run, Shares};

/// A user: its cgroup, its number, and its known processes.
#[derive(Clone, Copy, Debug)]
pub struct UserRef<'a> {
    pub path: &'a Path,
    pub id: u64,
    pub processes: &'a [i32],
}

/// Samples, charged to users.
pub trait Samples: Send {
    /// Replaces the users.
    fn set_users(&mut self, users: &[UserRef]);

    /// Reads the samples since the last call. Returns watched cgroups that were sampled and are
    /// not users yet; a cgroup that becomes a user before the next step is charged with these
    /// samples.
    fn collect(&mut self, interval_ms: f64) -> Vec<PathBuf>;

    /// Ends an interval.
    fn step(&mut self, interval_ms: f64, runs: &[Run]);

    /// The result of the last step.
    fn shares(&self) -> &Shares;

    /// Samples that were lost so far, because rings were full or were read too late.
    fn lost(&self) -> u64 {
        0
    }

    /// Problems since the last call.
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }
}
