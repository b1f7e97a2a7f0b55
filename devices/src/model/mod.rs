//! The recording of a machine's devices and suspends: plain data, and the one file format.
//!
//! ```text
//! recording.json   {"format":"dormouse-devices","version":1,
//!                   "machine":{…},            the machine, and its switches at that time
//!                   "graph":{"devices":[…],"links":[…]},
//!                   "cycles":[{"phases":[…],"callbacks":[…]}],
//!                   "overheads":{…}}           of scheduling, measured on that machine
//! ```
//!
//! Devices are numbered by their place in `graph.devices`. Times are nanoseconds on the clock of
//! the recording, of which only differences mean anything.

mod file;
mod graph;
mod overheads;
mod phase;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use file::{FORMAT, FileError, VERSION};
pub use graph::{Device, Edge, Edges, Graph, Link, LinkStatus, RuntimePm, list_order};
pub use overheads::Overheads;
pub use phase::{DevicePhase, Direction};

/// A machine's device graph and what its suspends took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Format and version.
    #[serde(flatten)]
    pub head: Head,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
    /// Its devices and links.
    #[serde(default)]
    pub graph: Graph,
    /// The recorded suspends.
    #[serde(default)]
    pub cycles: Vec<Cycle>,
    /// Overheads of scheduling, if they were measured on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overheads: Option<Overheads>,
    /// Notes for the reader: lost events, devices that could not be distinguished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Format and version of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Always [`FORMAT`].
    pub format: String,
    /// The version of the format.
    pub version: u32,
}

impl Default for Head {
    fn default() -> Head {
        Head {
            format: FORMAT.to_owned(),
            version: VERSION,
        }
    }
}

/// The recorded machine; unknown values are missing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The release of the kernel.
    pub kernel: Option<String>,
    /// Processors that were online.
    pub cpus: Option<u32>,
    /// The source: `record s2idle`, or the name of a trace or log.
    #[serde(default)]
    pub source: String,
    /// Settings at the time of recording, by their path below /sys (`power/pm_async` → `1`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// One suspend and the resume after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// In the order of their begin.
    pub phases: Vec<PhaseSpan>,
    /// In the order of their begin.
    pub callbacks: Vec<Callback>,
    /// Idle time of the processors in each phase, if the trace has scheduling events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleTime>,
    /// The threads that froze last, the last one first, if the trace has scheduling events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freezing: Vec<Freezing>,
    /// True if begin and end of the suspend were both recorded.
    #[serde(default)]
    pub complete: bool,
}

/// A step of the kernel as a whole: `sync_filesystems`, `freeze_processes`, `dpm_suspend`, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// The kernel's own name for it.
    pub name: String,
    /// The number that the kernel gives with it: a CPU for `CPU_OFF`, a state for others.
    #[serde(default)]
    pub value: u64,
    /// Begin, ns.
    pub begin_ns: u64,
    /// End, ns.
    pub end_ns: u64,
}

impl PhaseSpan {
    /// How long it took.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// One callback of a driver, bus, type or class for one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The number of the device.
    pub device: usize,
    /// The pass.
    pub phase: DevicePhase,
    /// Begin, ns.
    pub begin_ns: u64,
    /// End, ns.
    pub end_ns: u64,
    /// The level of the callback: `bus`, `driver`, `type`, `class`, `power domain`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// The thread that ran it.
    pub thread: u32,
    /// Time on a processor, if the trace has scheduling events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// Time in which it was runnable while another thread had the processor.
    #[serde(default)]
    pub delayed_ns: u64,
    /// What it returned; 0 is success.
    #[serde(default)]
    pub error: i64,
}

impl Callback {
    /// How long it took.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// Idle time of all processors together during one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleTime {
    /// As in [`PhaseSpan`].
    pub phase: String,
    /// Idle time of all processors, ns.
    pub idle_ns: u64,
}

/// A thread while processes were frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freezing {
    /// The thread.
    pub thread: u32,
    /// The name.
    pub name: String,
    /// When it last ran after freezing began.
    pub last_ns: u64,
}

impl Cycle {
    /// The last span of this name (a phase that is repeated after an abort: the last try).
    pub fn phase(&self, name: &str) -> Option<&PhaseSpan> {
        self.phases.iter().rev().find(|span| span.name == name)
    }

    /// The span of the kernel's step that runs this device phase.
    pub fn device_phase(&self, phase: DevicePhase) -> Option<&PhaseSpan> {
        self.phase(phase.span_name())
    }

    /// The callbacks of one phase, in the order of their begin.
    pub fn callbacks_of(&self, phase: DevicePhase) -> impl Iterator<Item = &Callback> {
        self.callbacks
            .iter()
            .filter(move |callback| callback.phase == phase)
    }
}
