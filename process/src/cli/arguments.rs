//! The command line of `dormouse process`: every verb, option and example.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Subcommand};
use jiff::SignedDuration;

use crate::persist::Then;
use crate::power::Source;

/// Let one program survive the loss of power: tracked while it runs, restored where it stood
#[derive(Debug, Subcommand)]
pub enum ProcessCommand {
    /// Run a program and keep it safe; where the store holds it, it goes on where it stood
    #[command(after_help = "\
Examples:
  dormouse process run --name cache -- redis-server --save ''
  dormouse process run --store /mnt/pmem --name cache --deadline 16ms \\
      --on-power-loss nut:ups@localhost -- redis-server --save ''

When the program ends by itself its state is removed, and the exit code is the program's. When it
was persisted and killed, or killed by somebody else, the state is kept and the same command
restores it.

Exit codes: the program's own; 128 + N when signal N killed it; 0 when it was persisted and killed.
Before the program runs: 1 something is in the way, and what; 2 wrong usage; 3 a right is missing, or
this kernel or processor cannot run it; 4 what the store holds does not match its checksums.")]
    Run(Box<RunArguments>),
    /// Keep a program safe that runs already
    #[command(after_help = "\
Example:
  dormouse process attach --name cache 4711

Exit codes: 0 the program has ended, or was persisted and killed; 1 it failed; 2 wrong usage; 3
this machine lacks something.")]
    Attach(Box<AttachArguments>),
    /// Restore a program from its store, and keep it safe again
    #[command(after_help = "\
Example:
  dormouse process restore --name cache

Exit codes: as of `run`; 1 when there is nothing to restore.")]
    Restore(Box<RestoreArguments>),
    /// Make the state of a tracked program safe now
    #[command(after_help = "\
Examples:
  dormouse process persist cache
  dormouse process persist cache --then kill   the next `run` restores it

Exit codes: 0 it is safe; 1 it is not, the last epoch is still there; 2 wrong usage.")]
    Persist(PersistArguments),
    /// Show the stores in a directory
    #[command(after_help = "\
Example:
  dormouse process list --store /mnt/pmem")]
    List(ListArguments),
    /// Show how a program stands: what is dirty, what a persist would take, its last epoch
    #[command(after_help = "\
Example:
  dormouse process status cache --json")]
    Status(NamedArguments),
    /// Remove the state of a program that does not run
    #[command(after_help = "\
Example:
  dormouse process remove cache")]
    Remove(NamedArguments),
    /// Compare everything that a store holds with its checksums
    #[command(after_help = "\
Example:
  dormouse process verify cache

Exit codes: 0 everything matches; 1 it cannot be read; 4 something differs, and what.")]
    Verify(NamedArguments),
}

/// Where stores are.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Directory of the stores; or one store: a file, or a DAX device
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/dormouse/process",
        env = "DORMOUSE_STORE"
    )]
    pub store: PathBuf,
}

/// How the program is tracked.
#[derive(Debug, Clone, Args)]
pub struct Tracking {
    /// How large the store may become (default: as large as its file system allows)
    #[arg(long, value_name = "BYTES")]
    pub store_size: Option<ByteSize>,

    /// Never let more than this be dirty, as far as background sync can keep up
    #[arg(long, value_name = "BYTES", conflicts_with = "deadline")]
    pub budget: Option<ByteSize>,

    /// Never let more be dirty than a persist can save in this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub deadline: Option<Duration>,

    /// Time from one background epoch to the next
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub epoch_interval: Duration,

    /// How long a background epoch may let the program stand still to copy pages
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    pub pause: Duration,

    /// Who tells that power fails: nut:UPS@HOST, upower, power-supply, signal (SIGPWR or SIGUSR1
    /// to the tracker), none
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "signal",
        env = "DORMOUSE_ON_POWER_LOSS"
    )]
    pub on_power_loss: Source,

    /// What becomes of the program after power failed and it is safe; stopped, it goes on when
    /// power is back
    #[arg(long, value_enum, default_value = "stop")]
    pub then: Then,

    /// Compare all memory with the store instead of tracking writes (slow; for kernels whose
    /// tracking cannot be trusted, which is tested at start)
    #[arg(long)]
    pub no_tracking: bool,
}

/// How a program is restored.
#[derive(Debug, Clone, Args)]
pub struct Restoring {
    /// Compare all pages with their checksums before the program runs, instead of each one
    /// before the program sees it
    #[arg(long)]
    pub verify_first: bool,

    /// Restore although files that the program has open have changed since; files that it has
    /// mapped must be the same
    #[arg(long)]
    pub accept_changed_files: bool,

    /// Bring in all pages before the program runs, instead of while it runs
    #[arg(long)]
    pub eager: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store (default: the command's)
    #[arg(long)]
    pub name: Option<String>,

    /// Start the program anew, even if the store holds a state of it
    #[arg(long)]
    pub fresh: bool,

    #[command(flatten)]
    pub tracking: Tracking,

    #[command(flatten)]
    pub restoring: Restoring,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
pub struct AttachArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store
    #[arg(long)]
    pub name: String,

    #[command(flatten)]
    pub tracking: Tracking,

    /// The root of the process tree
    pub pid: i32,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store
    #[arg(long)]
    pub name: String,

    #[command(flatten)]
    pub tracking: Tracking,

    #[command(flatten)]
    pub restoring: Restoring,
}

/// Arguments of `persist`.
#[derive(Debug, Args)]
pub struct PersistArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store
    pub name: String,

    /// What becomes of the program
    #[arg(long, value_enum, default_value = "continue")]
    pub then: Then,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub place: Place,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the verbs that are about one store.
#[derive(Debug, Args)]
pub struct NamedArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store
    pub name: String,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `16ms`, `1.5s`, `2min`, `500us`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = |why: &dyn std::fmt::Display| {
        format!("`{text}` is no time: write 16ms, 1.5s or 2min ({why})")
    };
    let time: SignedDuration = text.parse().map_err(|error| wrong(&error))?;
    Duration::try_from(time)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| wrong(&"it must be longer than none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        assert_eq!(time("16ms"), Ok(Duration::from_millis(16)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
        for text in ["", "16", "ms", "-1s", "1.2.3s", "0s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
