//! What `dormouse process status` shows of a running tracker.

use serde::{Deserialize, Serialize};

use crate::persist::Report;

/// How a tracker stands. Times in seconds since 1970 where they are moments.
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
    /// `running`, or `stopped` after a loss of power.
    pub program: String,
    /// `write-protect`, or `compare` where the kernel's tracking cannot be trusted.
    pub tracking: String,
    /// Bytes that the program has in memory.
    pub resident_bytes: u64,
    /// Bytes of the store's medium.
    pub store_bytes: u64,
    /// Bytes a second that the store takes, as measured.
    pub bandwidth_bytes_per_s: f64,
    /// What may be dirty at most; none: no bound was asked for.
    pub budget_bytes: Option<u64>,
    /// The most that was found dirty by the last 100 rounds: the bound that is achieved.
    pub most_dirty_bytes: u64,
    /// What a persist would take with so much dirty, milliseconds.
    pub persist_ms: f64,
    /// Rounds of background sync so far.
    pub rounds: u64,
    /// Rounds that found more dirty than the budget.
    pub rounds_over_budget: u64,
    /// Epochs committed so far.
    pub epochs: u64,
    /// Epochs put off because the pause would have been too long.
    pub epochs_put_off: u64,
    /// The longest pause by the background sync, milliseconds.
    pub longest_pause_ms: f64,
    /// What watches power, and what it last said.
    pub power: String,
    /// Why the program cannot be persisted; empty: it can.
    pub obstacles: Vec<String>,
    /// The last epoch.
    pub last: Option<Report>,
    /// When it was committed.
    pub last_s: Option<f64>,
    /// Bytes that still have to be brought in after a restore.
    pub to_bring_in_bytes: u64,
}
