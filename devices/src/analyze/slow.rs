//! The devices that take the longest, all passes together.

use std::collections::BTreeMap;

use serde::Serialize;

use super::title;
use crate::model::{Cycle, Direction, Recording};

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowDevice {
    /// The number of the device.
    pub device: usize,
    /// The name.
    pub name: String,
    /// Time in all suspend passes, ns.
    pub suspend_ns: u64,
    /// Time in all resume passes, ns.
    pub resume_ns: u64,
    /// `power/async`, where it is known.
    pub is_async: Option<bool>,
}

impl SlowDevice {
    /// Both ways.
    pub fn total_ns(&self) -> u64 {
        self.suspend_ns + self.resume_ns
    }
}

/// The slowest, the slowest first.
pub fn of(recording: &Recording, cycle: &Cycle, max_rows: usize) -> Vec<SlowDevice> {
    let mut times: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for callback in &cycle.callbacks {
        let entry = times.entry(callback.device).or_default();
        // `prepare` is on the way down and `complete` on the way up, whatever order they walk in.
        match (callback.phase, callback.phase.direction()) {
            (crate::model::DevicePhase::Prepare, _) => entry.0 += callback.duration_ns(),
            (crate::model::DevicePhase::Complete, _) => entry.1 += callback.duration_ns(),
            (_, Direction::Suspend) => entry.0 += callback.duration_ns(),
            (_, Direction::Resume) => entry.1 += callback.duration_ns(),
        }
    }
    let mut all: Vec<SlowDevice> = times
        .into_iter()
        .map(|(device, (suspend_ns, resume_ns))| SlowDevice {
            device,
            name: title(recording, device),
            suspend_ns,
            resume_ns,
            is_async: recording.graph.devices[device].is_async,
        })
        .collect();
    all.sort_by_key(|device| (std::cmp::Reverse(device.total_ns()), device.device));
    all.truncate(max_rows);
    all
}
