//! The command line: every verb, option and example in one place.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use dormouse_bandwidth::cli::BandwidthCommand;
use dormouse_devices::cli::DevicesCommand;
use dormouse_lab::cli::LabCommand;
use dormouse_machine::cli::{HomeArgs, SleepArgs};
use dormouse_offload::cli::OffloadCommand;
use dormouse_process::cli::ProcessCommand;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it failed; the reason is on stderr
  2  wrong usage
  3  this machine lacks something; `dormouse doctor` says what
  4  verification failed: data differ";

/// Sleep in persistent CXL memory: lose all power, wake where you stood.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES,
    after_long_help = EXIT_CODES
)]
pub struct Arguments {
    /// Say more on stderr (-v: info, -vv: debug, -vvv: trace; RUST_LOG overrules it)
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
    Home(Box<HomeArgs>),
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
Example:
  dormouse man ~/.local/share/man/man1")]
    Man {
        /// Where to; created when missing
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// What the machine is to be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The emulated machine
    Lab,
    /// Going to sleep on this machine itself
    Sleep,
}

/// Say whether this machine is ready, part by part, and what to do where it is not
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dormouse doctor               all parts
  dormouse doctor lab           can the emulated machine be built and run here?
  dormouse doctor sleep --json  can this machine itself sleep in CXL memory?

Exit codes: 0 ready; 3 something required for the named part is missing (without a name: no part
is ready).")]
pub struct DoctorArguments {
    /// Only this part
    pub part: Option<Part>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The emulated machine: build it, boot it, let it sleep and wake, look at its console
#[derive(Debug, Args)]
pub struct LabArguments {
    /// Print JSON: one object, or one a line for each cycle
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: LabCommand,
}

/// Look into a sleep image on a CXL device or in a file
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Show what the image says of itself; judges nothing
    #[command(after_help = "\
Examples:
  dormouse image inspect out/demo/cxl.mem
  dormouse image inspect /dev/dax0.0 --json
  dormouse image inspect /sys/power/dormouse/header")]
    Inspect(ImageArguments),
    /// Check the image as the next power-on would, every saved page included
    #[command(after_help = "\
Example:
  dormouse image verify out/demo/cxl.mem

Exit codes: 0 the next power-on restores it, unless the machine has changed; 1 it cannot be read;
4 the next power-on would refuse it, the reason is printed.")]
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

/// Draw the timeline of a run, or compare runs; write the pages for it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dormouse report out/demo
  dormouse report out/before out/after -o comparison.html
  dormouse report out/demo --power-profile xeon-cxl-fpga --watts off=12

Reads events.jsonl and cycles.jsonl in each DIR (or in its directories cycle-001, cycle-002, …).

One DIR: its timeline. Writes DIR/report.html, one page that needs nothing else, and DIR/trace.json,
which Perfetto and chrome://tracing open.

Several: a table of medians, phase by phase, each with its ratio to the first. Writes
comparison.html into the first DIR, or where -o says. Cycles of a run that differ in mode or in
filled memory are cases of their own.

With a power profile: joules by phase, and the pauses that pay. docs/reference/power-profiles.md describes the file.
Built in: xeon-cxl-fpga.")]
pub struct ReportArguments {
    /// Directories of runs, as `dormouse lab cycle` wrote them
    #[arg(value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,

    /// Print one JSON object instead of the timeline or the table
    #[arg(long)]
    pub json: bool,

    /// Add joules, by the watts in this file or built-in profile
    #[arg(long, value_name = "FILE|NAME")]
    pub power_profile: Option<PathBuf>,

    /// Use other watts for one phase of the profile: off=12, suspend.migrate=150
    #[arg(long, value_name = "PHASE=W", value_parser = phase_watts, requires = "power_profile")]
    pub watts: Vec<(String, f64)>,

    /// Where the page goes instead (the trace of one run: beside it)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn phase_watts(text: &str) -> Result<(String, f64), String> {
    let (of, watts) = text
        .split_once('=')
        .ok_or("a phase, `=`, and its watts, for instance off=12")?;
    let watts: f64 = watts
        .parse()
        .map_err(|_| format!("{watts:?} is no number of watts"))?;
    // What a phase may be called and how large a power may be, the profile knows.
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
            "1  it failed",
            "2  wrong",
            "3  this machine",
            "4  verification",
        ] {
            assert!(help.contains(code), "{code}");
        }
    }
}
