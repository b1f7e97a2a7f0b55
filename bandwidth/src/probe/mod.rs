//! Measures the access latency of a node.
//!
//! ```text
//!  chase   dependent reads of memory on the node: the latency
//!  known   a known number of bytes, to compare a counter with
//!  load    readers and writers that load the node at a given rate
//!  sweep   chase beside increasing load: the device's latency curve
//! ```
//!
//! Method: Mess (Esmaili-Dokht and others, *A Mess of Memory System Benchmarking, Simulation and
//! Application Profiling*, MICRO 2024): pointer chasing beside a load that is stepped up.

pub mod chase;
mod known;
mod load;
pub mod memory;
pub mod sweep;

pub use chase::Chase;
pub use known::{KnownTraffic, Moved};
pub use memory::{MemoryError, NodeMemory};
