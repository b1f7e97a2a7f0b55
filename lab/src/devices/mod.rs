//! Devices that suspend and resume in an emulated machine of their own: the kernel with
//! graph-ordered suspend and resume, made-up devices, one boot for one job.
//!
//! ```text
//! mod (the verbs) ─→ check, time ─→ graph, order, shape, switches    pure: steps and judgement
//!        └─────────→ machine ─→ the emulator                         thin: boots, listens
//! ```

mod check;
mod form;
mod graph;
mod hotplug;
mod machine;
mod order;
mod real;
mod report;
mod shape;
mod switches;
mod time;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_guest::protocol::device_job::{Answer, Step};

pub use graph::{Device, Graph, Link, LinkKind, PHASES, device_name};
pub use machine::{Clock, Shape};
pub use report::Report;
pub use shape::MachineShape;
pub use switches::Mode;
pub use time::{ModeTimes, Times};

use crate::build::Checked;
use crate::emulator::monitor::Exchanges;
use crate::error::{Doing, LabError};
use crate::machine::machine_folder;
use crate::terminal::Terminal;
use crate::terminal::print_json;
use form::{Form, FormArgs};

/// Suspend and resume made-up devices in an emulated machine with our kernel
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// Check the order on random device graphs, with failures, wakeups and hangs of random devices, and
    /// with devices that go and come in each phase
    #[command(
        after_help = "Examples:\n  dormouse lab devices check --graphs 200 --injections 500\n  \
        dormouse lab devices check --form module      a loadable module in the distribution's kernel\n\n\
        Exit codes: 0 every order kept, and no fault reported by the kernel; 4 otherwise."
    )]
    Check(CheckArgs),
    /// Time the phases in list order, stock async, threshold and graph order
    #[command(after_help = "Example:\n  dormouse lab devices time --shape phone --rounds 10")]
    Time(TimeArgs),
    /// Suspend and resume a machine full of emulated real devices under a distribution's own kernel
    /// and drivers, and use the devices after each transition
    #[command(after_help = "Examples:\n  dormouse lab devices real\n  \
        dormouse lab devices real --kernel newest --whole 100\n  \
        dormouse lab devices real --sleep cxl     power is gone in whole sleeps\n\n\
        Exit codes: 0 all devices worked after each transition, and the kernel reported no fault; 4 \
        otherwise.")]
    Real(real::RealArgs),
    /// Measure taking processors offline and online, beside a suspend-to-idle that keeps them
    /// online
    #[command(after_help = "Example:\n  dormouse lab devices hotplug --cpus 4")]
    Hotplug(HotplugArgs),
}

/// The machine of `lab devices`.
#[derive(Debug, Args)]
pub struct DeviceMachineArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "devices")]
    pub machine: PathBuf,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// A host thread for each processor, instead of one for all
    #[arg(long)]
    pub threads: bool,
    /// Checks that are compiled into the kernel
    #[arg(long, value_enum, default_value_t)]
    pub checked: Checked,
    /// How graph order comes into the kernel.
    #[command(flatten)]
    pub form: FormArgs,
}

/// Arguments of `lab devices check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: DeviceMachineArgs,
    /// Graphs whose order is checked, each in every mode: list order, threshold, stock async, graph
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub graphs: u64,
    /// Number of failures and wakeups, each followed by a transition that must succeed
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub injections: u64,
    /// Number of devices whose callback never returns, in each phase in turn, with a boot for each
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub hangs: u64,
    /// Seed of the random graphs and injections
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `lab devices time`.
#[derive(Debug, Args)]
pub struct TimeArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: DeviceMachineArgs,
    /// The device graph
    #[arg(long, value_enum, default_value = "phone")]
    pub shape: MachineShape,
    /// Seed of the random shape
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The modes to time
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "list,async,threshold,graph"
    )]
    pub modes: Vec<Mode>,
    /// Rounds of each mode; the modes alternate
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u64,
    /// Number of slow devices that are runtime-suspended with all their dependents, and request to
    /// stay suspended
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub unused: usize,
    /// A device that takes longer is slow
    #[arg(long, value_name = "US", default_value_t = 200)]
    pub threshold_us: u32,
    /// Workers beyond one per processor, for devices that sleep; 0: exactly one per processor
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub sleepers: u32,
    /// A device that takes longer is given up; 0: never, which saves two task switches per phase
    #[arg(long, value_name = "MS", default_value_t = 120_000)]
    pub timeout_ms: u32,
    /// Nanoseconds per instruction in the machine, a power of two up to 128; 0: the host's time,
    /// which includes other load of the host
    #[arg(long, value_name = "NS", default_value_t = 1, value_parser = parse_instruction_ns)]
    pub instruction_ns: u32,
    /// Write the trace of one more cycle of each mode to this folder
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
}

