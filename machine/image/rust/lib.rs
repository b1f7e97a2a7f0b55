//! The sleep image on CXL memory, for user space: look into it, verify it, make one for a
//! test. The format, its checks and its copy plan are the C files beside this crate, which
//! firmware and the kernel module compile as well; this is a safe layer over them.
//!
//! Every image is untrusted input: whatever a file holds, reading it ends in a value or in
//! an error, never in a panic.

pub mod check;
pub mod digest;
pub mod edit;
mod inspect;
mod names;
pub mod plan;
mod source;
pub mod sys;
pub mod user_pages;
mod verify;

pub use check::Refusal;
pub use inspect::{CopyView, HeaderView, Inspection, MailboxView, PhaseView};
pub use names::{Outcome, Persistence, Reason, State, UserCheck, phase_name};
pub use source::{OpenError, SleepImage};
pub use verify::{Verified, VerifyError};
