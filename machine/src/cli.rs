//! The verbs `dormouse sleep` and `dormouse migrate-back`: their arguments, what they print, and
//! their exit codes. The `dormouse` command only mounts them.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dormouse_report::{Event, EventWriter, Kind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::MigrateBackReport;
use crate::SleepError;
use crate::SleepReport;
use crate::bytes::{human, parse};
use crate::options::Policy;
use crate::options::{
    Cancel, MigrateBackMode, MigrateBackOptions, NodeChoice, SleepOptions, VerifyUserPages,
    WayChoice,
};
use crate::owner::describe;

/// When pages migrate back to DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigrateBackArgument {
    /// Migrate pages back before this command ends
    Wait,
    /// Migrate pages back in a separate process
    Background,
    /// Leave them on the CXL node; run `dormouse migrate-back` later
    Never,
}

fn parse_node(text: &str) -> Result<NodeChoice, String> {
    if text == "auto" {
        return Ok(NodeChoice::Auto);
    }
    text.parse()
        .map(NodeChoice::Node)
        .map_err(|_| format!("`{text}` is no node: write its number, or auto"))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("a rate of 0 would never end; leave --rate out for no limit".to_owned()),
        rate => Ok(rate),
    }
}

/// How pages migrate back; shared by both verbs.
#[derive(Debug, Clone, Args)]
pub struct MigrateBackChoices {
    /// Maximum bytes per second of migrating back, such as 500M (default: no limit)
    #[arg(long, value_name = "BYTES/s", value_parser = parse_rate, env = "DORMOUSE_RATE")]
    pub rate: Option<u64>,

    /// The order in which pages migrate back
    #[arg(
        long,
        value_enum,
        default_value = "process-order",
        env = "DORMOUSE_POLICY"
    )]
    pub policy: Policy,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Append timeline events to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

/// Put this machine to sleep in CXL memory.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  dormouse sleep --dry-run             what would move and be saved, and whether it fits
  dormouse sleep                       sleep; after waking wait until all pages are in DRAM
  dormouse sleep --migrate-back background --rate 500M
  dormouse sleep --verify-user-pages all
  dormouse sleep --json --events sleep.jsonl

Exit codes: 0 slept and woke; 1 refused or failed, and the machine continues to run; 2 wrong usage;
3 this machine lacks something (see `dormouse doctor`).")]
pub struct SleepArgs {
    /// The NUMA node of the CXL memory: a number, or auto (the dax device in firmware's window)
    #[arg(long, default_value = "auto", value_parser = parse_node, env = "DORMOUSE_NODE")]
    pub node: NodeChoice,

    /// What saves the kernel's pages and restores them
    #[arg(long, value_enum, default_value = "auto", env = "DORMOUSE_WAY")]
    pub way: WayChoice,

    /// Threads that migrate pages (0: one for each CPU)
    #[arg(long, default_value_t = 0, env = "DORMOUSE_JOBS")]
    pub jobs: usize,

    /// When pages migrate back to DRAM after waking
    #[arg(
        long = "migrate-back",
        alias = "home",
        value_name = "WHEN",
        value_enum,
        default_value = "wait",
        env = "DORMOUSE_HOME"
    )]
    pub home: MigrateBackArgument,

    /// A cgroup (path or name) that is not frozen; may be repeated
    #[arg(
        long,
        value_name = "CGROUP",
        env = "DORMOUSE_KEEP",
        value_delimiter = ','
    )]
    pub keep: Vec<String>,

    /// Maximum seconds for freezing user space
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        env = "DORMOUSE_FREEZE_TIMEOUT"
    )]
    pub freeze_timeout: u64,

    /// Check and plan; change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Sleep even if no source states that the CXL device keeps its contents without power; the
    /// image records this
    #[arg(
        long,
        env = "DORMOUSE_ACCEPT_VOLATILE",
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub accept_volatile: bool,

    /// User pages whose contents firmware compares before it wakes the system
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "sample",
        env = "DORMOUSE_VERIFY_USER_PAGES"
    )]
    pub verify_user_pages: VerifyUserPages,

    /// Read the passphrase that seals the image from this file, `-` for standard input, instead of
    /// asking on the terminal
    #[arg(long, value_name = "FILE", env = "DORMOUSE_PASSPHRASE_FILE")]
    pub passphrase_file: Option<PathBuf>,

    /// Rate, order and output.
    #[command(flatten)]
    pub choices: MigrateBackChoices,
}

/// Migrate pages back from the CXL node to DRAM.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  dormouse migrate-back                        at full speed, with progress
  dormouse migrate-back --rate 500M            at a limited rate, while services run
  dormouse migrate-back --json

