//! The command line: every verb, option and example in one place.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use dormouse_bandwidth::cli::BandwidthCommand;
use dormouse_devices::cli::DevicesCommand;
use dormouse_lab::cli::LabCommand;
use dormouse_machine::cli::{MigrateBackArgs, SleepArgs};
use dormouse_machine::snapshot::boot_entry::setup::BootEntryArgs;
use dormouse_machine::snapshot::setup::SetupArgs;
use dormouse_offload::cli::OffloadCommand;
use dormouse_process::cli::ProcessCommand;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; the reason is on stderr
  2  wrong usage
  3  this machine lacks something; `dormouse doctor` names it
  4  verification failed: data differ";

/// Sleep in persistent CXL memory: lose all power, wake in the same state
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version = env!("DORMOUSE_VERSION"),
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES,
    after_long_help = EXIT_CODES
)]
pub struct Arguments {
    /// Log more on stderr (-v: info, -vv: debug, -vvv: trace; RUST_LOG overrides it)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 100)]
    pub verbose: u8,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Doctor(DoctorArguments),
    Lab(Box<LabArguments>),
    Sleep(Box<SleepArgs>),
    #[command(alias = "home")]
    MigrateBack(Box<MigrateBackArgs>),
    SetupDevice(SetupArgs),
    SetupBootEntry(BootEntryArgs),
    /// Wake this machine from an image on stock firmware: for an initramfs, before it mounts a disk
    #[command(after_help = "\
The packages install it into the initramfs, as the small program dormouse-wake; nobody else needs to
run it. It refuses where a disk is mounted. Where there is no image, or any doubt, it returns and
the boot goes on, with the reason in the kernel's log and in `dormouse image inspect`.

An initramfs runs it twice. The run before udev puts off what it cannot judge yet (no device is a
head, the TPM is not there, a passphrase needs a keyboard) and leaves no trace then; the other one
decides what is left. When one has decided, the other does nothing.

Example, in scripts of the initramfs:
  dormouse wake --before-udev
  dormouse wake

Exit codes: 0 the boot goes on; 1 this is no initramfs; 2 wrong usage.")]
    Wake {
        /// Only the modules of persistent memory are loaded: put off what needs more
        #[arg(long)]
        before_udev: bool,
    },
    #[command(subcommand)]
    Image(ImageCommand),
    #[command(subcommand)]
    Process(ProcessCommand),
    #[command(subcommand)]
    Devices(DevicesCommand),
    #[command(subcommand)]
    Offload(OffloadCommand),
    #[command(subcommand)]
    Bandwidth(BandwidthCommand),
    Report(ReportArguments),
    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  dormouse completions bash > ~/.local/share/bash-completion/completions/dormouse")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a directory
    #[command(after_help = "\
Examples:
  dormouse man ~/.local/share/man/man1
  dormouse man --markdown > command-line.md")]
    Man {
        /// The directory; created if missing
        #[arg(value_name = "DIR", required_unless_present = "markdown")]
        directory: Option<PathBuf>,

        /// Print all commands as one Markdown page instead
        #[arg(long, conflicts_with = "directory")]
        markdown: bool,
    },
}

/// The part to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The emulated machine
    Lab,
    /// Going to sleep on this machine itself
    Sleep,
    /// Keeping programs of this machine across a power loss
    Process,
    /// What the running kernel lacks for each capability
    Kernel,
    /// Graph order of devices in the running kernel
    Devices,
}

/// Check what this machine lacks, part by part, and print how to get it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dormouse doctor               all parts
  dormouse doctor lab           only: can the emulated machine be built and run here?
  dormouse doctor sleep --json  only: can this machine itself sleep in CXL memory?
  dormouse doctor process       only: can programs be persisted and restored here?
  dormouse doctor devices       only: can its devices suspend and resume in graph order?

