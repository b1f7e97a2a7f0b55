//! What loads the machine in a stress run, and what is compared of it.

pub mod disks;
pub mod files;
pub mod load;
pub mod redis;
