//! The verbs of `dormouse process`: arguments, output, exit codes. The `dormouse` command only
//! mounts them.

mod arguments;
mod output;
mod program;
mod stores;

use std::io::Write;

pub use arguments::ProcessCommand;

use dormouse_system::exit::{DIFFERS, DONE, FAILED, LACKING, USAGE};

use crate::persist::PersistError;
use crate::restore::{self, lazy::FillError};
use crate::store::StoreError;
use crate::tracker::TrackerError;

/// An error of a verb, as the user sees it.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No epoch could be made.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The tracker.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// The lease.
    #[error(transparent)]
    Lease(#[from] crate::lease::LeaseError),
    /// Another one, in words.
    #[error("{0}")]
    Failed(String),
    /// Wrong usage.
    #[error("{0}")]
    Usage(String),
    /// This machine lacks something.
    #[error("{0}")]
    Lacking(String),
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Store(StoreError::Name { .. }) => USAGE,
            Self::Lacking(_) => LACKING,
            Self::Store(StoreError::Damaged { .. })
            | Self::Tracker(
                TrackerError::Fill(FillError::Damaged(_))
                | TrackerError::Restore(restore::Error::Damaged(_))
                | TrackerError::Damaged { .. }
                | TrackerError::Description { .. },
            ) => DIFFERS,
            Self::Tracker(TrackerError::Restore(
                restore::Error::Right(_)
                | restore::Error::FileLimit { .. }
                | restore::Error::Kernel(_),
            )) => LACKING,
            _ => FAILED,
        }
    }
}

/// Runs a verb; returns its exit code.
pub fn run(command: &ProcessCommand) -> u8 {
    let result = match command {
        ProcessCommand::Run(arguments) => program::run(arguments),
        ProcessCommand::Attach(arguments) => program::attach(arguments),
        ProcessCommand::Restore(arguments) => program::restore(arguments),
        ProcessCommand::Persist(arguments) => program::persist(arguments),
        ProcessCommand::List(arguments) => stores::list(arguments),
        ProcessCommand::Status(arguments) => stores::status(arguments),
        ProcessCommand::Remove(arguments) => stores::remove(arguments),
        ProcessCommand::Verify(arguments) => stores::verify(arguments),
    };
    result.unwrap_or_else(|error| {
        // Standard error may be closed; that must not hide the exit code.
        for line in error.to_string().lines() {
            let _ = writeln!(std::io::stderr(), "dormouse: {line}");
        }
        error.exit_code()
    })
}
