//! Suspend and resume of devices: recording, schedules, the kernel's graph order.

mod commands;
mod kernel;
mod real;
