//! Bandwidth control: the daemon, the scheduler, attribution.

mod attribution;
mod daemon;
mod lab;
mod scheduler;
