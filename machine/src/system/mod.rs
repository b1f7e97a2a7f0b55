//! What this crate reads and changes of a Linux system: files, pages of processes, clocks, tracepoints,
//! the kernel module, and what a sleep leaves behind in /run/dormouse.

pub mod clock;
pub mod lock;
pub mod module;
pub mod pages;
pub mod state;
pub mod tracepoint;
pub mod tree;
pub mod undo;
