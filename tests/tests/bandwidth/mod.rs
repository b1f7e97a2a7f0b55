//! Bandwidth control: the daemon, the scheduler, attribution.

mod attribution;
mod calibrate;
mod daemon;
mod lab;
mod scheduler;
