//! Notices of the daemon for its log and its events.

use std::path::PathBuf;

use crate::enforce::ext::ExitRecord;
use crate::estimate::Fault;

/// An event worth logging.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A node's counter is at fault.
    Fault(u32, Fault),
    /// It is valid again.
    Recovered(u32),
    /// A node uses another counter.
    Counter(String),
    /// Whether samples attribute a node's traffic; otherwise CPU time and resident memory do.
    Samples(u32, bool),
    /// A problem with samples.
    Sampled(String),
    /// The configured samples are not available.
    NoSamples(String),
    /// Accesses take longer than expected: the device carries less than when its curve was measured
    /// or the threshold was chosen. A lower threshold is in force.
    Derated {
        /// The device.
        device: String,
        /// Of an access, in nanoseconds.
        latency_ns: f64,
        /// According to the curve at this total; without a curve, the latency that is kept.
        expected_ns: f64,
        /// In bytes a second.
        total: f64,
        /// The threshold that is in force now, in bytes a second.
        threshold: f64,
    },
    /// The configured threshold of this device is in force again.
    Fits(String),
    /// All limits of this device were lifted, because its counter was at fault for too long.
    Lifted(String),
    /// A setting of a pod that cannot be used; the message names it.
    Annotation(String),
    /// A knob of memory tiering could not be set.
    Tiering(String),
    /// Another program changed a limit; its value is restored at the end.
    Foreign(PathBuf),
    /// A cgroup is gone.
    Gone(PathBuf),
    /// The kernel ended the scheduler; its limits are gone, and quotas take over.
    Ejected(ExitRecord),
    /// A limit could not be set; the cgroup is left alone until its next scan.
    Failed(PathBuf, String),
}
