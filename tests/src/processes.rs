//! Processes of this machine, as tests look for them.

use std::fs;
use std::path::Path;

use dormouse_system::{Root, proc};

/// These processes and all that descend from them, parents first.
pub fn with_descendants(mut all: Vec<i32>) -> Vec<i32> {
    let root = Root::host();
    let parents: Vec<(i32, i32)> = proc::pids(&root)
        .into_iter()
        .filter_map(|pid| Some((proc::stat(&root, pid).ok()?.parent, pid)))
        .collect();
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        for &(of, pid) in &parents {
            if of == parent && !all.contains(&pid) {
                all.push(pid);
            }
        }
        at += 1;
    }
    all
}

/// Processes that name this directory in a command line that `is_wanted` accepts, and all that
/// descend from them.
pub fn naming(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let directory = directory.display().to_string();
    let named = proc::pids(&Root::host()).into_iter().filter(|pid| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains(&directory) && is_wanted(&command)
    });
    with_descendants(named.collect())
}

/// The tracker that was started as this process: itself, or its child if it could not go on under the number
/// that it got.
pub fn tracker_of(started: i32) -> i32 {
    let executable = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let children = fs::read_to_string(format!("/proc/{started}/task/{started}/children"));
    let children = children.unwrap_or_default();
    let mut children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    let tracker = children.find(|&pid| executable(pid) == executable(started));
    tracker.unwrap_or(started)
}