Exit codes: 0 ready; 3 something required for the named part is missing (without a name: no part
is ready).")]
pub struct DoctorArguments {
    /// The part to check [default: all parts]
    pub part: Option<Part>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Build, boot and test the emulated machine
#[derive(Debug, Args)]
pub struct LabArguments {
    /// Print JSON: one object, or one object per line and cycle
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: LabCommand,
}

/// Inspect or verify a sleep image on a CXL device or in a file
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Print the fields of the image without judging them
    #[command(after_help = "\
Examples:
  dormouse image inspect out/demo/cxl.mem
  dormouse image inspect /dev/dax0.0 --json
  dormouse image inspect /sys/power/dormouse/header")]
    Inspect(ImageArguments),
    /// Check the image as the next power-on does, with every saved page
    #[command(after_help = "\
Example:
  dormouse image verify out/demo/cxl.mem

Exit codes: 0 the next power-on restores it, unless the machine has changed; 1 it cannot be read;
4 the next power-on would refuse it; the reason is printed.")]
    Verify(ImageArguments),
}

#[derive(Debug, Args)]
pub struct ImageArguments {
    /// A file, a block device or a DAX device that holds the CXL window
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Print the timeline of a run, or compare runs; write them as HTML pages
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dormouse report out/demo
  dormouse report out/before out/after -o comparison.html
  dormouse report out/demo --power-profile xeon-cxl-fpga --watts off=12

Reads events.jsonl and cycles.jsonl in each DIR (or in its directories cycle-001, cycle-002, …).

One DIR: its timeline. Writes DIR/report.html, one self-contained page,
DIR/timeline.svg, its drawing alone, and DIR/trace.json for Perfetto and chrome://tracing.

Two or more: a table of medians, phase by phase, each with its ratio to the first. Writes
comparison.html into the first DIR, or to the path that -o gives. Cycles of a run that differ in
mode or in filled memory are separate cases.

With a power profile: joules by phase, and the shortest pause for which sleeping saves energy.
docs/reference/power-profiles.md describes the file. Built in: xeon-cxl-fpga.")]
pub struct ReportArguments {
    /// Directories of runs, as `dormouse lab cycle` wrote them
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Print one JSON object instead of the timeline or the table
    #[arg(long)]
    pub json: bool,

    /// Add joules, from the watts in this file or built-in profile
    #[arg(long, value_name = "FILE|NAME")]
    pub power_profile: Option<PathBuf>,

    /// Override the watts of one phase of the profile: off=12, suspend.migrate=150
    #[arg(long, value_name = "PHASE=W", value_parser = phase_watts, requires = "power_profile")]
    pub watts: Vec<(String, f64)>,

    /// Write the page to this file instead (the trace of a single run goes beside it)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn phase_watts(text: &str) -> Result<(String, f64), String> {
    let (of, watts) = text
        .split_once('=')
        .ok_or("expected PHASE=WATTS, for instance off=12")?;
    let watts: f64 = watts
        .parse()
        .map_err(|_| format!("{watts:?} is not a number of watts"))?;
    // The profile knows the names of phases and the limits of a power.
    dormouse_report::energy::check_power(of, watts)?;
    Ok((of.to_owned(), watts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_verb_shows_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let verbs: Vec<_> = command
                .get_subcommands()
                .filter(|c| c.get_name() != "help")
                .collect();
            if verbs.is_empty() {
                let help = command.clone().render_long_help().to_string();
                assert!(help.contains("Example"), "{path} has no example:\n{help}");
            }
            for verb in verbs {
                check(verb, &format!("{path} {}", verb.get_name()));
            }
        }
        check(&Arguments::command(), "dormouse");
    }

    #[test]
    fn the_exit_codes_are_in_the_help() {
        let help = Arguments::command().render_help().to_string();
        for code in [
            "0  done",
            "1  failed",
            "2  wrong",
            "3  this machine",
            "4  verification",
        ] {
            assert!(help.contains(code), "{code}");
        }
    }
}
