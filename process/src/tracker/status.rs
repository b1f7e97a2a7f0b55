//! What `dormouse process status` shows of a running tracker.

use serde::{Deserialize, Serialize};

use crate::persist::Report;

/// What background sync has done so far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct SyncCounts {
    /// Rounds.
    pub rounds: u64,
    /// Rounds that found more dirty than the budget.
    pub rounds_over_budget: u64,
    /// Epochs committed.
    pub epochs: u64,
    /// Epochs postponed because the pause would have been too long.
    pub epochs_put_off: u64,
    /// Those postponed since the last epoch; the next one may take longer.
    #[serde(default)]
    pub put_off_in_succession: u32,
    /// Bytes that were dirty when the last postponed one had stopped the program.
    #[serde(default)]
    pub put_off_bytes: u64,
    /// The longest pause, milliseconds.
    pub longest_pause_ms: f64,
    /// Time that the program was stopped so that no more than the budget is dirty, milliseconds.
    #[serde(default)]
    pub throttled_ms: f64,
}

/// The state of a tracker. Moments are seconds since 1970.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    /// The program's name in its store.
    pub name: String,
    /// The store.
    pub store: String,
    /// Roots of the process tree.
    pub pids: Vec<i32>,
    /// The tracker itself.
    pub tracker_pid: u32,
    /// `running`, or `stopped` after a power loss.
    pub program: String,
    /// `write-protect`, or `compare` where the kernel's tracking cannot be trusted.
    pub tracking: String,
    /// Bytes that the program has in memory.
    pub resident_bytes: u64,
    /// Bytes of the store's medium.
    pub store_bytes: u64,
    /// Bytes a second that the store takes, as measured.
    pub bandwidth_bytes_per_s: f64,
    /// Maximum of dirty bytes; none: no bound was set.
    pub budget_bytes: Option<u64>,
    /// Maximum of the dirty bytes that the last 100 rounds have found: the bound that is achieved.
    #[serde(default)]
    pub max_dirty_bytes: u64,
    /// The former name of `max_dirty_bytes`.
    #[serde(default)]
    pub most_dirty_bytes: u64, // until 0.3
    /// The part of its time, in per cent, that the program may be stopped so that no more than the budget is dirty.
    #[serde(default)]
    pub throttle_percent: f64,
    /// Time that a persist would take with `max_dirty_bytes`, milliseconds.
    pub persist_ms: f64,
    /// What background sync has done.
    #[serde(flatten)]
    pub sync: SyncCounts,
    /// The source of power-loss warnings, and its last report.
    pub power: String,
    /// Why the program cannot be persisted; empty: it can.
    pub obstacles: Vec<String>,
    /// The last epoch.
    pub last: Option<Report>,
    /// When it was committed.
    pub last_s: Option<f64>,
    /// Bytes that are still to be filled after a restore.
    pub to_bring_in_bytes: u64,
}
