//! The command line of `dormouse devices`: every verb, option and example.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use dormouse_system::arguments::duration;

/// Suspend and resume of devices: record, analyse, simulate other orders, apply what helps
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// Suspend this machine under ftrace, and record its devices
    #[command(after_help = "\
Examples:
  dormouse devices record first                    s2idle; the real-time clock wakes after 10 s
  dormouse devices record first --state deep --cycles 5
  dormouse devices record first --test devices     devices only: no sleep, no wake-up needed

Needs root. A bare name is a directory below out/devices. A private trace instance is used; switches
that are changed for the recording (pm_test, mem_sleep, the wake alarm) are put back, after Ctrl-C,
too. With --test the kernel goes down to that level and comes back at once: freezer, devices,
platform, processors, core (the last two with --state deep); it needs CONFIG_PM_DEBUG.

Exit codes: 0 recorded; 1 the machine did not suspend, or files cannot be written; 2 wrong usage; 3
this machine lacks something (all of it is listed, nothing was changed); 130 interrupted.")]
    Record(RecordArguments),
    /// Show where the time of a suspend and resume went, and possible remedies
    #[command(after_help = "\
Examples:
  dormouse devices analyze out/devices/first          what `record` wrote; writes its report.html
  dormouse devices analyze trace.txt -o trace.html    text of ftrace or of trace-cmd report
  dormouse devices analyze dmesg.txt --json           a kernel log with pm_print_times

Reads the directory or recording.json of `record`, the text of ftrace (`/sys/kernel/tracing/trace`)
or of `trace-cmd report`, a trace.dat (through trace-cmd), or a kernel log with the times of device
callbacks (pm_print_times or initcall_debug).

Exit codes: 0 done; 1 the file cannot be read or holds no suspend; 2 wrong usage; 3 a trace.dat,
and no trace-cmd to read it.")]
    Analyze(AnalyzeArguments),
    /// Replay a recording under other schedules: list order, async, threshold, leaves first, graph
    #[command(after_help = "\
Examples:
  dormouse devices simulate out/devices/first
  dormouse devices simulate trace.txt --cpus 8 --threshold 500us
  dormouse devices simulate out/devices/first --overhead queue=2us --overhead wake=4us --json

Reads what `analyze` reads. The bound is the lower bound of any order of the devices: the
longest chain of devices that wait for each other, or all work divided by the CPUs.

Exit codes: those of `analyze`.")]
    Simulate(SimulateArguments),
    /// Set this machine's switches for suspend, or restore them
    #[command(after_help = "\
Examples:
  dormouse devices apply --recording out/devices/first --async-threshold 1ms --dry-run
  dormouse devices apply --sync-on-suspend off --snippet
  dormouse devices apply --order graph --order-scope declared
  dormouse devices apply --undo

Prints each change. The former values are written to the state file before the first change, so an
interrupted apply can be undone, too; a switch that another program has changed since is left
alone. --snippet prints a udev rule and a tmpfiles.d file that do the same at each boot.

Exit codes: 0 done; 1 a switch refuses (those before it are set, --undo puts them back); 2 wrong
usage; 3 the machine has no such switch.")]
    Apply(ApplyArguments),
}

/// Arguments of `record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The directory of the recording: a name below out/devices, or a path
    #[arg(value_name = "DIR")]
    pub output: PathBuf,

    /// How to sleep
    #[arg(long, value_enum, default_value = "s2idle")]
    pub state: StateName,

    /// Suspend down to this level only, and resume at once
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub test: Option<TestName>,

    /// Let the real-time clock wake the machine after this time; never: it is woken otherwise
    #[arg(long, value_name = "TIME", value_parser = wake, conflicts_with = "test")]
    pub wake_after: Option<Wake>,

    /// Sleep although the clock's alarm was not seen to reach ACPI (suspend to idle)
    #[arg(long, conflicts_with = "test")]
    pub trust_clock: bool,

    /// Number of suspends
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub cycles: u32,

    /// Time awake between two suspends
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub pause: Duration,

    /// Record no scheduling events: idle CPUs, time on the CPU and the last tasks to freeze stay
    /// unknown
    #[arg(long)]
    pub no_switches: bool,

    /// Trace buffer of each CPU, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(64..=4_194_304))]
    pub buffer_kib: u32,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StateName {
    /// Suspend to idle: CPUs stay on
    S2idle,
    /// Suspend to RAM
    Deep,
}

impl From<StateName> for crate::record::State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::S2idle => Self::S2idle,
            StateName::Deep => Self::Deep,
        }
    }
}

/// The kernel's levels of pm_test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TestName {
    /// Processes are frozen
    Freezer,
    /// Then devices are suspended
    Devices,
    /// Then the platform is prepared
    Platform,
    /// Then CPUs are taken offline (deep)
    Processors,
    /// Then the core is suspended (deep)
    Core,
}

impl From<TestName> for crate::record::Test {
    fn from(name: TestName) -> Self {
        match name {
            TestName::Freezer => Self::Freezer,
            TestName::Devices => Self::Devices,
            TestName::Platform => Self::Platform,
            TestName::Processors => Self::Processors,
            TestName::Core => Self::Core,
        }
    }
}

/// What wakes the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The real-time clock, after this many seconds.
    After(u64),
    /// Nothing does
    Never,
}

fn wake(text: &str) -> Result<Wake, String> {
    if text == "never" {
        return Ok(Wake::Never);
    }
    let seconds = duration(text)?.as_secs();
    if seconds == 0 {
        return Err("the real-time clock counts seconds; the minimum is 1s".to_owned());
    }
    Ok(Wake::After(seconds))
}

