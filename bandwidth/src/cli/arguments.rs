//! The command line of `dormouse bandwidth`: every verb, option and example.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::tasks::TaskSet;
use crate::simulate::Policy;

/// Keep a CXL device below the knee of its latency curve
#[derive(Debug, Subcommand)]
pub enum BandwidthCommand {
    /// Show what a policy does to a CXL device's latency, and to the programs, on a simulated machine
    #[command(after_help = "\
Examples:
  dormouse bandwidth simulate                                  the seed's experiment, all policies
  dormouse bandwidth simulate --policy none --policy fair --tasks 10xreader,39xcompute
  dormouse bandwidth simulate --curve curve.csv --threshold 12 --cpus 64
  dormouse bandwidth simulate --policy fair --tasks 2xreader,1xreader:most=0.3,38xcompute --json

Tasks are COUNTxKIND, separated by commas. A reader waits for the CXL device; a compute task never
does. A reader may have: most=GIB_S (it wants no more), weight=W, from=S and until=S (seconds of the
simulation in which it is there), protected (never slowed; of the policy fair only).

A curve is a file with lines `GiB/s,nanoseconds`, as `probe` writes it, or one of seed-fpga, mess-cxl, linear-knee.

Exit codes: 0 done; 1 the curve cannot be used; 2 wrong usage.")]
    Simulate(SimulateArguments),
    /// Measure a device's latency curve, and find its knee
    #[command(after_help = "\
Examples:
  dormouse bandwidth probe --node 2 --out cxl.csv
  dormouse bandwidth probe --node 2 --writes 50 --threads 8

One thread walks from line to line of the node's memory, each access after the one before; the
others read as fast as they can, then at parts of that. What they move together and how long an
access takes is a point of the curve. Whatever else uses the device meanwhile disturbs it. Memory is
taken only if the node has it free.

Exit codes: 0 done; 1 there is no such node or too little memory, or no knee was found; 2 wrong
usage; 130 interrupted.")]
    Probe(ProbeArguments),
    /// Say whether this machine has what `run` needs
    #[command(after_help = "\
Examples:
  dormouse bandwidth doctor
  dormouse bandwidth doctor --config /etc/dormouse/bandwidth.toml --json

Exit codes: 0 ready; 1 the configuration cannot be used; 3 something is missing.")]
    Doctor(DoctorArguments),
    /// Watch who uses a CXL device, and slow the heaviest users' CPU time when it nears its knee
    #[command(after_help = "\
Example:
  dormouse bandwidth run --config /etc/dormouse/bandwidth.toml

Needs root. Sets cpu.max of cgroups that are there already; moves no process. What each limit was is
on disk before it is changed, and is given back at the end, on Ctrl-C and SIGTERM; after SIGKILL by
a second process that waits for nothing else, and once more by the next start.

Exit codes: 0 ended by a signal or after --seconds; 1 it failed; 3 no cgroup hierarchy has the cpu
controller.")]
    Run(RunArguments),
    /// Let the kernel schedule with our sched_ext scheduler for a while, limiting nobody, and tell
    /// what its calls cost
    #[command(after_help = "\
Examples:
  dormouse bandwidth scheduler
  dormouse bandwidth scheduler --empty      the least scheduler that there can be, to compare with

Needs root and a kernel with sched_ext. Whatever runs meanwhile is what is measured.

Exit codes: 0 done; 1 the kernel refuses it, or ended it; 3 the kernel has no sched_ext.")]
    Scheduler(SchedulerArguments),
    /// Show what a running daemon does
    #[command(after_help = "\
Examples:
  dormouse bandwidth top
  dormouse bandwidth top --once --json

On a terminal: q ends, s sorts by bandwidth, CPU time or memory, ↑ and ↓ scroll. Elsewhere it prints
the same as text, once a second.

Exit codes: 0 shown; 1 no daemon is running.")]
    Top(TopArguments),
    /// Give back every limit that a daemon left behind
    #[command(after_help = "\
Example:
  dormouse bandwidth undo

A limit that somebody else has set since is left alone. While a daemon is running there is nothing
to undo, and it is refused.

Exit codes: 0 done; 1 a daemon is running, or something could not be undone.")]
    Undo(UndoArguments),
}

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// The NUMA node that is the device
    #[arg(long, value_name = "N")]
    pub node: u32,

    /// Write the curve to this file, as `--curve` and the daemon's `curve` read it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Threads that load the device [default: all processors but one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// Lines that are written after they were read, in percent; some of sixteen are, as many as come
    /// nearest to it, and one at least unless it is 0
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub writes: u8,

    /// Memory that all these threads use together, 2 MiB each at least [default: twice the largest
    /// cache, 8 MiB each at least]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub mib: Option<u32>,

    /// Time for each of the fifteen steps, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    pub step: u32,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `scheduler`.
