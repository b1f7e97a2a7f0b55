//! Where the time of a recorded suspend and resume went: pure functions of a recording.
//!
//! ```text
//! Recording, cycle ─▶ totals   each step of the kernel, one after the other
//!                  ─▶ phases   each pass over the devices: slowest, critical path, idle CPUs
//!                  ─▶ findings possible improvements, by their gain
//! ```

pub mod findings;
mod gain;
pub mod page;
mod phases;
mod slow;
pub mod text;
pub mod timeline;
mod totals;

use serde::Serialize;

use crate::model::Overheads;
use crate::model::Recording;

pub use findings::Finding;
pub use phases::{ChainLink, PhaseAnalysis};
pub use slow::SlowDevice;
pub use totals::{Step, Totals};

/// What a user may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Devices slower than this are slow.
    pub threshold_ns: u64,
    /// CPUs of the machine; none: as recorded, or 1.
    pub cpus: Option<usize>,
    /// How many of the slowest devices are listed.
    pub max_rows: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threshold_ns: 1_000_000,
            cpus: None,
            max_rows: 15,
        }
    }
}

/// What was recorded, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extent {
    /// Number of the cycle in the recording, from 1.
    pub cycle: usize,
    /// Begin and end of the suspend were both seen.
    pub complete: bool,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of devices.
    pub devices: usize,
    /// Number of device links.
    pub links: usize,
}

/// The analysis of one cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// What it is of.
    #[serde(flatten)]
    pub extent: Extent,
    /// The totals.
    pub totals: Totals,
    /// The passes.
    pub phases: Vec<PhaseAnalysis>,
    /// The slowest devices.
    pub slowest: Vec<SlowDevice>,
    /// The largest gain first.
    pub findings: Vec<Finding>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Analyses one cycle of a recording (from 1), the last one where none is named; none where there
/// is no such cycle.
pub fn analyze(
    recording: &Recording,
    number: Option<usize>,
    options: &Options,
) -> Option<Analysis> {
    let number = number.unwrap_or(recording.cycles.len());
    let cycle = recording.cycles.get(number.checked_sub(1)?)?;
    let cpus = cpus_of(recording, options.cpus);
    let totals = totals::of(cycle);
    let phases = phases::of(recording, cycle, cpus, options.max_rows);
    let slowest = slow::of(recording, cycle, options.max_rows);
    let context = findings::Context {
        recording,
        cycle,
        cpus,
        options,
        overheads: overheads_of(recording),
        totals: &totals,
        phases: &phases,
    };
    let findings = findings::of(&context);
    Some(Analysis {
        extent: Extent {
            cycle: number,
            complete: cycle.complete,
            cpus,
            devices: recording.graph.devices.len(),
            links: recording.graph.links.len(),
        },
        totals,
        phases,
        slowest,
        findings,
        notes: recording.notes.clone(),
    })
}

/// CPUs to reckon with: as asked for, as recorded, or one.
pub fn cpus_of(recording: &Recording, asked: Option<usize>) -> usize {
    let recorded = recording.machine.cpus.map(|cpus| cpus as usize);
    asked.or(recorded).unwrap_or(1).max(1)
}

/// Overheads of scheduling: as measured on the machine, or the defaults.
pub fn overheads_of(recording: &Recording) -> Overheads {
    recording.overheads.unwrap_or_default()
}

/// A device in words: `0000:00:1f.2 (ahci)`.
pub fn title(recording: &Recording, device: usize) -> String {
    let device = &recording.graph.devices[device];
    match device.driver.as_deref().or(device.subsystem.as_deref()) {
        Some(driver) => format!("{} ({driver})", device.name),
        None => device.name.clone(),
    }
}
