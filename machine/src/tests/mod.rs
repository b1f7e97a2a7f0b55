//! Whole sleeps on a made-up machine.

pub mod fake;
mod machine;
mod migrating_back;
mod refusals;
mod sleeping;