/// Arguments of `lab devices hotplug`.
#[derive(Debug, Args)]
pub struct HotplugArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: DeviceMachineArgs,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: u64,
}

fn parse_instruction_ns(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Ok(0),
        Ok(ns @ 1..=128) if u32::is_power_of_two(ns) => Ok(ns),
        _ => Err("0, or a power of two up to 128".into()),
    }
}

impl TimeArgs {
    fn clock(&self) -> Result<Clock, LabError> {
        match self.instruction_ns {
            0 => Ok(Clock::Host),
            _ if self.machine.threads => Err(LabError::Unexpected(
                "--threads needs the host's time: --instruction-ns 0".into(),
            )),
            ns => Ok(Clock::Instructions { ns }),
        }
    }
}

/// Runs a verb.
///
/// # Errors
/// The machine cannot be built or started, or a step failed in it.
pub fn run(command: &DevicesCommand, json: bool) -> Result<ExitCode, LabError> {
    match command {
        DevicesCommand::Check(args) => check_verb(args, json),
        DevicesCommand::Time(args) => time_verb(args, json),
        DevicesCommand::Real(args) => real::verb(args, json),
        DevicesCommand::Hotplug(args) => hotplug_verb(args, json),
    }
}

/// Boots the machine for these steps; the release of its kernel.
fn run_steps(
    args: &DeviceMachineArgs,
    (clock, kunit): (Clock, bool),
    steps: &[Step],
    terminal: &Terminal,
    mut each: impl FnMut(&Answer) -> Result<(), LabError>,
) -> Result<String, LabError> {
    let artefacts = args.form.build(args.checked, terminal)?;
    let shape = Shape {
        cpus: args.cpus,
        threads: args.threads,
        clock,
        kunit,
        memory: "512M",
        more: Vec::new(),
        exchanges: Exchanges::new(),
    };
    terminal.now("booting");
    let folder = machine_folder(&args.machine);
    machine::run(&artefacts, &shape, &folder, steps, |answer| {
        if answer.step % 50 == 0 {
            terminal.now(&format!("step {} of {}", answer.step, steps.len()));
        }
        each(answer)
    })?;
    Ok(artefacts.kernel_release)
}

/// One for each boot.
fn checks(args: &CheckArgs) -> Vec<check::Check> {
    let form = args.machine.form.form;
    let mut checks = Vec::new();
    if args.graphs > 0 || args.injections > 0 {
        checks.push(check::Check::new(
            args.seed,
            form,
            args.graphs,
            args.injections,
        ));
    }
    for number in 0..args.hangs {
        // Other graphs than those of the neighbouring seeds.
        let seed = args.seed + (number + 1) * 1_000_000;
        checks.push(check::Check::hang(
            seed,
            form,
            number as usize % PHASES.len(),
        ));
    }
    if args.machine.checked == Checked::Races {
        checks.iter_mut().for_each(check::Check::watch_races);
    }
    checks
}

