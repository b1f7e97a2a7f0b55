//! Samples of who accesses the device, wherever they come from: the processors ([`crate::perf`]) or
//! the device itself ([`crate::lines`]).

use std::path::{Path, PathBuf};

use crate::perf::shares::{Run, Shares};

/// A user: its cgroup, its number, and its processes, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub path: &'a Path,
    pub id: u64,
    pub processes: &'a [i32],
}

/// Samples, charged to users.
pub trait Samples: Send {
    /// Who is who from now on.
    fn set_users(&mut self, users: &[Who]);

    /// Takes what was sampled since the last time. Returns cgroups of which something was sampled
    /// and that are watched, but are not among the users yet: whoever is made one of them before the
    /// step is charged with it.
    fn collect(&mut self, interval_ms: f64) -> Vec<PathBuf>;

    /// After an interval.
    fn step(&mut self, interval_ms: f64, runs: &[Run]);

    /// What was found.
    fn shares(&self) -> &Shares;

    /// What went wrong since it was asked last.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}
