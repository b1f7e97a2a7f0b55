//! The verbs of `dormouse process`: arguments, output, exit codes. The `dormouse` command only
//! mounts them.

mod arguments;
mod output;
mod program;
mod stores;

pub use arguments::ProcessCommand;

use dormouse_system::exit::{DIFFERS, DONE, FAILED, LACKING, USAGE};
use dormouse_system::failure::{CommandError, Failure};

use crate::lease::LeaseError;
use crate::persist::PersistError;
use crate::restore::{self, lazy::FillError};
use crate::store::StoreError;
use crate::tracker::TrackerError;

impl CommandError for StoreError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Name { .. } => USAGE,
            Self::Damaged { .. } => DIFFERS,
            _ => FAILED,
        }
    }
}

impl CommandError for TrackerError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Fill(FillError::Damaged(_))
            | Self::Restore(restore::Error::Damaged(_))
            | Self::Damaged { .. }
            | Self::Description { .. } => DIFFERS,
            Self::Restore(
                restore::Error::Right(_)
                | restore::Error::FileLimit { .. }
                | restore::Error::Kernel(_),
            ) => LACKING,
            _ => FAILED,
        }
    }
}

impl CommandError for PersistError {}

impl CommandError for LeaseError {}

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
    Failure::end(result)
}
