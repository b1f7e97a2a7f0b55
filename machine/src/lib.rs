//! Suspend-to-CXL, the policy: what happens between "go to sleep" and the last kernel step, and
//! between the first instruction after waking and the moment when everything is as before.
//!
//! ```text
//!  sleep()                                                    migrate_back()
//!  ┌─────────┐ ┌──────┐ ┌──────┐ ┌───────┐ ┌───────┐ ┌─────┐  ┌────┐ ┌──────────┐ ┌───────┐
//!  │preflight│→│ node │→│freeze│→│ drop  │→│migrate│→│enter│→ │thaw│→│ migrate  │→│ node  │
//!  │ refuse? │ │online│ │      │ │caches │ │to CXL │ │ S3  │  │    │ │   back   │ │offline│
//!  └─────────┘ └──────┘ └──────┘ └───────┘ └───────┘ └─────┘  └────┘ └──────────┘ └───────┘
//!      any refusal, failure or signal up to `enter` undoes what was done, in reverse order
//! ```
//!
//! | folder | what |
//! |---|---|
//! | `sleep` | the way down: checks, freezing, dropping caches, entering S3 |
//! | `snapshot` | the same without our firmware: the kernel's own snapshot, both ways |
//! | `migrate` | moving pages of many processes between nodes, with a rate limit |
//! | `migrate_back` | the way up: the order of pages, the prefetch pass for hot ones |
//! | `hotness` | which pages are hot: DAMON, sampling, what is saved across a sleep |
//! | `memory` | which memory lies on which node, and its owners |
//! | `processes` | the processes, their order, the freezer |
//! | `node` | the CXL device as a NUMA node: finding it, online, offline |
//! | `persistence` | whether the device keeps its contents without power |
//! | `system` | files, system calls, clocks, tracepoints, the module, locks, undoing |
//!
//! What decides is pure and takes plain data (`processes::order`, `hotness`,
//! `migrate_back::hot_first`, `migrate::rate`, `sleep::preflight::decide`,
//! `processes::freezer::choose`, the parsers); what touches the machine goes through
//! `dormouse_system::Root` (files), `system::pages::Pages` (system calls) and
//! `hotness::sampler::Sampler` (DAMON), which tests replace.
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

mod bytes;
pub mod cli;
mod cut_point;
mod error;
pub mod hotness;
mod memory;
mod migrate;
mod migrate_back;
pub mod node;
mod options;
mod owner;
pub mod parallel;
pub mod persistence;
pub mod processes;
mod report;
mod sleep;
pub mod snapshot;
pub mod system;
mod target;

#[cfg(test)]
mod tests;

pub use error::SleepError;
pub use options::{
    Cancel, MigrateBackMode, MigrateBackOptions, NodeChoice, SleepOptions, VerifyUserPages,
    WayChoice,
};
pub use owner::{MemoryKind, Owner};
pub use report::{MigrateBackReport, Plan, SleepReport, UnfrozenProcess};

use dormouse_report::Event;
use dormouse_system::Root;

use hotness::damon;
use system::pages;

/// Puts this machine to sleep in CXL memory; returns after it woke (or, with `dry_run`, at once).
///
/// # Errors
/// Every refusal and failure; what had been done until then is undone.
pub fn sleep(
    options: &SleepOptions,
    events: &mut dyn FnMut(&Event),
) -> Result<SleepReport, SleepError> {
    on_this_machine(|machine| sleep::run(machine, options, events))
}

/// Migrates all user pages from the CXL node back to DRAM and takes the node offline.
///
/// # Errors
/// The node cannot be found, or the machine lacks what is needed. Pages that cannot move are no
/// error: the report counts them.
pub fn migrate_back(
    options: &MigrateBackOptions,
    events: &mut dyn FnMut(&Event),
) -> Result<MigrateBackReport, SleepError> {
    on_this_machine(|machine| migrate_back::run(machine, options, events))
}

fn on_this_machine<T>(
    run: impl FnOnce(&target::Machine) -> Result<T, SleepError>,
) -> Result<T, SleepError> {
    // Files of root only are read from the first step on.
    if !rustix::process::geteuid().is_root() {
        return Err(SleepError::NotRoot);
    }
    let root = Root::host();
    run(&target::Machine {
        root: &root,
        pages: &pages::Kernel,
        sampler: &damon::Damon { root: &root },
    })
}
