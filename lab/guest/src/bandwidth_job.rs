//! What the lab asks of a machine in which CPU time is limited, and what that one answers; sent as
//! [`crate::device_job`] is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where init finds the job.
pub const JOB: &str = "/bandwidth-job";

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Step {
    /// Make a cgroup; its parents hand the cpu controller down.
    Group { path: String },
    /// Start a program and let it run; in a cgroup, if one is named.
    Start {
        name: String,
        group: Option<String>,
        words: Vec<String>,
    },
    /// Run a program to its end and tell what it said.
    Run { words: Vec<String> },
    /// Send a signal to a program that was started.
    Signal { name: String, signal: i32 },
    /// What a program that was started has said so far.
    Said { name: String },
    /// Write a file.
    Write { path: String, text: String },
    /// Read a file.
    Read { path: String },
    /// Wait until a file begins so; what a program has said is told if it never does.
    Await {
        path: String,
        text: String,
        seconds: u64,
        program: String,
    },
    /// CPU time that cgroups use in a while.
    Measure { ms: u64, groups: Vec<String> },
}

/// What came of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The step's number, from 0; one more than the last when the job is done.
    pub step: usize,
    /// Why the step could not be done. The job ends there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was read or said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// CPUs that each cgroup used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<String, f64>,
}
