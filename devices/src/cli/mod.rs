//! The verbs of `dormouse devices`: arguments, output, exit codes. The `dormouse` command only
//! mounts them.

mod analyze;
mod apply;
mod arguments;
mod record;
mod simulate;

pub use arguments::DevicesCommand;

use dormouse_system::exit::{DONE, FAILED, INTERRUPTED, LACKING};
use dormouse_system::failure::{CommandError, Failure};

use crate::apply::ApplyError;
use crate::model::FileError;
use crate::read::ReadError;
use crate::record::RecordError;

impl CommandError for ReadError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::TraceDat { .. } => LACKING,
            _ => FAILED,
        }
    }
}

impl CommandError for RecordError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lacking(_) => LACKING,
            Self::Interrupted => INTERRUPTED,
            _ => FAILED,
        }
    }
}

impl CommandError for ApplyError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Lacking(_) => LACKING,
            _ => FAILED,
        }
    }
}

impl CommandError for FileError {}

/// Runs a verb; returns its exit code.
pub fn run(command: &DevicesCommand) -> u8 {
    let result = match command {
        DevicesCommand::Record(arguments) => record::run(arguments),
        DevicesCommand::Apply(arguments) => apply::run(arguments),
        DevicesCommand::Analyze(arguments) => analyze::run(arguments),
        DevicesCommand::Simulate(arguments) => simulate::run(arguments),
    };
    Failure::end(result)
}
