//! Requests of the lab to the machine for bandwidth control, and its answers; sent like those of
//! [`crate::protocol::device_job`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where init finds the job.
pub const JOB: &str = "/bandwidth-job";

/// The counted device's memory, as the machine is put together.
pub const DEVICE: &str = "/sys/bus/pci/devices/0000:00:10.0/resource2";
/// A cache line: what the device counts.
pub const LINE_BYTES: u64 = 64;

/// Where the device (`lab/device/cxl_device.c`) has what it counts.
pub mod counted {
    /// Length of its memory.
    pub const BYTES: u64 = 1 << 20;
    /// Lines read and written, a pair for each node.
    pub const COUNTERS: u64 = 0x18100;
    /// Reads answered, the sum of their latencies in ns, ns that processors waited.
    pub const STATISTICS: u64 = 0x20000;
    /// Number of 64-bit words of statistics.
    pub const STATISTICS_WORDS: usize = 3;
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Step {
    /// Make a cgroup; its parents hand the cpu and the memory controller down.
    Group {
        /// Path of the file or cgroup.
        path: String,
    },
    /// Start a program and let it run; in a cgroup, if one is named.
    Start {
        /// Name of the program in later steps.
        name: String,
        /// The cgroup that it runs in.
        group: Option<String>,
        /// The command line.
        words: Vec<String>,
    },
    /// Run a program to its end and return its output.
    Run {
        /// The command line.
        words: Vec<String>,
    },
    /// Send a signal to a program that was started.
    Signal {
        /// Name of the program in later steps.
        name: String,
        /// Number of the signal.
        signal: i32,
    },
    /// The output so far of a program that was started.
    Said {
        /// Name of the program in later steps.
        name: String,
    },
    /// Write a file.
    Write {
        /// Path of the file or cgroup.
        path: String,
        /// Its contents.
        text: String,
    },
    /// Read a file.
    Read {
        /// Path of the file or cgroup.
        path: String,
    },
    /// Wait until a file begins so; if it never does, the program's output is in the error.
    Await {
        /// Path of the file or cgroup.
        path: String,
        /// Its contents.
        text: String,
        /// Time limit in seconds.
        seconds: u64,
        /// The program that must not end meanwhile.
        program: String,
    },
    /// What happens in a while: CPU time of cgroups, lines that programs touch, what the device
    /// counts on `nodes` nodes, and what the daemon's status file reports for cgroups.
    Measure {
        /// Duration in milliseconds.
        ms: u64,
        /// The cgroups.
        groups: Vec<String>,
        /// The programs.
        #[serde(default)]
        programs: Vec<String>,
        /// Number of the device's nodes.
        #[serde(default)]
        nodes: usize,
        /// Path of the daemon's status file.
        #[serde(default)]
        status: Option<String>,
    },
}

/// Bytes a second, each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// With the reads that writes need.
    pub read_bytes_s: f64,
    /// Bytes written per second.
    pub write_bytes_s: f64,
}

impl Traffic {
    /// Bytes read and written per second.
    pub fn bytes_s(&self) -> f64 {
        self.read_bytes_s + self.write_bytes_s
    }
}

/// What the device counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Traffic of each node.
    pub nodes: Vec<Traffic>,
    /// Of a read, from when it is asked until it is answered.
    pub latency_ns: f64,
    /// Processors that waited for it.
    pub waiting_cpus: f64,
}

impl Device {
    /// Bytes read and written per second.
    pub fn bytes_s(&self) -> f64 {
        self.nodes.iter().map(Traffic::bytes_s).sum()
    }
}

/// The outcome of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The step's number, from 0; one more than the last when the job is done.
    pub step: usize,
    /// Why the step could not be done. The job ends there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was read, or a program's output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// CPUs that each cgroup used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<String, f64>,
    /// What each program moved: the truth.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traffic: BTreeMap<String, Traffic>,
    /// The counters of the device, after a measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// What the daemon charged each cgroup with, in bytes a second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub charged: BTreeMap<String, f64>,
    /// The part of the daemon's passes before which its limit held each cgroup back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, f64>,
    /// The numbers of the daemon's passes at the beginning and at the end.
    #[serde(default)]
    pub passes: [u64; 2],
    /// How far apart the programs' own counts and those of the daemon were read, in nanoseconds, at
    /// most: at the beginning and at the end.
    #[serde(default)]
    pub apart_ns: [u64; 2],
}
