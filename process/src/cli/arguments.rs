//! The command line of `dormouse process`: every verb, option and example.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use caps::Capability;
use clap::{Args, Subcommand};
use jiff::SignedDuration;

use crate::persist::Then;
use crate::power::Source;
use crate::sync::Share;
use crate::tracker::launch::{Identity, User};

/// Keep one program across a power loss: track it while it runs, restore it afterwards
#[derive(Debug, Subcommand)]
pub enum ProcessCommand {
    /// Run a program and track it; if the store holds a state of it, restore that state
    #[command(after_help = "\
Examples:
  dormouse process run cache -- redis-server --save ''
  dormouse process run cache --store /mnt/pmem --deadline 16ms \\
      --on-power-loss nut:ups@localhost -- redis-server --save ''

A program that ends by itself loses its state, and its exit code is returned. A program that was
persisted and killed, or killed otherwise, keeps its state, and the same command restores
it.

Exit codes: the program's own; 128 + N when signal N killed it; 0 when it was persisted and killed.
Before the program runs: 1 an obstacle, which is named; 2 wrong usage; 3 a capability is missing, or
this kernel or processor cannot run the program; 4 the store does not match its checksums.")]
    Run(Box<RunArguments>),
    /// Track a program that runs already
    #[command(override_usage = "dormouse process attach [OPTIONS] <NAME> <PID>")]
    #[command(after_help = "\
Example:
  dormouse process attach cache 4711

Exit codes: 0 the program has ended, or was persisted and killed; 1 failure; 2 wrong usage; 3 this
machine lacks something.")]
    Attach(Box<AttachArguments>),
    /// Restore a program from its store, and track it again
    #[command(override_usage = "dormouse process restore [OPTIONS] <NAME>")]
    #[command(after_help = "\
Example:
  dormouse process restore cache

Exit codes: those of `run`; 1 when there is nothing to restore.")]
    Restore(Box<RestoreArguments>),
    /// Commit the state of a tracked program to its store now
    #[command(override_usage = "dormouse process persist [OPTIONS] <NAME>")]
    #[command(after_help = "\
Examples:
  dormouse process persist cache
  dormouse process persist cache --then kill   the next `run` restores it
  dormouse process persist cache --then kill --rehearse

Exit codes: 0 committed; 1 not committed, the previous epoch is kept; 2 wrong usage.")]
    Persist(PersistArguments),
    /// List the stores in a directory
    #[command(after_help = "\
Example:
  dormouse process list --store /mnt/pmem")]
    List(ListArguments),
    /// Show a program's dirty memory, the time that a persist would take, and its last epoch
    #[command(override_usage = "dormouse process status [OPTIONS] <NAME>")]
    #[command(after_help = "\
Example:
  dormouse process status cache --json")]
    Status(NamedArguments),
    /// Remove the state of a program that does not run
    #[command(override_usage = "dormouse process remove [OPTIONS] <NAME>")]
    #[command(after_help = "\
Example:
  dormouse process remove cache")]
    Remove(NamedArguments),
    /// Compare the whole contents of a store with its checksums
    #[command(override_usage = "dormouse process verify [OPTIONS] <NAME>")]
    #[command(after_help = "\
Example:
  dormouse process verify cache

Exit codes: 0 everything matches; 1 the store cannot be read; 4 pages differ, and are listed.")]
    Verify(NamedArguments),
}

/// The program's name: the first argument of every verb. `--name NAME` is the form of earlier
/// versions, which scripts may use.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Name {
    /// The program's name in the store
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[arg(long = "name", value_name = "NAME", hide = true)]
    name_option: Option<String>,
}

impl Name {
    /// The name, in whichever form it was given.
    pub fn as_str(&self) -> &str {
        let given = self.name.as_deref().or(self.name_option.as_deref());
        // clap refuses a command line without one.
        given.unwrap_or_default()
    }
}

/// The form of the name in earlier versions, which scripts may use.
#[derive(Debug, Clone, Args)]
struct FormerName {
    #[arg(long = "name", value_name = "NAME", hide = true)]
    name_option: Option<String>,
}

/// Where stores are.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Directory of the stores; or one store: a file or a DAX device
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
    /// Maximum size of the store (default: as large as its file system allows)
    #[arg(long, value_name = "SIZE")]
    pub store_size: Option<ByteSize>,

    /// Maximum dirty memory, as far as background sync keeps up
    #[arg(long, value_name = "SIZE", group = "bound")]
    pub budget: Option<ByteSize>,

    /// Maximum dirty memory as the time that a persist needs to store it
    #[arg(long, value_name = "TIME", value_parser = time, group = "bound")]
    pub deadline: Option<Duration>,

    /// Part of its time that the program may be stopped so that no more is dirty than --budget or --deadline says
    /// (default: 0; it runs on if it writes faster than the store takes it, and the budget is exceeded)
    #[arg(long, value_name = "PERCENT", requires = "bound")]
    pub throttle: Option<Share>,

    /// Time from one background epoch to the next
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub epoch_interval: Duration,

    /// Maximum time that a background epoch stops the program to copy pages; an epoch that needs N times as long
    /// is postponed until N intervals have passed since the last one
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    pub pause: Duration,

    /// Source of power-loss warnings: nut:UPS@HOST, upower, power-supply, signal (SIGPWR or SIGUSR1
    /// to the tracker; in a container SIGPWR alone), none
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "signal",
        env = "DORMOUSE_ON_POWER_LOSS"
    )]
    pub on_power_loss: Source,

    /// What happens to the program after a power loss, once its state is committed; a stopped
    /// program continues when power is back
    #[arg(long, value_enum, default_value = "stop")]
    pub then: Then,

    /// Hold a lease on the store: only one node of those that see it runs the program, and one that
    /// is cut off or stands still for longer than TIME ends it. Implies --isolate
    #[arg(long, value_name = "TIME", value_parser = term)]
    pub lease: Option<Duration>,

    /// Run the program in a PID namespace of its own: its PIDs are free at a restore, and it never
    /// outlives its tracker (a container has one already)
    #[arg(long)]
    pub isolate: bool,

    /// Files below DIR belong to the program's state, open or not: it is restored only if they are as
    /// they were at the epoch. For databases; a stat() of each file at each epoch. Repeatable
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,

    /// Compare all memory with the store instead of tracking writes (slow; used automatically
    /// where a self-test at the start finds that the kernel's tracking is wrong)
    #[arg(long)]
    pub no_tracking: bool,
}

