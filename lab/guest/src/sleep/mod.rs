//! Going to sleep from inside: Suspend-to-CXL, hibernation, and where pages lie meanwhile.

pub mod cxl;
pub mod hibernate;
pub mod placement;
