//! A user of the device: a cgroup whose traffic is accounted and may be limited.

use std::ops::Range;

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

/// What a user moves on one leg.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LegUse {
    /// In bytes a second.
    pub(super) bandwidth: f64,
    /// The relative error of its bytes per CPU second, where they are learned.
    pub(super) rate_error: f64,
}

/// A cgroup that uses the device.
pub struct User {
    /// Number of the user, unique while the daemon runs.
    pub id: u64,
    /// The cgroup.
    pub cgroup: Cgroup,
    /// A name for people.
    pub name: String,
    /// Share of its memory on each node.
    pub(super) node_shares: Vec<f64>,
    /// The same for each leg, times the part of its CPU time on the processors of a path.
    pub shares: Vec<f64>,
    pub(super) legs: Vec<LegUse>,
    /// Bytes on the device.
    pub resident_bytes: u64,
    /// Its weight in fair shares; 1 is ordinary.
    pub weight: f64,
    /// The weight that an annotation of its pod gives it.
    pub(super) given_weight: Option<f64>,
    /// The maximum latency of its class, in nanoseconds.
    pub class_ns: Option<f64>,
    /// Whether an annotation of its pod cannot be used, and that was reported.
    pub(super) is_misannotated: bool,
    /// Whether it is never limited.
    pub protected: bool,
    /// In bytes a second.
    pub bandwidth: f64,
    /// Bytes attributed to it since it became a user.
    pub charged_bytes: f64,
    /// In CPUs.
    pub cpu: f64,
    /// In force, in CPUs.
    pub limit: Option<f64>,
    /// The device that determined it.
    pub bound_by: Option<usize>,
    pub(super) overrun: Overrun,
    pub(super) usage: Option<Usage>,
    /// Time of the last scan.
    pub(super) scanned_ns: u64,
    /// Readings of its CPU time so far.
    pub scans: u32,
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
    /// The time of those passes, in nanoseconds.
    pub held_back_ns: u64,
}

impl User {
    /// Whether its limit held it back between the last two passes.
    pub fn held_back(&self) -> bool {
        self.held_back
    }

    /// Its traffic on these legs, in bytes a second.
    pub(super) fn bandwidth_on(&self, legs: Range<usize>) -> f64 {
        let legs = self.legs.get(legs).unwrap_or_default();
        legs.iter().map(|leg| leg.bandwidth).sum()
    }

    /// The largest error of its bytes per CPU second on these legs.
    pub(super) fn rate_error_on(&self, legs: Range<usize>) -> f64 {
        let legs = self.legs.get(legs).unwrap_or_default();
        legs.iter().map(|leg| leg.rate_error).fold(0.0, f64::max)
    }

    /// Reads its weight: that of an annotation, or that of its cgroup.
    pub(super) fn read_weight(&mut self) {
        let given = self.given_weight;
        self.weight = given.unwrap_or_else(|| self.cgroup.weight().unwrap_or(1.0));
    }
}
