//! Suspend-to-CXL, the policy: what happens between "go to sleep" and the last kernel step, and
//! between the first instruction after waking and the moment when everything is as before.
//!
//! ```text
//!  sleep()                                                    home()
//!  ┌─────────┐ ┌──────┐ ┌──────┐ ┌───────┐ ┌───────┐ ┌─────┐  ┌────┐ ┌──────────┐ ┌───────┐
//!  │preflight│→│ node │→│freeze│→│ drop  │→│migrate│→│enter│→ │thaw│→│pages home│→│ node  │
//!  │ refuse? │ │online│ │      │ │caches │ │to CXL │ │ S3  │  │    │ │ in order │ │offline│
//!  └─────────┘ └──────┘ └──────┘ └───────┘ └───────┘ └─────┘  └────┘ └──────────┘ └───────┘
//!      any refusal, failure or signal up to `enter` undoes what was done, in reverse order
//! ```
//!
//! What decides is pure and takes plain data ([`order`], [`heat`], [`hot_first`], [`rate`],
//! [`preflight::decide`], [`freezer::choose`], the parsers); what touches the machine goes through
//! [`tree::Tree`] (files), [`pages::Pages`] (system calls) and [`sampler::Sampler`] (DAMON), which
//! tests replace.
//!
//! # Example
//!
//! Which pages would migrate, without a change to the machine ([`sleep()`] with `dry_run`):
//!
//! ```
//! use dormouse_machine::{NodeChoice, SleepOptions};
//!
//! let options = SleepOptions {
//!     node: NodeChoice::Node(1),
//!     dry_run: true,
//!     ..SleepOptions::default()
//! };
//! assert!(!options.accept_volatile, "the default refuses a device that loses its contents");
//! ```

pub mod bytes;
pub mod caches;
pub mod cli;
pub mod clock;
pub mod cut_point;
pub mod damon;
pub mod error;
pub mod forerun;
pub mod freezer;
pub mod heat;
pub mod home;
pub mod hot_first;
pub mod kernel_steps;
pub mod lock;
pub mod mappings;
pub mod migrate;
pub mod module;
pub mod node;
pub mod numa_maps;
pub mod offline;
pub mod options;
pub mod order;
pub mod owners;
pub mod pages;
pub mod persistence;
pub mod power;
pub mod preflight;
pub mod processes;
pub mod rate;
pub mod record;
pub mod sampler;
pub mod sleep;
pub mod state;
pub mod target;
pub mod tracepoint;
pub mod tree;
pub mod undo;
pub mod unmapped;
pub mod watch;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod machine_tests;

pub use error::SleepError;
pub use options::{Cancel, HomeMode, HomeOptions, NodeChoice, SleepOptions, VerifyUserPages};
pub use owners::{MemoryKind, Owner};
pub use record::{HomeReport, Plan, SleepReport, UnfrozenProcess};

use dormouse_report::Event;

/// Puts this machine to sleep in CXL memory; returns after it woke (or, with `dry_run`, at once).
///
/// # Errors
/// Every refusal and failure; what had been done until then is undone.
pub fn sleep(
    options: &SleepOptions,
    events: &mut dyn FnMut(&Event),
) -> Result<SleepReport, SleepError> {
    require_root()?;
    let tree = tree::Tree::real();
    sleep::run(
        &target::Machine {
            tree: &tree,
            pages: &pages::Kernel,
            sampler: &damon::Damon { tree: &tree },
        },
        options,
        events,
    )
}

/// Brings all user pages from the CXL node back to DRAM and takes the node offline.
///
/// # Errors
/// The node cannot be found, or the machine lacks what is needed. Pages that cannot move are no
/// error: the report counts them.
pub fn home(
    options: &HomeOptions,
    events: &mut dyn FnMut(&Event),
) -> Result<HomeReport, SleepError> {
    require_root()?;
    let tree = tree::Tree::real();
    home::run(
        &target::Machine {
            tree: &tree,
            pages: &pages::Kernel,
            sampler: &damon::Damon { tree: &tree },
        },
        options,
        events,
    )
}

/// Files of root only are read from the first step on.
fn require_root() -> Result<(), SleepError> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(SleepError::NotRoot)
    }
}
