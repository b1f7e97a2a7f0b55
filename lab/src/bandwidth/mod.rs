//! Bandwidth control in an emulated machine with a memory device that counts and saturates: users
//! with known traffic, programs that only compute, and the daemon as it runs on hardware.
//!
//! ```text
//!  free ─▶ daemon: limited ─▶ idle machine ─▶ the kernel ends the scheduler ─▶ idle = "use"
//!                                                                       ─▶ the daemon is killed
//! ```

mod device;
mod held;
mod plan;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use dormouse_guest::protocol::bandwidth_job::{Answer, JOB, Step};
use serde::Serialize;

use crate::build::{BandwidthKernel, BuildOptions, build_bandwidth};
use crate::emulator::job_machine::{Boot, JobMachine};
use crate::emulator::monitor::Exchanges;
use crate::error::{Doing, LabError};
use crate::machine::machine_folder;
use crate::terminal::Terminal;
use crate::terminal::print_json;
use device::Model;
use report::{HEAVY, READERS, Report};

const CPUS: u32 = 2;
/// With `--latency`: one for each reader, one for the daemon, one for the measurement.
const LATENCY_CPUS: u32 = 6;
const MIB: f64 = 1048576.0;
/// The threshold, as a part of what the device carries at most. Beside programs that compute, users
/// ask for twice that on an idle host, and still for more on a busy one.
const THRESHOLD: f64 = 0.3;
/// With `--latency`: 1.25 of the four readers at a time.
const LATENCY_THRESHOLD: f64 = 0.5;

/// The mechanism of enforcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Enforce {
    /// Quotas of cgroups
    Quota,
    /// Our scheduler
    SchedExt,
}

impl Enforce {
    fn name(self) -> &'static str {
        match self {
            Enforce::Quota => "quota",
            Enforce::SchedExt => "sched-ext",
        }
    }
}

/// What our scheduler does with processors that have nothing else to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Idle {
    Hold,
    Use,
}

impl Idle {
    fn name(self) -> &'static str {
        match self {
            Idle::Hold => "hold",
            Idle::Use => "use",
        }
    }
}

/// How the daemon attributes the device's traffic to users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Attribution {
    /// The device samples cache lines; the owner of the page is the user
    #[default]
    Device,
    /// CPU time and memory on the device
    CpuTime,
    /// The same, and the learnt bytes per CPU second of each user
    Learnt,
}

/// Which kernel the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kernel {
    /// The newest kernel of Debian's testing suite, with sched_ext
    Newest,
    /// The kernel of the machine that sleeps, without sched_ext
    Stock,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab bandwidth --enforce quota\n\n\
    The machine has two processors and a memory device with two nodes, traffic counters and a\n\
    bandwidth limit. It runs a heavy user with two programs, three users that want less than their\n\
    share, and two programs that compute. The verb prints the traffic of each and the traffic that\n\
    the daemon attributes to it, free, limited, and on an otherwise idle machine; then it ends the\n\
    scheduler through the kernel, and kills the daemon. trace-NAME.tsv in the machine's folder has\n\
    the measurements and decisions of each pass.")]
pub struct BandwidthArgs {
    /// The machine's name or folder; a name means out/lab/NAME
    #[arg(long, value_name = "DIR", default_value = "bandwidth")]
    pub machine: PathBuf,
    /// The mechanism of enforcement
    #[arg(long, value_enum, default_value = "sched-ext")]
    pub enforce: Enforce,
    /// The machine's kernel; sched-ext needs the newest
    #[arg(long, value_enum, default_value = "newest")]
    pub kernel: Kernel,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value = "8", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// How the daemon attributes traffic to users
    #[arg(long, value_enum, default_value = "device")]
    pub attribution: Attribution,
    /// Measure once more without limits, with the traffic attributed by CPU time and memory
    #[arg(long)]
    pub compare: bool,
    /// Free, limited and killed only
    #[arg(long)]
    pub brief: bool,
    /// Free and limited only
    #[arg(long)]
    pub briefest: bool,
    /// Latency: one reader, four of them on processors of their own, and the same limited, with a device
    /// that one processor cannot saturate
    #[arg(long, conflicts_with_all = ["compare", "brief", "briefest", "costs"])]
    pub latency: bool,
    /// Also measure the overhead of our scheduler's callbacks and of an empty scheduler's
    #[arg(long)]
    pub costs: bool,
}

