//! The load of a stress run, and the comparison of its results.

pub mod disks;
pub mod files;
pub mod load;
pub mod redis;
