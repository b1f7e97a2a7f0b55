//! Copies dirty pages to the store, and keeps their number under a budget.
//!
//! | file | does |
//! |---|---|
//! | `copy` | pages into the store, with all processors |
//! | `mirror` | the tracked spaces, their dirty pages, one round of copying them |
//! | `read` | pages of a process without a copy of what it shares; pages of files |
//! | `objects` | shared memory, compared as a whole |
//! | `rates` | how fast pages go to the store (pure) |
//! | `round` | the result of a round, and why a round fails |
//! | `schedule` | when the next round starts (pure) |
//! | `throttle` | how long a program may be stopped for its budget (pure) |

pub mod copy;
pub mod mirror;
pub mod objects;
pub mod rates;
pub mod read;
pub mod round;
pub mod schedule;
pub mod throttle;

pub use mirror::{Copying, Mirror, Part};
pub use objects::Object;
pub use round::{Round, SyncError};
pub use schedule::Budget;
pub use throttle::Share;