#[derive(Debug, Args)]
pub struct SchedulerArguments {
    /// The least scheduler that there can be, instead of ours
    #[arg(long)]
    pub empty: bool,
    /// For so long
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub seconds: u64,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Check for this configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// What to watch, and how
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,

    /// End after this time
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,

    /// Append events for `dormouse report` to this file
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Write what each pass found and decided to this file: tab-separated values, a line for each
    /// user in each pass
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The daemon's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,

    /// Show it once, and end
    #[arg(long)]
    pub once: bool,

    /// Print JSON: one object a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `undo`.
#[derive(Debug, Args)]
pub struct UndoArguments {
    /// The daemon's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,

    /// Wait until the daemon that is running is gone
    #[arg(long)]
    pub wait: bool,
}

const CONFIG: &str = "/etc/dormouse/bandwidth.toml";

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// Who decides; may be given several times [default: all]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub policy: Vec<PolicyName>,

    /// The device's latency curve
    #[arg(long, value_name = "FILE|NAME", default_value = "seed-fpga")]
    pub curve: String,

    /// The bandwidth to stay at, GiB/s [default: four fifths of the curve's working point]
    #[arg(long, value_name = "GIB_S", value_parser = positive)]
    pub threshold: Option<f64>,

    /// Instead: our policies find the threshold at which an access takes so long, in nanoseconds
    #[arg(long, value_name = "NS", value_parser = positive, conflicts_with = "threshold")]
    pub latency: Option<f64>,

    /// Who runs
    #[arg(long, value_name = "TASKS", default_value = "5xreader,39xcompute")]
    pub tasks: TaskSet,

    /// Logical CPUs, two a core
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cpus: u16,

    /// Between two passes of our policies, in milliseconds
    #[arg(long, value_name = "MS", default_value = "50", value_parser = interval)]
    pub interval: f64,

    /// How long, in simulated seconds; the first 20 are left out of the results
    #[arg(long, value_name = "S", default_value_t = 55, value_parser = clap::value_parser!(u16).range(21..=3600))]
    pub seconds: u16,

    /// Times that each policy is simulated, with other random numbers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,

    /// The first run's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Nobody
    None,
    /// Seed: cpu.max, everybody reduced by the same factor
    SimpleCgroups,
    /// Seed: cpu.max, heavier users reduced more
    Cgroups,
    /// Seed: sched_ext with a queue for throttled tasks
    ThrottleQueue,
    /// Ours: cpu.max, fair shares with feedback
    Fair,
    /// The same with our sched_ext scheduler
    FairSchedExt,
    /// The same, which gives away processors that would be idle (idle = "use")
    FairSchedExtUse,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::None => Self::None,
            PolicyName::SimpleCgroups => Self::SimpleCgroups,
            PolicyName::Cgroups => Self::Cgroups,
            PolicyName::ThrottleQueue => Self::ThrottleQueue,
            PolicyName::Fair => Self::Fair,
            PolicyName::FairSchedExt => Self::FairExt,
            PolicyName::FairSchedExtUse => Self::FairExtUse,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number".to_owned())?;
    if number > 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("a number above 0".to_owned())
    }
}

fn interval(text: &str) -> Result<f64, String> {
    let number = positive(text)?;
    if (1.0..=10_000.0).contains(&number) {
        Ok(number)
    } else {
        Err("1 to 10000".to_owned())
    }
}
