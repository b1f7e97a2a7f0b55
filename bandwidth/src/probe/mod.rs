//! How long an access of a node takes, measured.
//!
//! ```text
//!  chase   dependent reads of memory on the node: the latency, one access after the other
//!  load    readers and writers that use the node as hard as they are told to
//!  sweep   chase beside more and more load: the device's latency curve
//! ```
//!
//! Source of the method: Esmaili-Dokht and others, *A Mess of Memory System Benchmarking, Simulation
//! and Application Profiling* (MICRO 2024): pointer chasing beside a load that is stepped up.

pub mod chase;
mod load;
pub mod memory;
pub mod sweep;

pub use chase::Chase;
pub use memory::{MemoryError, NodeMemory};