/// The kernel's command line.
fn cmdline(args: &BandwidthArgs) -> String {
    let mut words = "console=ttyS0 loglevel=5 panic=-1".to_owned();
    if args.latency {
        // A kernel that is decompressed onto the slow device takes minutes to boot, and balancing reads
        // records of the readers' pages.
        words += " nokaslr numa_balancing=disable";
    }
    words
}

/// Runs the verb.
///
/// # Errors
/// The machine cannot be built or started, or a step failed in it.
pub fn run(args: &BandwidthArgs, json: bool) -> Result<ExitCode, LabError> {
    if args.kernel == Kernel::Stock && (args.enforce == Enforce::SchedExt || args.costs) {
        return Err(LabError::Usage(
            "the stock kernel has no sched_ext: --enforce quota, without --costs".into(),
        ));
    }
    let terminal = Terminal::new();
    let which = match args.kernel {
        Kernel::Newest => BandwidthKernel::Newest,
        Kernel::Stock => BandwidthKernel::Stock,
    };
    let artefacts = build_bandwidth(&BuildOptions::default(), which, &terminal)?;
    let folder = machine_folder(&args.machine);
    std::fs::create_dir_all(&folder).doing(format!("create {}", folder.display()))?;
    let (model, part, cpus) = match args.latency {
        true => (Model::deep(), LATENCY_THRESHOLD, LATENCY_CPUS),
        false => (Model::default(), THRESHOLD, CPUS),
    };
    let threshold = part * model.capacity();
    let plan = plan::plan(args, threshold / (1024.0 * MIB));
    let steps: Vec<&Step> = plan.iter().map(|(step, _)| step).collect();
    let boot = Boot {
        kernel: &artefacts.kernel,
        initrd: &artefacts.initrd,
        job: JOB,
        cpus,
        // With a thread for each, QEMU 7.2 now and then runs code of the kernel that another
        // processor has just patched. Processors contend for the device only so.
        threads: args.latency,
        board: "q35",
        memory: &device::memory(),
        more: device::arguments(&artefacts.device, &folder, cpus, model)?,
        exchanges: Exchanges::new(),
        cmdline: cmdline(args),
    };
    terminal.now("booting");
    let mut machine = JobMachine::<Answer>::start(&boot, &folder, &steps)?;
    let mut report = Report {
        enforce: args.enforce.name(),
        attribution: args.attribution,
        threshold_mib_s: threshold / MIB,
        capacity_mib_s: model.capacity() / MIB,
        device: model,
        ..Report::default()
    };
    loop {
        let answer = machine.next()?;
        if let Some(error) = answer.error {
            return Err(LabError::Guest(error));
        }
        let Some((_, becomes)) = plan.get(answer.step) else {
            break;
        };
        terminal.now(&format!("step {} of {}", answer.step + 1, plan.len()));
        becomes(&mut report, answer);
    }
    terminal.finish();
    for (name, text) in &report.traces {
        let path = folder.join(format!("trace-{name}.tsv"));
        std::fs::write(&path, text).doing(format!("write {}", path.display()))?;
        let rows = held::rows(text)?;
        let phases = report.phases.iter_mut();
        for phase in phases.filter(|phase| phase.daemon.as_ref() == Some(name)) {
            phase.held = Some(match args.latency {
                // Of the daemon's whole life: the numbers of its passes are not known.
                true => held::Held::of(&rows, READERS[0].0, [0, u64::MAX]),
                false => held::Held::of(&rows, HEAVY, phase.passes),
            });
        }
    }
    if json {
        print_json(&report)?;
    } else {
        report.print();
    }
    Ok(ExitCode::SUCCESS)
}
