//! The machine that a verb works with: its options, opened for use and tidied up afterwards.

use std::path::PathBuf;

use clap::Args;

use crate::build::{self, Artefacts, BuildOptions, Flavour};
use crate::emulator::lab::Lab;
use crate::emulator::qemu::{Firmware, Parts};
use crate::error::LabError;
use crate::machine::gpf::Gpf;
use crate::machine::{SizeArgs, machine_folder};
use crate::terminal::Terminal;

/// Which machine, and what it is made of.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "machine")]
    pub machine: PathBuf,
    /// How large it is.
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Global Persistent Flush of the CXL device: whether its last writes survive a power loss
    #[arg(long, value_enum, value_name = "HOW", default_value = "works")]
    pub gpf: Gpf,
    /// Reuse disk and CXL memory of an earlier run, and keep them afterwards
    #[arg(long)]
    pub keep: bool,
    /// Which of the distribution's kernels: cloud or generic
    #[arg(long, default_value_t)]
    pub flavour: Flavour,
    /// Firmware that starts the machine
    #[arg(long, value_enum, default_value_t)]
    pub firmware: Firmware,
}

fn built(flavour: Flavour, cmdline: &str, terminal: &Terminal) -> Result<Artefacts, LabError> {
    let options = BuildOptions {
        flavour,
        cmdline: cmdline.to_owned(),
        ..BuildOptions::default()
    };
    Ok(build::build(&options, terminal)?)
}

/// What a machine with this kernel boots from.
pub(super) fn parts(
    flavour: Flavour,
    cmdline: &str,
    terminal: &Terminal,
) -> Result<Parts, LabError> {
    Ok(Parts::from(&built(flavour, cmdline, terminal)?))
}

/// A machine that is ready to be switched on, with these further words on its kernel's command
/// line.
pub(super) fn opened(
    args: &MachineArgs,
    cmdline: &str,
    terminal: &Terminal,
) -> Result<Lab, LabError> {
    let parts = parts(args.flavour, cmdline, terminal)?;
    opened_with(args, parts)
}

/// The same, booting from these parts.
pub(super) fn opened_with(args: &MachineArgs, parts: Parts) -> Result<Lab, LabError> {
    let mut config = args.sizes.config()?;
    config.gpf = args.gpf;
    Lab::open(
        &machine_folder(&args.machine),
        config,
        args.keep,
        parts,
        args.firmware,
    )
}

/// Tidies up a machine that is switched off.
pub(super) fn end(lab: &Lab, keep: bool) {
    let _ = std::fs::remove_file(lab.machine.attach_socket());
    if !keep {
        lab.machine.discard();
    }
}
