//! The verbs of `dormouse lab`: their options, and what they print.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use dormouse_guest::awkward_kinds::AWKWARD_KINDS;

use crate::attach;
use crate::awkward;
use crate::bandwidth::{self, BandwidthArgs};
use crate::build::{self, Artefacts, BuildOptions, Checked, Flavour};
use crate::cxl_device::Gpf;
use crate::cycle::Cycles;
use crate::cycle_options::CycleOptions;
use crate::devices::{self, DevicesCommand};
use crate::error::{Doing, LabError};
use crate::fault::{FAULTS, Fault};
use crate::hibernation::{Compressor, Hibernation, Mode};
use crate::interrupt;
use crate::kernels::{self, KernelsArgs};
use crate::lab::{Lab, POWER_OFF_TIMEOUT};
use crate::line::Summary;
use crate::machine::{DEFAULT_ROOT, MachineConfig};
use crate::power::{Signal, What};
use crate::qemu::{Firmware, Parts};
use crate::size::Size;
use crate::stress::args::{self, StressArgs};
use crate::tamper::{TAMPERS, Tamper};
use crate::terminal::Terminal;

/// A command in the machine may take this long.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
/// A machine that one works in stays on for a day at most.
const SESSION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The emulated machine: build it, boot it, let it sleep and wake, look at its console
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Build firmware, kernel module and disks (only what changed)
    Build(BuildArgs),
    /// Boot the machine; keep it running, or run one command in it
    Boot(BootArgs),
    /// Fill memory, sleep, lose all power, wake, compare every page; again and again
    Cycle(CycleArgs),
    /// Very many cycles under load, at random, with power cuts if asked for; a summary by failure
    Stress(StressArgs),
    /// Suspend and resume made-up devices under our kernel, in a machine of their own
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Bandwidth control in a machine of its own: quotas, or our sched_ext scheduler
    Bandwidth(BandwidthArgs),
    /// What works on which of the distribution's stock kernels: sleep, process, scheduler, devices
    Kernels(KernelsArgs),
    /// Connect this terminal to a machine's serial console (Ctrl-] leaves)
    Console(ConsoleArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab build --flavour generic")]
pub struct BuildArgs {
    /// Which of the distribution's kernels: cloud or generic
    #[arg(long, default_value_t)]
    pub flavour: Flavour,
    /// Compilers at a time
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Never touch the network
    #[arg(long)]
    pub offline: bool,
    /// The kernel with graph-ordered suspend and resume of devices, instead of all else
    #[arg(long)]
    pub devices: bool,
    /// Checks that are compiled into that kernel
    #[arg(long, value_enum, default_value_t)]
    pub checked: Checked,
}

/// Which machine, and what it is made of.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "machine")]
    pub machine: PathBuf,
    /// DRAM; powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub dram: Size,
    /// CXL memory; powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub cxl: Size,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
    /// Global Persistent Flush of the CXL device: what becomes of its last writes when power goes
    #[arg(long, value_enum, value_name = "HOW", default_value = "works")]
    pub gpf: Gpf,
    /// Take disk and CXL memory as an earlier run left them, and leave them behind
    #[arg(long)]
    pub keep: bool,
    /// Which of the distribution's kernels: cloud or generic
    #[arg(long, default_value_t)]
    pub flavour: Flavour,
    /// Firmware that starts the machine
    #[arg(long, value_enum, default_value_t)]
    pub firmware: Firmware,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab boot --command 'uname -a; numactl --hardware'")]
pub struct BootArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Run this line of shell in the machine, then switch it off
    #[arg(long, value_name = "LINE")]
    pub command: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    dormouse lab cycle --cycles 5 --dram 1G --cxl 2G --fill 512M --json\n  \
    dormouse lab cycle --mode hibernate --compressor lz4 --dram 2G --image-size 1G\n\n\
    Hibernation needs free DRAM for a copy of what is in use: give it twice as much as the\n\
    workload and the system take, and with --image-size the size that it is to behave as.\n\n\
    Exit codes: 0 all cycles as they must be; 1 one was not; 2 wrong usage; 3 this machine lacks\n\
    something; 4 the machine woke with other data.")]
pub struct CycleArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub cycles: u64,
    /// Memory that the workload fills and compares
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub fill: Size,
    /// How to sleep
    #[arg(long, value_enum, default_value = "cxl")]
    pub mode: Mode,
    /// What compresses the hibernation image: lzo, lz4 or none [default: lzo]
    #[arg(long, value_name = "NAME")]
    pub compressor: Option<Compressor>,
    /// Hibernation: free memory until the image is no larger [default: all of DRAM; with
    /// hibernate-swap two fifths of it]
    #[arg(long, value_name = "SIZE")]
    pub image_size: Option<Size>,
    /// Keys in the redis server that sleeps too (0: none)
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub redis_keys: u64,
    /// Let processes with awkward memory sleep, too: KIND or KIND=SIZE, or all; `list` prints the
    /// kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub awkward: Vec<String>,
    /// Decides contents, delays and which bits are damaged
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Cut the power at this point; `list` prints the points
    #[arg(long, value_name = "WHERE")]
    pub fault: Option<String>,
    /// Damage the image between sleep and wake; `list` prints the ways (of the --mode)
    #[arg(long, value_name = "WHAT")]
    pub tamper: Option<String>,
    /// DRAM of the machine that is powered on again
    #[arg(long, value_name = "SIZE")]
    pub dram_after: Option<Size>,
    /// Further argument for `dormouse sleep` in the machine; can be given several times
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub sleep_argument: Vec<String>,
    /// Run this line of shell in the machine before it sleeps, when memory is filled
    #[arg(long, value_name = "LINE")]
    pub before: Option<String>,
    /// Run this line of shell when pages are home again; its output goes to after-N.txt in the
    /// machine's folder, with the number of the cycle
    #[arg(long, value_name = "LINE")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab console --machine demo")]
pub struct ConsoleArgs {
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Runs a verb; `json` asks for output for programs.
///
/// # Errors
/// Why it could not be done; [`LabError::exit_code`] is the exit code then.
pub fn run(command: &LabCommand, json: bool) -> Result<ExitCode, LabError> {
    interrupt::watch();
    match command {
        LabCommand::Build(args) => build_verb(args, json),
        LabCommand::Boot(args) => boot_verb(args, json),
        LabCommand::Cycle(args) => cycle_verb(args, json),
        LabCommand::Stress(args) => args::verb(args, json),
        LabCommand::Devices(command) => devices::run(command, json),
        LabCommand::Bandwidth(args) => bandwidth::run(args, json),
        LabCommand::Kernels(args) => kernels::run(args, json),
        LabCommand::Console(args) => console_verb(args),
    }
}

/// A bare name is a folder below the default root; anything else is a path.
pub fn machine_folder(machine: &Path) -> PathBuf {
    if machine.components().count() == 1 && !machine.starts_with(".") {
        Path::new(DEFAULT_ROOT).join(machine)
    } else {
        machine.to_owned()
    }
}

fn built(flavour: Flavour, cmdline: &str, terminal: &Terminal) -> Result<Artefacts, LabError> {
    let options = BuildOptions {
        flavour,
        cmdline: cmdline.to_owned(),
        ..BuildOptions::default()
    };
    Ok(build::build(&options, terminal)?)
}

/// A machine that is ready to be switched on, with these further words on its kernel's command
/// line.
fn opened(args: &MachineArgs, cmdline: &str, terminal: &Terminal) -> Result<Lab, LabError> {
    let mut config = MachineConfig::new(args.dram, args.cxl, args.cpus)?;
    config.gpf = args.gpf;
    let parts = Parts::from(&built(args.flavour, cmdline, terminal)?);
    Lab::open(
        &machine_folder(&args.machine),
        config,
        args.keep,
        parts,
        args.firmware,
    )
}

fn build_verb(args: &BuildArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut options = BuildOptions {
        flavour: args.flavour,
        ..BuildOptions::default()
    };
    options.jobs = args.jobs.unwrap_or(options.jobs).max(1);
    options.offline = args.offline;
    if args.devices {
        return build_devices_verb(&options, args.checked, &terminal, json);
    }
    let artefacts = build::build(&options, &terminal)?;
    terminal.finish();
    if json {
        print_json(&artefacts)?;
    } else {
        for step in &artefacts.steps {
            println!("{step}");
        }
        println!("kernel    {}", artefacts.kernel_release);
        println!("firmware  {}", artefacts.firmware_rom.display());
        println!("module    {}", artefacts.module.display());
        println!("root disk {}", artefacts.rootfs.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn build_devices_verb(
    options: &BuildOptions,
    checked: Checked,
    terminal: &Terminal,
    json: bool,
) -> Result<ExitCode, LabError> {
    let artefacts = build::build_devices(options, checked, terminal)?;
    terminal.finish();
    if json {
        print_json(&artefacts)?;
    } else {
        for step in &artefacts.steps {
            println!("{step}");
        }
        println!("kernel    {}", artefacts.kernel_release);
        println!("image     {}", artefacts.kernel.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn boot_verb(args: &BootArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut lab = opened(&args.machine, "", &terminal)?;
    terminal.now("booting");
    let mut power = lab.power_on(None)?;
    power.serve_console(&lab.machine.attach_socket())?;
    let hello = power.wait_ready(crate::lab::BOOT_TIMEOUT)?;
    let boot_s = (lab.setting.clock.now_ns() - power.started_ns) as f64 / 1e9;

    if let Some(line) = &args.command {
        terminal.now("running the command");
        let result = power.shell(line, COMMAND_TIMEOUT)?;
        terminal.now("switching off");
        power.power_off(POWER_OFF_TIMEOUT)?;
        end(&lab, args.machine.keep);
        terminal.finish();
        if json {
            print_json(
                &json!({"kernel": hello.kernel, "boot_s": boot_s, "status": result.status,
                "stdout": result.stdout, "stderr": result.stderr}),
            )?;
        } else {
            print!("{}", result.stdout);
            eprint!("{}", result.stderr);
        }
        // What the command says is its own affair; that it failed is told.
        return Ok(ExitCode::from(u8::from(result.status != 0)));
    }

    power.start_shell()?;
    terminal.finish();
    let folder = lab.machine.folder().display().to_string();
    if json {
        print_json(
            &json!({"kernel": hello.kernel, "boot_s": boot_s, "machine": folder,
            "emulator_pid": power.pid()}),
        )?;
    } else {
        println!("{} is up after {boot_s:.1} s, in {folder}", hello.kernel);
        println!(
            "attach:  dormouse lab console --machine {}",
            args.machine.machine.display()
        );
        println!(
            "console log: {}",
            lab.machine.console_log(power.number()).display()
        );
        println!("Ctrl-C (or `dormouse-guest poweroff` in the machine) switches it off.");
    }
    let stopped = |signal: &Signal| matches!(signal.what, What::Stopped).then_some(());
    let result = power.wait("the machine to be switched off", SESSION_TIMEOUT, stopped);
    drop(power);
    end(&lab, args.machine.keep);
    match result {
        Ok(()) | Err(LabError::Interrupted) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

fn cycle_verb(args: &CycleArgs, json: bool) -> Result<ExitCode, LabError> {
    if listed(args) {
        return Ok(ExitCode::SUCCESS);
    }
    let options = cycle_options(args)?;
    let terminal = Terminal::new();
    let hibernation = options.hibernation.as_ref();
    let cmdline = hibernation.map_or("", |hibernation| hibernation.compressor.cmdline());
    let mut lab = opened(&args.machine, cmdline, &terminal)?;
    if hibernation.is_some() {
        let bytes = Hibernation::swap_bytes(lab.machine.config.dram_bytes);
        lab.machine.make_swap_disk(bytes)?;
    }
    let log = lab.machine.folder().join("cycles.jsonl");
    let mut log = std::fs::File::create(&log).doing(format!("create {}", log.display()))?;

    let mut summary = Summary::default();
    let say = |text: &str| terminal.now(text);
    let mut cycles = Cycles::new(&mut lab, &options, &say);
    let result = cycles.run(&mut |line| {
        summary.add(line);
        let text = serde_json::to_string(line).expect("a cycle is plain data");
        let _ = writeln!(log, "{text}");
        terminal.aside(|| {
            let text = if json { text } else { line.describe() };
            let _ = writeln!(std::io::stdout(), "{text}");
        });
    });
    if result.is_ok() {
        terminal.now("switching off");
        cycles.finish();
    }
    drop(cycles);
    terminal.finish();
    // What went wrong can be looked at; what went well need not stay on the disk.
    end(
        &lab,
        args.machine.keep || result.is_err() || summary.exit_code() != 0,
    );
    result?;
    if !json {
        println!(
            "{} of {} cycles as they must be; timeline: dormouse report {}",
            summary.ok,
            summary.cycles,
            lab.machine.folder().display()
        );
    }
    Ok(ExitCode::from(summary.exit_code()))
}

fn console_verb(args: &ConsoleArgs) -> Result<ExitCode, LabError> {
    let folder = machine_folder(&args.machine.machine);
    if let Some(console) = attach::connect(&folder.join("console.sock")) {
        eprintln!("attached to {}; Ctrl-] leaves", folder.display());
        attach::interact(console)?;
        eprintln!();
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = Terminal::new();
    let mut lab = opened(&args.machine, "", &terminal)?;
    terminal.now("booting");
    let mut power = lab.boot(None)?;
    let socket = lab.machine.attach_socket();
    power.serve_console(&socket)?;
    power.start_shell()?;
    terminal.finish();
    eprintln!(
        "booted {}; Ctrl-] leaves and switches it off",
        folder.display()
    );
    let console = attach::connect(&socket)
        .ok_or_else(|| LabError::Unexpected("the console cannot be reached".into()))?;
    attach::interact(console)?;
    eprintln!();
    // The machine may have been switched off from inside.
    let _ = power.power_off(POWER_OFF_TIMEOUT);
    end(&lab, args.machine.keep);
    Ok(ExitCode::SUCCESS)
}

/// Tidies up a machine that is switched off.
fn end(lab: &Lab, keep: bool) {
    let _ = std::fs::remove_file(lab.machine.attach_socket());
    if !keep {
        lab.machine.discard();
    }
}

/// Prints the lists that were asked for.
fn listed(args: &CycleArgs) -> bool {
    let faults = args.fault.as_deref() == Some("list");
    let tampers = args.tamper.as_deref() == Some("list");
    if faults {
        for fault in FAULTS {
            println!("{:18} {}", fault.name, fault.meaning);
        }
    }
    if tampers {
        let hibernates = args.mode != Mode::Cxl;
        for (tamper, name, meaning) in TAMPERS {
            if tamper.is_for_hibernation() == hibernates {
                println!("{name:15} {meaning}");
            }
        }
    }
    let awkward = args.awkward.iter().any(|word| word == "list");
    if awkward {
        for kind in AWKWARD_KINDS {
            println!("{:15} {}", kind.name, kind.meaning);
        }
    }
    faults || tampers || awkward
}

fn cycle_options(args: &CycleArgs) -> Result<CycleOptions, LabError> {
    let usage = |text: &str| Err(LabError::Usage(text.to_owned()));
    let hibernates = args.mode != Mode::Cxl;
    let fault = args.fault.as_deref().map(Fault::by_name).transpose()?;
    let tamper = args.tamper.as_deref().map(Tamper::by_name).transpose()?;
    if !hibernates && (args.compressor.is_some() || args.image_size.is_some()) {
        return usage("--compressor and --image-size: only with --mode hibernate, hibernate-swap");
    }
    if hibernates && (fault.is_some() || !args.sleep_argument.is_empty()) {
        return usage("--fault and --sleep-argument: only with --mode cxl");
    }
    if hibernates && args.machine.gpf != Gpf::default() {
        return usage("--gpf: only with --mode cxl; hibernation does not use the CXL device");
    }
    if tamper.is_some_and(|tamper| tamper.is_for_hibernation() != hibernates) {
        return usage("--tamper: not for this mode; --tamper list prints the ways of the --mode");
    }
    if args.machine.firmware != Firmware::Coreboot {
        return usage("cycles run under --firmware coreboot only");
    }
    if args.fill.0 < 4096 {
        return usage("--fill: at least one page of 4096 bytes");
    }
    Ok(CycleOptions {
        cycles: args.cycles,
        fill: args.fill,
        seed: args.seed,
        redis_keys: args.redis_keys,
        awkward: awkward::plans(&args.awkward)?,
        fault,
        tamper,
        gpf: args.machine.gpf,
        dram_after: args.dram_after,
        hibernation: hibernates.then(|| Hibernation {
            swap_out: args.mode == Mode::HibernateSwap,
            compressor: args
                .compressor
                .clone()
                .unwrap_or_else(|| Compressor::Named("lzo".into())),
            image_size: args.image_size,
        }),
        sleep_arguments: args.sleep_argument.clone(),
        before: args.before.clone(),
        after: args.after.clone(),
    })
}

pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), LabError> {
    let text =
        serde_json::to_string(value).map_err(|error| LabError::Unexpected(error.to_string()))?;
    writeln!(std::io::stdout(), "{text}").doing("print")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(subcommand)]
        command: LabCommand,
    }

    fn cycle(words: &str) -> CycleArgs {
        let words = ["lab", "cycle"]
            .into_iter()
            .chain(words.split_ascii_whitespace());
        match Whole::try_parse_from(words).unwrap().command {
            LabCommand::Cycle(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_documented_options_are_understood() {
        let args = cycle("--cycles 5 --dram 1G --cxl 2G --fill 512M --mode cxl --seed 7");
        assert_eq!((args.cycles, args.seed), (5, 7));
        assert_eq!(args.machine.dram, Size(1 << 30));
        assert_eq!(args.fill, Size::mib(512));
        assert!(cycle_options(&args).is_ok());
    }

    #[test]
    fn what_is_not_available_is_a_usage_error() {
        for words in [
            "--compressor lz4",
            "--image-size 1G",
            "--mode hibernate --fault saving",
            "--mode hibernate --tamper page",
            "--tamper swap-signature",
            "--fault nowhere",
            "--tamper nothing",
            "--firmware seabios",
        ] {
            assert_eq!(
                cycle_options(&cycle(words)).unwrap_err().exit_code(),
                2,
                "{words}"
            );
        }
    }

    #[test]
    fn hibernation_is_lzo_with_all_pages_unless_something_else_is_asked_for() {
        let plain = cycle_options(&cycle("--mode hibernate")).unwrap();
        let plain = plain.hibernation.unwrap();
        assert!(!plain.swap_out && plain.image_size.is_none());
        assert_eq!(plain.compressor.to_string(), "lzo");
        let words = "--mode hibernate-swap --compressor none --image-size 600M";
        let other = cycle_options(&cycle(words)).unwrap().hibernation.unwrap();
        assert!(other.swap_out);
        assert_eq!(other.compressor, Compressor::None);
        assert_eq!(other.image_size, Some(Size::mib(600)));
    }

    #[test]
    fn a_name_is_a_folder_in_the_output_and_a_path_is_a_path() {
        assert_eq!(machine_folder(Path::new("demo")), Path::new("out/lab/demo"));
        assert_eq!(machine_folder(Path::new("./demo")), Path::new("./demo"));
        assert_eq!(
            machine_folder(Path::new("/tmp/demo")),
            Path::new("/tmp/demo")
        );
    }
}
