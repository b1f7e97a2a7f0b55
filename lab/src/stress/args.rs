//! The verb's options, and what it prints.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::inject::{INJECTIONS, Injection};
use super::journal::RunIdentity;
use super::line::StressLine;
use super::run::{Listener, Progress, StressOptions, run};
use crate::build::{self, BuildOptions, Flavour};
use crate::emulator::qemu::{Firmware, Parts};
use crate::error::LabError;
use crate::machine::{SizeArgs, machine_folder};
use crate::terminal::Terminal;
use crate::terminal::print_json;
use dormouse_system::arguments::Size;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dormouse lab stress --cycles 300\n  \
    dormouse lab stress --cycles 300 --power-cuts --seed 7 --machine cuts\n  \
    dormouse lab stress --cycles 100 --power-cuts --firmware seabios --machine stock-cuts
  \
    dormouse lab stress --only 17 --seed 7 --power-cuts --cut-at 3.412   one cycle again\n\n\
    The same command continues an interrupted run. docs/explanation/stress.md explains the summary.\n\n\
    Exit codes: 0 all cycles as expected; 1 one was not; 2 wrong usage; 3 this machine lacks\n\
    something; 4 data of a program differ.")]
pub struct StressArgs {
    /// Number of cycles
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cycles: u64,
    /// Cut the power at a random instant of each cycle
    #[arg(long)]
    pub power_cuts: bool,
    /// Seed of the random loads, sizes, options and instants, with the number of the cycle
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Machines side by side (each takes one processor, and as much memory as it has)
    #[arg(long, value_name = "M", default_value_t = 1)]
    pub jobs: usize,
    /// Start from the first cycle, and ignore the journal
    #[arg(long)]
    pub restart: bool,
    /// Only this cycle, without a journal
    #[arg(long, value_name = "CYCLE")]
    pub only: Option<u64>,
    /// With --only: cut the power this many seconds after the request to sleep
    #[arg(long, value_name = "SECONDS", requires = "only")]
    pub cut_at: Option<f64>,
    /// End the run after this many failed cycles
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub max_failures: u64,
    /// Inject these faults into the machine, one in each cycle after waking, to test that they are
    /// found; `list` prints them
    #[arg(long, value_name = "FAULT,…")]
    pub inject: Option<String>,
    /// The run's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "stress")]
    pub machine: PathBuf,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Which of the distribution's kernels: cloud or generic
    #[arg(long, default_value_t)]
    pub flavour: Flavour,
    /// Firmware that starts the machine; with ovmf and seabios it sleeps by the kernel's snapshot
    #[arg(long, value_enum, default_value_t)]
    pub firmware: Firmware,
}

/// The loads of a cycle do not fit in less.
const MIN_DRAM: Size = Size::mib(768);

impl StressArgs {
    fn options(&self) -> Result<StressOptions, LabError> {
        let usage = |text: String| Err(LabError::Usage(text));
        if self.sizes.dram < MIN_DRAM {
            return usage(format!("--dram: min {MIN_DRAM} for the loads of a cycle"));
        }
        if self
            .cut_at
            .is_some_and(|at_s| !(0.0..3600.0).contains(&at_s))
        {
            return usage("--cut-at: 0 to 3600 seconds".into());
        }
        Ok(StressOptions {
            folder: machine_folder(&self.machine),
            identity: RunIdentity {
                seed: self.seed,
                power_cuts: self.power_cuts,
                dram_bytes: self.sizes.dram.0,
                cxl_bytes: self.sizes.cxl.0,
                cpus: self.sizes.cpus,
                flavour: self.flavour.to_string(),
                firmware: self.firmware.name().to_owned(),
                inject: self.inject.clone(),
            },
            firmware: self.firmware,
            cycles: self.cycles,
            jobs: self.jobs.max(1),
            restart: self.restart,
            only: self.only,
            cut_at_s: self.cut_at,
            max_failures: self.max_failures.max(1),
            inject: self
                .inject
                .as_deref()
                .map_or(Ok(Vec::new()), Injection::list)?,
        })
    }
}

struct Printer<'a> {
    terminal: &'a Terminal,
    json: bool,
}

impl Listener for Printer<'_> {
    fn said(&mut self, text: &str) {
        self.terminal.line(text);
    }

    fn cycle(&mut self, line: &StressLine, progress: &Progress) {
        self.terminal.aside(|| {
            let text = if self.json {
                serde_json::to_string(line).expect("a cycle is plain data")
            } else {
                line.describe()
            };
            // A reader that left does not end the run.
            let _ = writeln!(std::io::stdout(), "{text}");
        });
        self.terminal.now(&progress.describe());
    }
}

/// Runs the verb.
///
/// # Errors
/// Why it could not be done; [`LabError::exit_code`] is the exit code then.
pub fn verb(args: &StressArgs, json: bool) -> Result<ExitCode, LabError> {
    if args.inject.as_deref() == Some("list") {
        for injection in INJECTIONS {
            println!(
                "{:12} must be found as {}",
                injection.name,
                injection.class.name()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let options = args.options()?;
    let config = args.sizes.config()?;
    let terminal = Terminal::new();
    let build_options = BuildOptions {
        flavour: args.flavour,
        ..BuildOptions::default()
    };
    let parts = Parts::from(&build::build(&build_options, &terminal)?);
    terminal.now("booting");
    let mut printer = Printer {
        terminal: &terminal,
        json,
    };
    let summary = run(&options, &config, parts, &mut printer)?;
    terminal.finish();
    if json {
        print_json(&json!({ "summary": summary }))?;
    } else {
        print!("{}", summary.describe());
    }
    Ok(ExitCode::from(summary.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        args: StressArgs,
    }

    fn options(words: &str) -> Result<StressOptions, LabError> {
        let words = ["stress"].into_iter().chain(words.split_ascii_whitespace());
        Whole::try_parse_from(words).unwrap().args.options()
    }

    #[test]
    fn what_cannot_be_run_is_a_usage_error() {
        for words in ["--dram 512M", "--inject nothing", "--only 3 --cut-at 9999"] {
            assert_eq!(options(words).unwrap_err().exit_code(), 2, "{words}");
        }
    }

    #[test]
    fn a_run_is_known_by_what_decides_its_cycles() {
        let first = options("--cycles 3 --seed 4").unwrap();
        let more = options("--cycles 9 --seed 4 --jobs 2").unwrap();
        assert_eq!(first.identity, more.identity, "more cycles of the same run");
        let cuts = options("--cycles 3 --seed 4 --power-cuts").unwrap();
        assert_ne!(first.identity, cuts.identity);
    }
}
