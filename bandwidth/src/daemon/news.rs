//! What a daemon has to tell.

use std::path::PathBuf;

use crate::enforce::ext::Ended;
use crate::estimate::Fault;

/// What is worth telling.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A node's counter cannot be believed.
    Fault(u32, Fault),
    /// It can again.
    Recovered(u32),
    /// Another counter is used for a node.
    Counter(String),
    /// Whether samples say whose a node's traffic is; CPU time and resident memory do otherwise.
    Samples(u32, bool),
    /// Something went wrong with samples.
    Sampled(String),
    /// Samples were asked for and cannot be had.
    NoSamples(String),
    /// All limits were lifted, because a counter was at fault for too long.
    Lifted,
    /// Somebody else changed a limit; his counts as what it was.
    Foreign(PathBuf),
    /// A cgroup is gone.
    Gone(PathBuf),
    /// The kernel ended our scheduler: nobody is limited by it any more, and quotas take over.
    Ejected(Ended),
    /// A limit could not be set; its cgroup is left alone until it is looked at again.
    Failed(PathBuf, String),
}
