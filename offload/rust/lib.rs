//! The thin driver of the virtual executor: builds it, lays out a job for it, runs it on an
//! emulated Cortex-M3 and reads what it reports. The executor itself is C, in `src/`.

pub mod bench;
pub mod check;
pub mod cli;
pub mod energy;
pub mod error;
pub mod gdb;
pub mod guest;
pub mod job;
pub mod kernel;
pub mod link;
pub mod machine;
pub mod measure;
pub mod outcome;
pub mod page_table;
pub mod parts;
pub mod run;
pub mod suspend;
pub mod tables;

pub use error::OffloadError;