Can be stopped (Ctrl-C) and called again. Exit codes: 0 done, or stopped by a signal; 1 some pages
could not move, or it failed; 2 wrong usage; 3 this machine lacks something.")]
pub struct MigrateBackArgs {
    /// The NUMA node of the CXL memory: a number, or auto (that of the last sleep)
    #[arg(long, default_value = "auto", value_parser = parse_node, env = "DORMOUSE_NODE")]
    pub node: NodeChoice,

    /// Threads that migrate pages (0: half of the CPUs)
    #[arg(long, default_value_t = 0, env = "DORMOUSE_HOME_JOBS")]
    pub jobs: usize,

    /// Rate, order and output.
    #[command(flatten)]
    pub choices: MigrateBackChoices,
}

fn cancel_on_signals() -> Cancel {
    let cancel = Cancel::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without a handler a signal just ends us: /run/dormouse then holds what `migrate-back`
        // must thaw.
        let _ = signal_hook::flag::register(signal, cancel.0.clone());
    }
    cancel
}

fn migrate_back_options(args: &MigrateBackArgs, cancel: Cancel) -> MigrateBackOptions {
    MigrateBackOptions {
        node: args.node,
        jobs: args.jobs,
        rate_bytes_per_s: args.choices.rate,
        policy: args.choices.policy,
        cancel,
    }
}

fn sleep_options(args: &SleepArgs, cancel: Cancel) -> SleepOptions {
    let defaults = SleepOptions::default();
    let mut keep_running = defaults.keep_running;
    keep_running.extend(args.keep.iter().filter(|name| !name.is_empty()).cloned());
    SleepOptions {
        node: args.node,
        way: args.way,
        jobs: args.jobs,
        home: match args.home {
            MigrateBackArgument::Wait => MigrateBackMode::Wait,
            MigrateBackArgument::Background => MigrateBackMode::Background,
            MigrateBackArgument::Never => MigrateBackMode::Never,
        },
        migrate_back_options: MigrateBackOptions {
            rate_bytes_per_s: args.choices.rate,
            policy: args.choices.policy,
            cancel: cancel.clone(),
            ..MigrateBackOptions::default()
        },
        dry_run: args.dry_run,
        accept_volatile: args.accept_volatile,
        verify_user_pages: args.verify_user_pages,
        passphrase_file: args.passphrase_file.clone(),
        keep_running,
        freeze_timeout: Duration::from_secs(args.freeze_timeout),
        background_command: background_command(&args.choices),
        cancel,
    }
}

/// `dormouse migrate-back` with the same choices.
fn background_command(choices: &MigrateBackChoices) -> Vec<OsString> {
    let mut command: Vec<OsString> = vec!["/proc/self/exe".into(), "migrate-back".into()];
    if let Some(rate) = choices.rate {
        command.extend(["--rate".into(), rate.to_string().into()]);
    }
    let policy = choices
        .policy
        .to_possible_value()
        .expect("no policy is hidden");
    command.extend(["--policy".into(), policy.get_name().into()]);
    if let Some(file) = &choices.events {
        command.extend(["--events".into(), file.into()]);
    }
    command
}

/// Where events go: a file, and a progress line on a terminal.
struct Sink {
    writer: Option<EventWriter>,
    bar: Option<ProgressBar>,
    failed: bool,
}

impl Sink {
    fn open(choices: &MigrateBackChoices) -> Result<Sink, SleepError> {
        let writer = choices
            .events
            .as_ref()
            .map(|path| {
                EventWriter::append(path).map_err(SleepError::write(
                    "record events",
                    path.clone(),
                    "choose another --events file",
                ))
            })
            .transpose()?;
        let bar = (!choices.json && std::io::stderr().is_terminal()).then(|| {
            // Shown with the first bytes that move.
            let bar = ProgressBar::hidden();
            let style = "{msg:>12} {bar:30} {binary_bytes} of {binary_total_bytes} \
                         {binary_bytes_per_sec}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar
        });
        Ok(Sink {
            writer,
            bar,
            failed: false,
        })
    }

    fn take(&mut self, event: &Event) {
        if let Some(writer) = &mut self.writer
            && !self.failed
            && let Err(error) = writer.write(event)
        {
            // A full disk is no reason to stay awake.
            eprintln!("dormouse: events are no longer recorded: {error}");
            self.failed = true;
        }
        let Some(bar) = &self.bar else { return };
        let number = |key: &str| event.detail.get(key).and_then(Value::as_u64);
        if event.kind == Kind::Begin {
            bar.set_message(event.name.clone());
        }
        if let Some(total) = number("total_bytes") {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_length(total);
            bar.set_position(number("bytes").unwrap_or(0).min(total));
        }
        if event.kind == Kind::End {
            bar.set_message("");
        }
    }

