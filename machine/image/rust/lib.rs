//! The sleep image on CXL memory, for user space: look into it, verify it, make one for a
//! test. The format, its checks and its copy plan are the C files beside this crate, which
//! firmware and the kernel module compile as well; this is a safe layer over them.
//!
//! Every image is untrusted input: whatever a file holds, reading it ends in a value or in
//! an error, never in a panic.
//!
//! # Example
//!
//! The copy plan: pages 0 and 2 of DRAM are saved, page 0 of CXL memory is in use.
//!
//! ```
//! use dormouse_image::plan::{Bitmap, Plan};
//!
//! let (dram, cxl) = ([0b101], [0b001]);
//! let plan = Plan::new(Bitmap::new(&dram, 8), Bitmap::new(&cxl, 8), 0);
//! let copies: Vec<_> = plan.map(|copy| copy.unwrap()).collect();
//! assert_eq!((copies[0].dram_page, copies[0].cxl_page), (0, 1));
//! assert_eq!((copies[1].dram_page, copies[1].cxl_page), (2, 2));
//! ```

pub mod check;
pub mod digest;
pub mod edit;
pub mod head;
mod inspect;
mod names;
pub mod plan;
pub mod snapshot;
mod source;
pub mod sys;
pub mod user_pages;
mod verify;

pub use check::Refusal;
pub use inspect::{
    CopyView, HeaderView, Inspection, MailboxView, PhaseView, SealView, SnapshotView,
};
pub use names::{ImageKind, Outcome, Persistence, Reason, State, UserCheck, phase_name};
pub use source::{OpenError, SleepImage};
pub use verify::{Verified, VerifyError};
