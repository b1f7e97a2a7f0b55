//! Keeping the number of dirty pages under a budget while the program runs.
//!
//! | file | does |
//! |---|---|
//! | `copy` | pages into the store, with all processors |
//! | `mirror` | which spaces there are, what of them is owed to the store, one round of paying it |
//! | `objects` | shared memory, compared as a whole |
//! | `schedule` | when the next round comes (pure) |

pub mod copy;
pub mod mirror;
pub mod objects;
pub mod schedule;

pub use mirror::{Mirror, Round, SyncError};
pub use objects::Object;
pub use schedule::Budget;
