//! The command line of `dormouse bandwidth`: every verb, option and example.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::tasks::TaskSet;
use crate::simulate::{Attribution, Policy};

/// Keep a CXL device below the knee of its latency curve
#[derive(Debug, Subcommand)]
pub enum BandwidthCommand {
    /// Simulate the effect of a policy on a CXL device's latency and on its users
    #[command(after_help = "\
Examples:
  dormouse bandwidth simulate                        the experiment of Kämmerer 2025, all policies
  dormouse bandwidth simulate --policy none --policy fair --tasks 10xreader,39xcompute
  dormouse bandwidth simulate --curve curve.csv --threshold 12 --cpus 64
  dormouse bandwidth simulate --policy fair --tasks 2xreader,1xreader:max=0.3,38xcompute --json

Tasks are COUNTxKIND, separated by commas. A reader waits for the CXL device; a compute task never
does. Options of a reader: max=GIB_S (its demand), weight=W, from=S and until=S (when it runs, in
simulated seconds), protected (never limited; feedback policies only), period=S and on=S
(it runs for S seconds at the start of each period).

A curve is a file with lines `GiB/s,nanoseconds`, as `probe` writes it, or one of kaemmerer-fpga,
mess-cxl, linear-knee.

Exit codes: 0 done; 1 the curve cannot be used; 2 wrong usage.")]
    Simulate(SimulateArguments),
    /// Measure a device's latency curve and find its knee
    #[command(after_help = "\
Examples:
  dormouse bandwidth probe --node 2 --out cxl.csv
  dormouse bandwidth probe --node 2 --writes 50 --threads 8

One thread chases pointers in the node's memory; the others read at full speed, then at fractions of
it. The total bandwidth and the access latency are a point of the curve. Other users of the device
disturb the measurement. Memory is allocated only if the node has it free.

Exit codes: 0 done; 1 the node does not exist or has too little memory, or no knee was found; 2 wrong
usage; 130 interrupted.")]
    Probe(ProbeArguments),
    /// Check whether this machine has what `run` needs
    #[command(after_help = "\
Examples:
  dormouse bandwidth doctor
  dormouse bandwidth doctor --config /etc/dormouse/bandwidth.toml --json
  dormouse bandwidth doctor --config /etc/dormouse/bandwidth.toml --calibrate

--calibrate moves 256 MiB in each direction from and to each node of the configuration, takes a second
or two for each node and counter, and needs 32 MiB of memory of the node.

Exit codes: 0 ready; 1 the configuration cannot be used; 3 something is missing; 4 a counter is off by
more than 10 %.")]
    Doctor(DoctorArguments),
    /// Attribute a CXL device's traffic to users, and limit the CPU time of the heaviest near the
    /// knee
    #[command(after_help = "\
Example:
  dormouse bandwidth run --config /etc/dormouse/bandwidth.toml

Needs root. Sets cpu.max of existing cgroups; moves no process. Each original limit is written to disk
before it is changed, and restored at the end, on Ctrl-C and on SIGTERM; after SIGKILL by a second
process that waits for this, and by the next start.

Exit codes: 0 ended by a signal or after --seconds; 1 it failed; 3 no cgroup hierarchy has the cpu
controller.")]
    Run(RunArguments),
    /// Run the sched_ext scheduler for a while without limits, and measure the overhead of its
    /// callbacks
    #[command(after_help = "\
Examples:
  dormouse bandwidth scheduler
  dormouse bandwidth scheduler --empty      the smallest possible scheduler, for comparison

Needs root and a kernel with sched_ext. The machine's present load is what is measured.

Exit codes: 0 done; 1 the kernel refuses it, or ended it; 3 the kernel has no sched_ext.")]
    Scheduler(SchedulerArguments),
    /// Show the state of a running daemon
    #[command(after_help = "\
Examples:
  dormouse bandwidth top
  dormouse bandwidth top --once --json

On a terminal: q quits, s sorts by bandwidth, CPU time or memory, ↑ and ↓ scroll. Elsewhere it prints
the same as text, once a second.

Exit codes: 0 shown; 1 no daemon is running.")]
    Top(TopArguments),
    /// Restore every limit that a daemon left behind
    #[command(after_help = "\
Example:
  dormouse bandwidth undo

A limit that another program has set since is left alone. While a daemon is running, the command is
refused.

Exit codes: 0 done; 1 a daemon is running, or something could not be undone.")]
    Undo(UndoArguments),
}

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// The NUMA node of the device
    #[arg(long, value_name = "N")]
    pub node: u32,

    /// Write the curve to this file, in the format of `--curve` and of the daemon's `curve`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Threads that load the device [default: all processors but one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// Lines that are written after they were read, in percent, rounded to sixteenths; at least
    /// one sixteenth unless it is 0
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub writes: u8,

    /// Total memory of these threads, at least 2 MiB each [default: twice the largest cache, at
    /// least 8 MiB each]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub mib: Option<u32>,

    /// Time of each of the fifteen steps, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    pub step: u32,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `scheduler`.
