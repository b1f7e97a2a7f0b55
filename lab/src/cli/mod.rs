//! The verbs of `dormouse lab`: their options, and what they print.

mod build;
mod cycle;
mod machine;
mod session;

use std::process::ExitCode;

use clap::Subcommand;

use crate::bandwidth::{self, BandwidthArgs};
use crate::devices::{self, DevicesCommand};
use crate::error::LabError;
use crate::interrupt;
use crate::kernels::{self, KernelsArgs};
use crate::stress::args::{self, StressArgs};

pub use build::BuildArgs;
pub use cycle::CycleArgs;
pub use machine::MachineArgs;
pub use session::{BootArgs, ConsoleArgs};

/// The emulated machine: build it, boot it, let it sleep and wake, look at its console
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Build firmware, kernel module and disks (only what changed)
    Build(BuildArgs),
    /// Boot the machine; keep it running, or run one command in it
    Boot(BootArgs),
    /// Fill memory, sleep, lose all power, wake, compare every page; repeatedly
    Cycle(CycleArgs),
    /// Run many random cycles under load, optionally with power cuts; summarise by class of failure
    Stress(StressArgs),
    /// Suspend and resume made-up devices in a machine with the graph-order kernel
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Run bandwidth control in an emulated machine: quotas, or our sched_ext scheduler
    Bandwidth(BandwidthArgs),
    /// Check sleep, process, scheduler and devices on the distribution's stock kernels
    Kernels(KernelsArgs),
    /// Connect this terminal to a machine's serial console (Ctrl-] leaves)
    Console(ConsoleArgs),
}

/// Runs a verb; `json` asks for output for programs.
///
/// # Errors
/// Why it could not be done; [`LabError::exit_code`] is the exit code then.
pub fn run(command: &LabCommand, json: bool) -> Result<ExitCode, LabError> {
    interrupt::watch();
    match command {
        LabCommand::Build(args) => build::verb(args, json),
        LabCommand::Boot(args) => session::boot(args, json),
        LabCommand::Cycle(args) => cycle::verb(args, json),
        LabCommand::Stress(args) => args::verb(args, json),
        LabCommand::Devices(command) => devices::run(command, json),
        LabCommand::Bandwidth(args) => bandwidth::run(args, json),
        LabCommand::Kernels(args) => kernels::run(args, json),
        LabCommand::Console(args) => session::console(args),
    }
}
