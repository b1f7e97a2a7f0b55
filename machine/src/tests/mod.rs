//! Whole sleeps on a made-up machine.

pub mod fake;
mod machine;
