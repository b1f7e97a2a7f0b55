//! Whole-process persistence: programs survive power loss.

mod connections;
mod damage;
mod machine;
mod memory;
mod names;
mod obstacles;
mod power;
mod refusals;
mod services;
mod trees;
