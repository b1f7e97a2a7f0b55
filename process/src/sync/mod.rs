//! Keeping the number of dirty pages under a budget while the program runs.
//!
//! | file | does |
//! |---|---|
//! | `copy` | pages into the store, with all processors |
//! | `mirror` | which spaces there are, what of them is owed to the store, one round of paying it |

pub mod copy;
pub mod mirror;

pub use mirror::{Mirror, Object, Round, SyncError};
