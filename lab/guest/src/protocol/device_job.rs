//! Requests of the lab to the machine for device suspend, and its answers.
//!
//! The job is in the initrd, so the machine needs no disk and no dialogue; answers come on the
//! second serial line, framed as in [`crate::protocol::frame`], one for each step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::real_devices::{Bound, Function, Sleep};

/// Where init finds the job.
pub const JOB: &str = "/devices-job";

/// Where SeaBIOS starts application processors. The page is kept from the kernel (`memmap=`), for the machine to write
/// into.
pub const AP_BOOT_ADDRESS: u64 = 0x10000;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Step {
    /// Replace the made-up devices by those of a text.
    Graph {
        /// The graph, as `graph_test.h` describes it.
        text: String,
    },
    /// Let something go wrong, once: a line for the test module.
    Inject {
        /// The line for the file of the test module.
        line: String,
    },
    /// Write into a file of the kernel.
    Set {
        /// Path of the file.
        path: String,
        /// Its new value.
        value: String,
    },
    /// Give all made-up devices permission to leave the list's order (`power/async`), or none.
    Permit {
        /// Whether all devices are permitted.
        all: bool,
    },
    /// Read a file of the kernel.
    Read {
        /// Path of the file.
        path: String,
    },
    /// Whether there is a file or folder: `yes` or `no`.
    Exists {
        /// Its path.
        path: String,
    },
    /// Load a module of the initrd, and wait until its livepatch, if it has one, is in force. The
    /// answer is `loaded`, or why the kernel refused it, with what the module logged.
    Load {
        /// Name of the module.
        module: String,
        /// As the kernel's command line has them.
        parameters: String,
    },
    /// Disable the module's livepatch, wait until nothing uses the module, and unload it: `unloaded`.
    Unload {
        /// Name of the module.
        module: String,
    },
    /// Suspend and resume.
    Cycle {
        /// Tell in which order the made-up devices' callbacks ran.
        order: bool,
    },
    /// Load all modules of the initrd's drivers. The answer: what could not be loaded.
    LoadDrivers,
    /// Which devices have a driver, and which driver. The answer has them as `bound`.
    Bound,
    /// Go to sleep this way, and wake. The answer has a cycle.
    Sleep {
        /// The way.
        sleep: Sleep,
    },
    /// Use the devices, and again those of no use so far, until all are or the time is over. The
    /// answer has the last error of each that is of no use.
    Use {
        /// What they must do.
        functions: Vec<Function>,
        /// How long a device may take to come back.
        limit_s: u64,
    },
}

/// The outcome of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The step's number, from 0; one more than the last when the job is done.
    pub step: usize,
    /// Why the step could not be done. The job ends there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The suspend and resume, after one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Cycle>,
    /// Devices that have a driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<Bound>,
    /// Functions that a device does not have, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub useless: Vec<(Function, String)>,
    /// Milliseconds that the step took.
    #[serde(default)]
    pub took_ms: u64,
    /// Faults that the kernel reported of itself since the last answer, each with the lines that
    /// followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<String>,
}

/// One suspend and resume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// What the write to `/sys/power/state` failed with; 0 if it did not.
    pub errno: i32,
    /// Microseconds of each phase that ran, as the kernel's log has them; keys as the kernel
    /// series names phases (`suspend_late`).
    pub phases_us: BTreeMap<String, u64>,
    /// The lines of the test module's `order`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub order: String,
    /// `/sys/power/suspend_stats/last_failed_dev`, after a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed_device: String,
    /// Device failures and their phases that the kernel's log names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
}
