//! A user of the device: a cgroup whose traffic is accounted and may be limited.

use crate::enforce::cgroup::{Cgroup, Usage};
use crate::enforce::meter::Meter;
use crate::enforce::quota::Overrun;

/// The state of an idle user.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleState {
    /// Its assumed CPUs.
    pub(super) rate: f64,
    /// Time, and charges of each node, up to which it is charged.
    pub(super) charged_ns: u64,
    pub(super) paid: Vec<f64>,
}

/// A cgroup that uses the device.
pub struct User {
    /// Number of the user, unique while the daemon runs.
    pub id: u64,
    /// The cgroup.
    pub cgroup: Cgroup,
    /// Share of its memory on each node.
    pub shares: Vec<f64>,
    /// Bytes on the device.
    pub resident_bytes: u64,
    /// Its weight in fair shares; 1 is ordinary.
    pub weight: f64,
    /// Whether it is never limited.
    pub protected: bool,
    /// In bytes a second.
    pub bandwidth: f64,
    /// Bytes attributed to it since it became a user.
    pub charged_bytes: f64,
    /// In CPUs.
    pub cpu: f64,
    /// The relative error of its bytes per CPU second, where they are learned.
    pub(super) rate_error: f64,
    /// In force, in CPUs.
    pub limit: Option<f64>,
    pub(super) overrun: Overrun,
    pub(super) usage: Option<Usage>,
    /// Time of the last scan, and the number of scans so far.
    pub(super) scanned_ns: u64,
    pub(super) scans: u32,
    /// CPU time reported to the estimator, in nanoseconds.
    pub(super) ran_ns: u64,
    /// While it is idle.
    pub(super) idle_state: Option<IdleState>,
    /// CPUs of a user that became active in this pass.
    pub(super) begun_cpu: Option<f64>,
    pub(super) meter: Option<Meter>,
    /// As of when its files were opened.
    pub(super) processes: Vec<i32>,
    pub(super) held_back: bool,
    /// When the kernel last counted that its limit held it back.
    pub(super) held_ns: Option<u64>,
    /// When it was last sampled.
    pub(super) sampled_ns: Option<u64>,
    /// Passes before which its limit held it back, since it became a user.
    pub passes_held_back: u64,
}

impl User {
    /// Whether its limit held it back between the last two passes.
    pub fn held_back(&self) -> bool {
        self.held_back
    }
}
