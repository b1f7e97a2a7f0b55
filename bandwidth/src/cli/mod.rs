//! The verbs of `dormouse bandwidth`: arguments, output, exit codes. The `dormouse` command only
//! mounts them.

mod arguments;
mod calibrate;
mod check;
mod doctor;
mod probe;
mod run;
mod scheduler;
mod screen;
mod simulate;
mod tasks;
mod top;
mod trace;

use std::io::Write;

pub use arguments::BandwidthCommand;

use dormouse_system::exit::{DIFFERS, DONE, FAILED, LACKING};

use crate::curve::CurveError;
use crate::daemon::config::ConfigError;
use crate::enforce::EnforceError;
use crate::enforce::ext::ExtError;

/// An error of a verb, as the user sees it.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A curve that cannot be used.
    #[error(transparent)]
    Curve(#[from] CurveError),
    /// A configuration that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory of a node that is not available.
    #[error(transparent)]
    Memory(#[from] crate::probe::MemoryError),
    /// Latency that cannot be measured.
    #[error(transparent)]
    Probe(#[from] crate::daemon::ProbeError),
    /// Cgroups that cannot be limited.
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// Standard output that cannot be written.
    #[error(transparent)]
    Output(#[from] dormouse_report::output::OutputError),
    /// Another error, as a message.
    #[error("{0}")]
    Failed(String),
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Enforce(
                EnforceError::NoHierarchy
                | EnforceError::NoUnits(_)
                | EnforceError::Ext(ExtError::NoKernel),
            ) => LACKING,
            _ => FAILED,
        }
    }
}

/// Runs a verb; returns its exit code.
pub fn run(command: &BandwidthCommand) -> u8 {
    let result = match command {
        BandwidthCommand::Simulate(arguments) => simulate::run(arguments),
        BandwidthCommand::Probe(arguments) => probe::run(arguments),
        BandwidthCommand::Doctor(arguments) => doctor::run(arguments),
        BandwidthCommand::Run(arguments) => run::run(arguments),
        BandwidthCommand::Scheduler(arguments) => scheduler::run(arguments),
        BandwidthCommand::Top(arguments) => top::run(arguments),
        BandwidthCommand::Undo(arguments) => run::undo(arguments),
    };
    result.unwrap_or_else(|error| {
        // Standard error may be closed; that must not change the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {error}");
        error.exit_code()
    })
}
