//! A machine full of emulated real devices, under a distribution's kernel and its drivers: suspends
//! and resumes in each mode, and uses every device afterwards.
//!
//! ```text
//! hardware   the emulator's devices, the disks' patterns, what must work
//! plan       the steps, and what has to come of each                        pure
//! cxl        takes the steps in the machine that sleeps by Suspend-to-CXL
//! report     times, transitions, breaches
//! ```

mod cxl;
mod hardware;
mod plan;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dormouse_guest::protocol::real_devices::Sleep;

use super::form::choose;
use super::graph::PHASES;
use super::machine::{self, Clock, Shape};
use super::switches::{Mode, Scope};
use crate::build::{BuildOptions, Flavour, StockKernel, build_devices_drivers, stock_kernels};
use crate::error::LabError;
use crate::machine::machine_folder;
use crate::terminal::{Terminal, print_json};
use hardware::Hardware;
use plan::Plan;
use report::Report;

/// How the machine sleeps where it sleeps as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Whole {
    /// Suspend to RAM
    #[default]
    Ram,
    /// Suspend-to-CXL, under the lab's own firmware: the power is gone, and memory is compared
    Cxl,
}

impl Whole {
    /// The ways that are timed.
    fn ways(self) -> [Sleep; 4] {
        [Sleep::Devices, Sleep::Platform, Sleep::Idle, self.sleep()]
    }

    fn sleep(self) -> Sleep {
        match self {
            Whole::Ram => Sleep::Ram,
            Whole::Cxl => Sleep::Cxl,
        }
    }
}

/// Arguments of `lab devices real`.
#[derive(Debug, Args)]
pub struct RealArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "devices-real")]
    pub machine: PathBuf,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// The distribution's kernel whose release contains this, or `newest`, its newest generic
    /// kernel; otherwise 6.12's (`dormouse lab kernels --list --all` prints them)
    #[arg(long, value_name = "PATTERN")]
    pub kernel: Option<String>,
    /// How the machine sleeps where it does not sleep to idle
    #[arg(long, value_enum, default_value_t)]
    pub sleep: Whole,
    /// The modes to time: list order, the stock kernel as it is, graph order
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "list,async,graph"
    )]
    pub modes: Vec<Mode>,
    /// Which devices may leave list order in graph mode
    #[arg(long, value_enum, default_value = "async")]
    pub scope: Scope,
    /// Timed rounds of each mode and way to sleep; the modes alternate
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u64,
    /// Number of whole sleeps in graph order, to idle and as --sleep says in turn, after those that
    /// are timed
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub whole: u64,
    /// Number of failures and wakeups of a made-up child of a real device, in each phase in turn,
    /// each followed by a transition that must succeed
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub injections: u64,
    /// Number of real devices that are taken out between two transitions, and come back
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub removals: u64,
    /// Take a device on USB out while the machine sleeps to RAM, put it back in the next sleep, and
    /// exchange it for another one in the third; after the removals. Only with --sleep ram
    #[arg(long)]
    pub exchange: bool,
    /// At the end, a made-up child of a real device does not come back in this phase: it has to be
    /// given up and named, and the next sleep to be refused
    #[arg(long, value_name = "PHASE", value_parser = PossibleValuesParser::new(PHASES))]
    pub hang: Option<String>,
    /// Seed of the injections
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

pub fn verb(args: &RealArgs, json: bool) -> Result<ExitCode, LabError> {
    if args.modes.contains(&Mode::Threshold) {
        return Err(LabError::Usage(
            "the threshold variant changes the permissions that drivers gave their devices: \
             --modes list,async,graph"
                .into(),
        ));
    }
    if args.exchange && args.sleep == Whole::Cxl {
        return Err(LabError::Usage(
            "--exchange changes the hardware of a machine that sleeps to RAM: --sleep ram".into(),
        ));
    }
    let terminal = Terminal::new();
    let options = BuildOptions {
        flavour: Flavour::Generic,
        ..BuildOptions::default()
    };
    let stock = match &args.kernel {
        Some(pattern) => {
            let kernels = stock_kernels(&options, &terminal)?;
            Some(choose(kernels, pattern, Flavour::Generic)?)
        }
        None => None,
    };
    let report = match args.sleep {
        Whole::Ram => in_job_machine(args, &options, stock.as_ref(), &terminal)?,
        Whole::Cxl => cxl::run(args, &options, stock.as_ref(), &terminal)?,
    };
    terminal.finish();
    if json {
        print_json(&report)?;
    } else {
        report.print();
    }
    Ok(ExitCode::from(if report.is_clean() { 0 } else { 4 }))
}

/// In a machine with one job and without a disk of its own, under the emulator's firmware.
fn in_job_machine(
    args: &RealArgs,
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    terminal: &Terminal,
) -> Result<Report, LabError> {
    let artefacts = build_devices_drivers(options, stock, terminal)?;
    let folder = machine_folder(&args.machine);
    let mut hardware = Hardware::prepare(&folder)?;
    hardware.add_tpm(&folder)?;
    let mut plan = Plan::new(args, &hardware.functions);
    let shape = Shape {
        cpus: args.cpus,
        // With a thread each, QEMU 7.2 runs stale code now and then while Linux patches its own.
        threads: false,
        clock: Clock::Host,
        kunit: false,
        memory: "1G",
        more: hardware.arguments.clone(),
        exchanges: plan.exchanges(),
    };
    let steps = std::mem::take(&mut plan.steps);
    terminal.now("booting");
    let slept = machine::run(&artefacts, &shape, &folder, &steps, |answer| {
        if answer.step % 10 == 0 {
            terminal.now(&format!("step {} of {}", answer.step, steps.len()));
        }
        plan.receive(answer)
    })
    .inspect_err(|_| plan.breaches().for_each(|text| eprintln!("{text}")))?;
    Ok(plan.finish(artefacts.kernel_release, slept))
}