    fn close(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Runs a verb with its events recorded.
fn with_events<T>(
    choices: &MigrateBackChoices,
    verb: impl FnOnce(&mut dyn FnMut(&Event)) -> Result<T, SleepError>,
) -> Result<T, SleepError> {
    let mut sink = Sink::open(choices)?;
    let result = verb(&mut |event| sink.take(event));
    sink.close();
    result
}

fn print_error(verb: &str, json: bool, error: &SleepError) -> u8 {
    if json {
        let mut object = json!({
            "outcome": if error.is_refusal() { "refused" } else { "failed" },
            "reason": error.reason(),
            "error": error.to_string(),
        });
        if let Some((needed, available)) = error.space_bytes() {
            object["needed_bytes"] = needed.into();
            object["available_bytes"] = available.into();
            object["owners"] = json!(error.owners());
        }
        println!("{object}");
    }
    eprintln!("dormouse {verb}: {error}");
    error.exit_code()
}

/// Runs `dormouse sleep`: prints the report (or the error) and returns the exit code.
pub fn run_sleep(args: &SleepArgs) -> u8 {
    let options = sleep_options(args, cancel_on_signals());
    match with_events(&args.choices, |events| crate::sleep(&options, events)) {
        Ok(report) if args.choices.json => {
            println!(
                "{}",
                serde_json::to_string(&report).expect("plain data serialises")
            );
            0
        }
        Ok(report) => {
            print_sleep(&report);
            0
        }
        Err(error) => print_error("sleep", args.choices.json, &error),
    }
}

/// Runs `dormouse migrate-back`: prints the report (or the error) and returns the exit code.
pub fn run_migrate_back(args: &MigrateBackArgs) -> u8 {
    let options = migrate_back_options(args, cancel_on_signals());
    match with_events(&args.choices, |events| {
        crate::migrate_back(&options, events)
    }) {
        Ok(report) => {
            if args.choices.json {
                println!(
                    "{}",
                    serde_json::to_string(&report).expect("plain data serialises")
                );
            } else {
                print_migrate_back(&report);
            }
            u8::from(!report.offline && !report.stopped)
        }
        Err(error) => print_error("migrate-back", args.choices.json, &error),
    }
}

fn print_sleep(report: &SleepReport) {
    if let Some(plan) = &report.plan {
        println!(
            "This machine can sleep in the CXL memory of node {}.",
            plan.node
        );
        println!("  user pages to migrate   {:>12}", human(plan.user_bytes));
        println!(
            "  kernel pages to save    {:>12} (about)",
            human(plan.kernel_bytes)
        );
        println!("  needed                  {:>12}", human(plan.needed_bytes));
        println!(
            "  available               {:>12}",
            human(plan.available_bytes)
        );
        println!("  processes               {:>12}", plan.processes);
        println!(
            "  keeps its contents      {} ({})",
            plan.persistence,
            plan.persistence_reasons.join("; ")
        );
        println!("  woken by                {}", plan.woken_by);
        println!("  cgroups to stop         {}", plan.freeze.join(" "));
        let names: Vec<String> = plan
            .not_frozen
            .iter()
            .map(|one| format!("{} ({})", one.name, one.pid))
            .collect();
        println!("  running until the end   {}", names.join(" "));
        return;
    }
    println!(
        "Slept and woke. Down {:.2} s: migrated {} in {:.2} s. Saved {}, restored {}.",
        report.suspend_s,
        human(report.user_bytes_migrated),
        report.migrate_s,
        human(report.saved_bytes),
        human(report.restored_bytes),
    );
    if report.pages_failed > 0 {
        println!(
            "{} pages could not move; they were saved with the kernel's.",
            report.pages_failed
        );
    }
    if !report.not_moved.is_empty() {
        println!("Stayed in DRAM: {}.", describe(&report.not_moved));
    }
    if let Some(home) = &report.home {
        print_migrate_back(home);
    }
}

fn print_migrate_back(report: &MigrateBackReport) {
    if let Some(why) = &report.warning {
        eprintln!("dormouse: which pages are hot is not known: {why}; see `dormouse doctor sleep`");
    }
    if report.offline && report.home_bytes == 0 {
        println!("All pages are in DRAM; node {} is offline.", report.node);
    } else if report.offline {
        println!(
            "Migrated {} of {} processes back in {:.2} s; node {} is offline.",
            human(report.home_bytes),
            report.processes,
            report.home_s,
            report.node
        );
    } else {
        println!(
            "{} are back in DRAM after {:.2} s, {} are left on node {}{}.",
            human(report.home_bytes),
            report.home_s,
            human(report.left_bytes),
            report.node,
            if report.stopped {
                ": stopped; run `dormouse migrate-back` to go on"
            } else {
                ": they could not move; run `dormouse migrate-back` again later"
            }
        );
    }
}

#[cfg(test)]
mod tests;
