//! What only this crate reads and changes of a Linux system: pages of processes, clocks, tracepoints,
//! the kernel module, and what a sleep leaves behind in /run/dormouse. What other rooms need, too,
//! is in `dormouse-system`.

pub(crate) mod clock;
pub(crate) mod lock;
pub mod module;
pub mod pages;
pub(crate) mod state;
pub(crate) mod tracepoint;
