//! The schedules as programs of the engine's threads.

mod graph;
mod items;
mod job;

pub use graph::graph;
pub use items::{items, list};
