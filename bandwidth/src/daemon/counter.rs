//! The interface of everything that counts a device's traffic, node by node.

use crate::estimate::GroupSample;

/// The arguments of a reading.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Monotonic time.
    pub now_ns: u64,
    /// NUMA nodes in the order of the counts.
    pub nodes: &'a [u32],
    /// For each node: CPU seconds since the last reading of tasks that use it, weighted with the
    /// share of their memory on it.
    pub moved: &'a [f64],
}

/// A source of counts.
pub trait Counter: Send {
    /// The present counts of each node; `None` for a node that cannot be read.
    fn read(&mut self, reading: Reading) -> Vec<GroupSample>;

    /// Why a node's counter could not be read, if more is known.
    fn why(&self) -> Option<String> {
        None
    }

    /// Changes since the last call, for the log.
    fn notices(&mut self) -> Vec<String> {
        Vec::new()
    }
}
