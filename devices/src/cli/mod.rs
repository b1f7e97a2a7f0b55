//! The verbs of `dormouse devices`: arguments, output, exit codes. The `dormouse` command only
//! mounts them.

mod analyze;
mod apply;
mod arguments;
mod record;
mod simulate;

use std::io::Write;

pub use arguments::DevicesCommand;

use dormouse_system::exit::{DONE, FAILED, INTERRUPTED, LACKING, USAGE};

use crate::apply::ApplyError;
use crate::model::FileError;
use crate::read::ReadError;
use crate::record::RecordError;

/// An error of a verb, as the user sees it.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file that cannot be read or understood.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A recording that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The page cannot be written.
    #[error(transparent)]
    Report(#[from] dormouse_report::ReportError),
    /// No recording.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Switches that cannot be set.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Standard output that cannot be written.
    #[error(transparent)]
    Output(#[from] dormouse_system::output::OutputError),
    /// Another one, in words.
    #[error("{0}")]
    Failed(String),
    /// Wrong usage.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Read(ReadError::TraceDat { .. })
            | Self::Record(RecordError::Lacking(_))
            | Self::Apply(ApplyError::Lacking(_)) => LACKING,
            Self::Record(RecordError::Interrupted) => INTERRUPTED,
            _ => FAILED,
        }
    }
}

/// Runs a verb; returns its exit code.
pub fn run(command: &DevicesCommand) -> u8 {
    let result = match command {
        DevicesCommand::Record(arguments) => record::run(arguments),
        DevicesCommand::Apply(arguments) => apply::run(arguments),
        DevicesCommand::Analyze(arguments) => analyze::run(arguments),
        DevicesCommand::Simulate(arguments) => simulate::run(arguments),
    };
    result.unwrap_or_else(|error| {
        // Standard error may be closed; that must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {error}");
        error.exit_code()
    })
}
