//! The driver of the virtual executor: builds it, writes a job for it, runs it on an emulated Cortex-M3 and
//! reads its report. The executor itself is C, in `src/`.
//!
//! ```text
//! cli ──► bench, check, suspend ──► machine ──► energy, guest ──► parts
//! cli ──► firmware ──► parts
//! ```
//!
//! # Example
//!
//! ```
//! use dormouse_offload::guest::natives::native_names;
//!
//! // The guest's own scheduler never runs on the small core: a native call replaces it.
//! assert!(native_names().iter().any(|name| name == "schedule"));
//! ```

pub mod bench;
pub mod check;
pub mod cli;
pub mod energy;
pub mod error;
pub mod firmware;
pub mod guest;
pub mod machine;
pub mod parts;
pub mod suspend;

pub use error::OffloadError;