#[derive(Debug, Args)]
pub struct SchedulerArguments {
    /// The smallest possible scheduler, for comparison
    #[arg(long)]
    pub empty: bool,
    /// Duration
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Check the requirements of this configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Compare each counter with a known amount of traffic that this program moves
    #[arg(long, requires = "config")]
    pub calibrate: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,

    /// End after this time
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,

    /// Append events for `dormouse report` to this file
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Write the measurements and decisions of each pass to this file: tab-separated values, a
    /// line for each user in each pass
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The daemon's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,

    /// Show it once and exit
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
    /// The policy; may be given several times [default: all]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub policy: Vec<PolicyName>,

    /// The device's latency curve
    #[arg(long, value_name = "FILE|NAME", default_value = "kaemmerer-fpga")]
    pub curve: String,

    /// The threshold in GiB/s [default: four fifths of the curve's working point]
    #[arg(long, value_name = "GIB_S", value_parser = positive)]
    pub threshold: Option<f64>,

    /// Instead of a threshold: the access latency, in nanoseconds, that the feedback policies
    /// search the threshold for
    #[arg(long, value_name = "NS", value_parser = positive, conflicts_with = "threshold")]
    pub latency: Option<f64>,

    /// How the feedback policies attribute the traffic to tasks
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub attribution: AttributionName,

    /// The workload
    #[arg(long, value_name = "TASKS", default_value = "5xreader,39xcompute")]
    pub tasks: TaskSet,

    /// Logical CPUs, two for each core
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cpus: u16,

    /// Time between two passes of the feedback policies, in milliseconds
    #[arg(long, value_name = "MS", default_value = "50", value_parser = interval)]
    pub interval: f64,

    /// Simulated seconds; the first 20 are not measured
    #[arg(long, value_name = "S", default_value_t = 55, value_parser = clap::value_parser!(u16).range(21..=3600))]
    pub seconds: u16,

    /// Simulations of each policy, each with other random numbers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,

    /// The seed of the first simulation's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// No control
    None,
    /// Kämmerer 2025, simple cgroups: cpu.max, all users reduced by the same factor
    #[value(alias = "simple-cgroups")]
    ByTotal,
    /// Kämmerer 2025, cgroups: cpu.max, heavier users reduced more
    #[value(alias = "cgroups")]
    BalancePoints,
    /// Kämmerer 2025: sched_ext round robin with shorter slices
    RoundRobin,
    /// Kämmerer 2025: the same, in the order of virtual time
    VirtualTime,
    /// Kämmerer 2025: sched_ext with a queue for throttled tasks
    ThrottleQueue,
    /// Ours: cpu.max, max–min fair shares with feedback
    Fair,
    /// The same, enforced by the sched_ext scheduler
    FairSchedExt,
    /// The same; limited tasks may use processors that would be idle (idle = "use")
    FairSchedExtUse,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::None => Self::None,
            PolicyName::ByTotal => Self::ByTotal,
            PolicyName::BalancePoints => Self::BalancePoints,
            PolicyName::RoundRobin => Self::RoundRobin,
            PolicyName::VirtualTime => Self::VirtualTime,
            PolicyName::ThrottleQueue => Self::ThrottleQueue,
            PolicyName::Fair => Self::Fair,
            PolicyName::FairSchedExt => Self::FairExt,
            PolicyName::FairSchedExtUse => Self::FairExtUse,
        }
    }
}

/// How traffic is attributed to tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AttributionName {
    /// CPU time, as in the daemon without samples
    #[default]
    CpuTime,
    /// Bytes per CPU second of each task are learned, as with `learn_half_life_ms`
    Learned,
    /// Each task's traffic is known, as with a monitoring group for each
    Exact,
}

impl From<AttributionName> for Attribution {
    fn from(name: AttributionName) -> Self {
        match name {
            AttributionName::Learned => Self::Learned,
            AttributionName::CpuTime => Self::CpuTime,
            AttributionName::Exact => Self::Exact,
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