/// How a program is restored.
#[derive(Debug, Clone, Args)]
pub struct Restoring {
    /// Compare all pages with their checksums before the program runs, instead of each page
    /// before its first use
    #[arg(long)]
    pub verify_first: bool,

    /// Restore although open files have changed since; mapped files must be unchanged
    #[arg(long)]
    pub accept_changed_files: bool,

    /// Fill all pages before the program runs, instead of while it runs
    #[arg(long)]
    pub eager: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store (default: the name of the command)
    #[arg(value_name = "NAME", conflicts_with = "name_option")]
    name: Option<String>,

    #[command(flatten)]
    former: FormerName,

    /// Start the program anew, even if the store holds a state of it
    #[arg(long)]
    pub fresh: bool,

    /// Start the program anew where its restore is refused because files have changed: for programs
    /// that recover from their files by themselves, as databases do
    #[arg(long, conflicts_with = "accept_changed_files")]
    pub fresh_if_changed: bool,

    #[command(flatten)]
    pub tracking: Tracking,

    #[command(flatten)]
    pub restoring: Restoring,

    /// Start the program as this user, while the tracker keeps its own; numbers
    #[arg(long, value_name = "UID:GID[,GID…]")]
    pub user: Option<User>,

    /// Capabilities that the tracker has and the program must not get
    #[arg(long, value_name = "CAP,…", value_delimiter = ',')]
    pub drop_capabilities: Vec<Capability>,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl RunArguments {
    /// What the program is, compared with its tracker.
    pub fn identity(&self) -> Identity {
        Identity {
            user: self.user.clone(),
            without: self.drop_capabilities.clone(),
        }
    }

    /// The program's name: as given, or the file name of the command.
    pub fn name(&self) -> String {
        let given = self.name.as_ref().or(self.former.name_option.as_ref());
        given.cloned().unwrap_or_else(|| {
            let file = Path::new(&self.command[0]).file_name();
            file.map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default()
        })
    }
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
pub struct AttachArguments {
    #[command(flatten)]
    pub place: Place,

    /// The program's name in the store
    #[arg(value_name = "NAME")]
    first: String,

    /// The root of the process tree
    #[arg(
        value_name = "PID",
        required_unless_present = "name_option",
        conflicts_with = "name_option"
    )]
    pid: Option<i32>,

    #[command(flatten)]
    former: FormerName,

    #[command(flatten)]
    pub tracking: Tracking,
}

impl AttachArguments {
    /// The program's name, and the root of its process tree. With `--name NAME` the only argument
    /// is the PID.
    ///
    /// # Errors
    /// That argument is not a number.
    pub fn target(&self) -> Result<(&str, i32), String> {
        match (&self.former.name_option, self.pid) {
            (None, Some(pid)) => Ok((&self.first, pid)),
            (name, _) => {
                let pid = self.first.parse();
                let pid = pid.map_err(|_| format!("`{}` is not a PID", self.first))?;
                Ok((name.as_deref().unwrap_or_default(), pid))
            }
        }
    }
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    #[command(flatten)]
    pub place: Place,

    #[command(flatten)]
    pub name: Name,

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

    #[command(flatten)]
    pub name: Name,

    /// What happens to the program
    #[arg(long, value_enum, default_value = "continue")]
    pub then: Then,

    /// First restore a copy in namespaces of its own, which never runs, and compare it with the program; if
    /// it cannot be restored or is different, nothing is committed and the program continues. Needs
    /// CAP_SYS_ADMIN, and as much memory again
    #[arg(long)]
    pub rehearse: bool,

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

    #[command(flatten)]
    pub name: Name,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The term of a lease.
fn term(text: &str) -> Result<Duration, String> {
    const MIN: Duration = Duration::from_secs(1);
    let term = time(text)?;
    if term < MIN {
        return Err(format!("`{text}` is too short: a lease takes 1s at least"));
    }
    Ok(term)
}

/// `16ms`, `1.5s`, `2min`, `500us`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = |why: &dyn std::fmt::Display| {
        format!("`{text}` is not a duration: write 16ms, 1.5s or 2min ({why})")
    };
    let time: SignedDuration = text.parse().map_err(|error| wrong(&error))?;
    Duration::try_from(time)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| wrong(&"it must be positive"))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