fn check_verb(args: &CheckArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut report = Report::default();
    for mut check in checks(args) {
        let steps = std::mem::take(&mut check.steps);
        run_steps(
            &args.machine,
            (Clock::Host, true),
            &steps,
            &terminal,
            |answer| check.receive(answer),
        )?;
        report.add(check.report);
    }
    terminal.finish();
    if json {
        print_json(&report)?;
    } else {
        let by_mode = report.by_mode.iter();
        let by_mode: Vec<String> = by_mode
            .map(|(mode, count)| format!("{mode} {count}"))
            .collect();
        for breach in &report.breaches {
            println!("{breach}");
        }
        let watched = match report.accesses_watched {
            0 => String::new(),
            count => format!(", {count} accesses watched for data races"),
        };
        let from_form = match args.machine.form.form {
            Form::Series => format!("{} KUnit tests passed", report.kunit),
            Form::Module => format!(
                "{} loads refused, {} unloads, then the stock order",
                report.refusals, report.unloads
            ),
        };
        for title in &report.stock_races {
            println!("in the stock kernel's own code: {title}");
        }
        for text in &report.kernel_reports {
            println!("the kernel reports:\n{text}\n");
        }
        println!(
            "{} graphs, {} failures, {} wakeups, {} devices that went or came and {} hangs in {} \
             transitions ({}): {} breaches, {} kernel reports; {from_form}{watched}",
            report.graphs,
            report.failures,
            report.wakeups,
            report.changes,
            report.hangs,
            report.transitions,
            by_mode.join(", "),
            report.breaches.len(),
            report.kernel_reports.len(),
        );
    }
    Ok(ExitCode::from(if report.is_clean() { 0 } else { 4 }))
}

fn time_verb(args: &TimeArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut graph = args.shape.graph(args.seed);
    let left = graph.leave_unused(args.unused);
    if args.unused > 0 && !json {
        println!("{left} devices are unused");
    }
    let plan = time::Plan {
        modes: args.modes.clone(),
        rounds: args.rounds.max(1),
        threshold_us: args.threshold_us,
        sleepers: args.sleepers,
        timeout_ms: args.timeout_ms,
        cpus: args.machine.cpus.into(),
        traces: args.traces.is_some(),
    };
    let mut timing = time::Timing::new(args.machine.form.loading_steps(), &graph, &plan);
    let steps = timing.steps.clone();
    // Tests would be in the way of nothing but a quick boot.
    let clock = (args.clock()?, false);
    let kernel = run_steps(&args.machine, clock, &steps, &terminal, |answer| {
        timing.receive(answer)
    })?;
    terminal.finish();
    if let Some(folder) = &args.traces {
        fs::create_dir_all(folder).doing(format!("create {}", folder.display()))?;
        for (name, text) in &timing.texts {
            let path = folder.join(name);
            fs::write(&path, text).doing(format!("write {}", path.display()))?;
        }
    }
    let times = timing.finish((args.shape.name(), kernel), &graph, &plan);
    if json {
        print_json(&times)?;
    } else {
        print_times(&times);
    }
    Ok(ExitCode::SUCCESS)
}

fn hotplug_verb(args: &HotplugArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut study = hotplug::Hotplug::new(args.machine.cpus, args.rounds);
    let steps = study.steps.clone();
    let clock = (Clock::Instructions { ns: 1 }, false);
    run_steps(&args.machine, clock, &steps, &terminal, |answer| {
        study.receive(answer)
    })?;
    terminal.finish();
    let times = study.finish();
    if json {
        print_json(&times)?;
    } else {
        println!(
            "{} processors: one off {:.3} ms, one on {:.3} ms; devices, both ways: all processors on \
             {:.2} ms, one on {:.2} ms",
            times.cpus, times.off_ms, times.on_ms, times.devices_all_ms, times.devices_one_ms
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn print_times(times: &Times) {
    println!(
        "{}: {} devices, {} processors, Linux {}; ms, medians",
        times.graph, times.devices, times.cpus, times.kernel
    );
    let (down, up) = (times.bound_down_ms, times.bound_up_ms);
    let list = times.of(Mode::List).map(|times| times.sum_median_ms);
    println!(
        "{:12} {:>9} {:>9} {:>9} {:>8} {:>9}  {}",
        "",
        "down",
        "up",
        "sum",
        "to list",
        "to bound",
        PHASES.join(" ")
    );
    for mode in &times.modes {
        let sum = mode.sum_median_ms;
        let phases = PHASES.map(|name| format!("{:.2}", mode.phases_ms[name]));
        println!(
            "{:12} {:9.2} {:9.2} {:9.2} {:>8} {:9.2}  {}",
            mode.mode.name(),
            mode.down_median_ms,
            mode.up_median_ms,
            sum,
            list.map_or("–".into(), |list| format!("{:.2}", sum / list)),
            sum / (down + up),
            phases.join(" ")
        );
    }
    println!("{:12} {down:9.2} {up:9.2} {:9.2}", "lower bound", down + up);
}