/// Arguments of `apply`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct ApplyArguments {
    /// The times for --async-threshold: anything that `analyze` reads
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,

    /// Set power/async for devices slower than this and for their suppliers and consumers, and
    /// clear it for all others
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "recording", group = "what", conflicts_with = "all_async")]
    pub async_threshold: Option<Duration>,

    /// power/async of all devices
    #[arg(long, value_enum, value_name = "SWITCH", group = "what")]
    pub all_async: Option<Switch>,

    /// /sys/power/pm_async: whether any device is suspended beside others
    #[arg(long, value_enum, value_name = "SWITCH", group = "what")]
    pub pm_async: Option<Switch>,

    /// /sys/power/sync_on_suspend: whether file systems are written back before each suspend
    #[arg(long, value_enum, value_name = "SWITCH", group = "what")]
    pub sync_on_suspend: Option<Switch>,

    /// /sys/power/mem_sleep: s2idle, shallow or deep
    #[arg(long, value_name = "STATE", group = "what")]
    pub mem_sleep: Option<String>,

    /// /sys/power/pm_print_times: whether the kernel logs the time of each callback
    #[arg(long, value_enum, value_name = "SWITCH", group = "what")]
    pub print_times: Option<Switch>,

    /// /sys/power/pm_graph: the order in which devices suspend and resume; on a stock kernel loads
    /// the module dormouse_dpm (package dormouse-dpm-dkms)
    #[arg(long, value_enum, value_name = "ORDER", group = "what")]
    pub order: Option<Order>,

    /// /sys/power/pm_graph_scope: which devices may leave the list's order with `--order graph`
    #[arg(long, value_enum, value_name = "SCOPE", group = "what")]
    pub order_scope: Option<Scope>,

    /// /sys/power/pm_graph_threshold_us: devices that take longer are slow
    #[arg(long, value_name = "TIME", value_parser = duration, group = "what")]
    pub order_threshold: Option<Duration>,

    /// Load the module from this file, instead of the installed one
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,

    /// Restore the values from before earlier calls, and unload the module
    #[arg(long, group = "what", conflicts_with_all = ["async_threshold", "all_async", "pm_async", "sync_on_suspend", "mem_sleep", "print_times", "order", "order_scope", "order_threshold", "snippet"])]
    pub undo: bool,

    /// Show the changes, and make none
    #[arg(long)]
    pub dry_run: bool,

    /// Print a udev rule and a tmpfiles.d file that do the same at each boot
    #[arg(long)]
    pub snippet: bool,

    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/dormouse/devices/apply.json"
    )]
    /// The file that keeps the former values
    pub state: PathBuf,

    /// Another sysfs, for instance a copy
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sys: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Orders of the kernel series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// The stock kernel's order
    Off,
    /// One after the other
    List,
    /// The stock kernel's order, async for slow devices, their suppliers and consumers
    Threshold,
    /// The device graph, by a few workers
    Graph,
}

/// Which devices may leave list order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// Devices with power/async set, and those without callbacks
    Async,
    /// Also those with a device link to a supplier
    Declared,
    /// All
    All,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Switched on
    On,
    /// Switched off
    Off,
}

impl Switch {
    /// As a truth value.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// What is read, and which part of it.
#[derive(Debug, Clone, Args)]
pub struct Input {
    /// A directory or recording.json of `record`; a trace as text or trace.dat; a kernel log
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Which suspend of the recording, from 1 (default: the last)
    #[arg(long, value_name = "N")]
    pub cycle: Option<usize>,

    /// CPUs of the machine (default: as recorded)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub cpus: Option<u16>,

    /// Devices slower than this are slow: they get a thread of their own
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    pub threshold: Duration,

    /// Stop at the first damaged line, instead of counting it
    #[arg(long)]
    pub strict: bool,
}

/// Arguments of `analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArguments {
    /// The recording
    #[command(flatten)]
    pub input: Input,

    /// Number of slowest devices in the output
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub slowest: usize,

    /// Write the page to this file, and the trace for Perfetto beside it (default: into the
    /// directory of `record`; no page for other files)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Save the input as a recording
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    /// The recording
    #[command(flatten)]
    pub input: Input,

    /// Workers of the schedule `graph` (default: one a CPU)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub workers: Option<u16>,

    /// Workers beside them, for devices that are known to sleep
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub sleepers: u16,

    /// The schedule `graph` wakes another worker for devices slower than this
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = duration)]
    pub wake_threshold: Duration,

    /// Overhead of scheduling: per-device, queue, wake, latency or switch, and a time (default: as
    /// measured by `record`, or that of a small virtual machine); or trace: what tracing has added
    /// to the time of each callback
    #[arg(long, value_name = "NAME=TIME", value_parser = overhead)]
    pub overhead: Vec<(String, Duration)>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

const OVERHEADS: [&str; 6] = ["per-device", "queue", "wake", "latency", "switch", "trace"];

fn overhead(text: &str) -> Result<(String, Duration), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("a name, `=`, and a time, for instance queue=2us")?;
    if !OVERHEADS.contains(&name) {
        return Err(format!("`{name}` is none of {}", OVERHEADS.join(", ")));
    }
    Ok((name.to_owned(), duration(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overhead_has_a_name_that_exists() {
        assert!(overhead("queue=2us").is_ok());
        assert!(overhead("else=2us").is_err());
        assert!(overhead("queue").is_err());
    }
}
