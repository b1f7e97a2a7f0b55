//! `dormouse bandwidth run` and `undo`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dormouse_report::event::{Clock, Event, EventWriter, Kind};
use dormouse_report::output;

use super::arguments::{RunArguments, UndoArguments};
use super::trace::Trace;
use super::{CliError, DONE};
use crate::daemon::config::Config;
use crate::daemon::metrics::serve;
use crate::daemon::residence::Watcher;
use crate::daemon::status::{Passes, Schedule, Status};
use crate::daemon::{Daemon, News, Probe};
use crate::enforce::cgroup::Hierarchy;
use crate::enforce::ledger::{Ledger, Undone, Wait};

pub fn run(arguments: &RunArguments) -> Result<u8, CliError> {
    let config = Config::read(&arguments.config)?;
    let threshold = config.threshold()?;
    let hierarchy = Hierarchy::find()?;
    // Files of each cgroup stay open.
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, files) {
        tracing::warn!("only few files may be open: {error}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| CliError::Failed(format!("signals: {error}")))?;
    }
    let mut events = Events::open(arguments.events.as_deref())?;
    let mut trace = arguments.trace.as_deref().map(Trace::create).transpose()?;
    let (mut daemon, undone) = Daemon::new(config.clone(), threshold, hierarchy.clone())?;
    if let Some(probe) = Probe::of(&config, threshold)? {
        daemon.follow(probe);
    }
    for undone in &undone {
        tracing::warn!("left by an earlier run: {}", told(undone));
        events.mark("undone", &told(undone));
    }
    let guardian = guard(&arguments.config);
    let status = Arc::new(Mutex::new(Status::default()));
    if let Some(address) = config.metrics {
        let bound = serve(address, Arc::clone(&status))
            .map_err(|error| CliError::Failed(format!("{address}: {error}")))?;
        tracing::info!("Prometheus may ask {bound}");
    }
    let watcher = Watcher::start(hierarchy, config.cgroups.clone(), config.nodes.clone());
    let began = Instant::now();
    let ends = arguments.seconds.map(Duration::from_secs);
    let mut generation = 0;
    let mut writes = Schedule::default();
    let mut counts = Passes::default();
    let mut due = began;
    while !stop.load(Ordering::Relaxed) && ends.is_none_or(|ends| began.elapsed() < ends) {
        let started = Instant::now();
        if let Some(found) = watcher.newer(generation) {
            generation = found.generation;
            for news in daemon.set_users(&found) {
                events.tell(&news);
            }
        }
        let pass = daemon.pass(began.elapsed().as_nanos() as u64 + 1);
        for news in &pass.news {
            events.tell(news);
        }
        counts.add(&pass, started.elapsed());
        if let Some(file) = &mut trace
            && let Err(error) =
                file.add(counts.passes, began.elapsed().as_secs_f64(), &daemon, &pass)
        {
            tracing::warn!("--trace: {error}; it ends here");
            trace = None;
        }
        if writes.is_due() {
            let began = Instant::now();
            let now = Status::of(&daemon, &pass, &counts);
            if let Err(error) = now.write(&config.status()) {
                tracing::warn!("{}: {error}", config.status().display());
            }
            if let Ok(mut status) = status.lock() {
                *status = now;
            }
            writes.done(began);
        }
        due += daemon.interval();
        // After a delay passes are not made up for: there is one state only, the present one.
        due = due.max(Instant::now());
        sleep_until(due, &stop);
    }
    drop(watcher);
    let failed = give_back(daemon, &mut events);
    let _ = std::fs::remove_file(config.status());
    end(guardian);
    if failed {
        return Err(CliError::Failed(
            "not every limit could be given back; `dormouse bandwidth undo` tries again".to_owned(),
        ));
    }
    Ok(DONE)
}

/// Returns whether anything could not be given back.
fn give_back(daemon: Daemon, events: &mut Events) -> bool {
    let undone = daemon.finish();
    for undone in &undone {
        tracing::info!("{}", told(undone));
        events.mark("undone", &told(undone));
    }
    undone.iter().any(|one| matches!(one, Undone::Failed(..)))
}

/// Sleeps in pieces, so that a signal is heeded soon.
fn sleep_until(due: Instant, stop: &AtomicBool) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// A process that undoes everything as soon as this one is gone, however it went. It waits for the
/// ledger's lock, which the kernel releases with the last breath of its owner.
fn guard(config: &Path) -> Option<Child> {
    let program = std::env::current_exe().ok()?;
    let child = Command::new(program)
        .args(["bandwidth", "undo", "--wait", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // What ends this process's group need not end the guardian.
        .process_group(0)
        .spawn();
    child
        .map_err(|error| tracing::warn!("nobody watches over this daemon: {error}"))
        .ok()
}

/// The ledger is free now: the guardian finds nothing to do, and ends.
fn end(guardian: Option<Child>) {
    if let Some(mut child) = guardian {
        let _ = child.wait();
    }
}

pub fn undo(arguments: &UndoArguments) -> Result<u8, CliError> {
    let config = Config::read(&arguments.config)?;
    let wait = if arguments.wait {
        Wait::Forever
    } else {
        Wait::Briefly
    };
    let (ledger, undone) = Ledger::open(&config.ledger(), wait)?;
    drop(ledger);
    let mut text = String::new();
    for undone in &undone {
        text.push_str(&told(undone));
        text.push('\n');
    }
    if undone.is_empty() {
        text.push_str("nothing to undo\n");
    }
    output::text(&text)?;
    if undone.iter().any(|one| matches!(one, Undone::Failed(..))) {
        return Err(CliError::Failed("something could not be undone".to_owned()));
    }
    Ok(DONE)
}

/// In words.
fn told(undone: &Undone) -> String {
    let limit = |max: &crate::enforce::cgroup::Max| match max.cpu() {
        Some(cpu) => format!("{cpu:.3} CPUs"),
        None => "no limit".to_owned(),
    };
    match undone {
        Undone::Restored(path, max) => format!("{}: as it was: {}", path.display(), limit(max)),
        Undone::Gone(path) => format!("{}: is gone", path.display()),
        Undone::LeftAlone(path, max) => format!(
            "{}: left at {}, which somebody else has set",
            path.display(),
            limit(max)
        ),
        Undone::Failed(path, why) => format!("{}: {why}", path.display()),
    }
}

/// Log and events at once.
struct Events {
    writer: Option<EventWriter>,
    began: Instant,
}

impl Events {
    fn open(path: Option<&Path>) -> Result<Self, CliError> {
        let writer = path.map(EventWriter::append).transpose();
        let writer = writer.map_err(|error| CliError::Failed(format!("--events: {error}")))?;
        Ok(Self {
            writer,
            began: Instant::now(),
        })
    }

    fn mark(&mut self, name: &str, what: &str) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let t_ns = self.began.elapsed().as_nanos() as u64;
        let event = Event::new(t_ns, Clock::Host, "bandwidth", name, Kind::Mark).with("what", what);
        if let Err(error) = writer.write(&event) {
            tracing::warn!("--events: {error}; no more of them are written");
            self.writer = None;
        }
    }

    fn tell(&mut self, news: &News) {
        let (name, what) = match news {
            News::Fault(node, fault) => (
                "counter-fault",
                format!("the counter of node {node} {}", fault.as_str()),
            ),
            News::Recovered(node) => (
                "counter-recovered",
                format!("the counter of node {node} can be believed again"),
            ),
            News::Counter(what) => ("counter", what.clone()),
            News::Samples(node, true) => (
                "samples",
                format!("node {node}: samples tell whose its traffic is"),
            ),
            News::Samples(node, false) => (
                "no-samples",
                format!(
                    "node {node}: nothing is sampled any more; CPU time and resident memory tell \
                     whose its traffic is"
                ),
            ),
            News::Sampled(what) => ("samples", what.clone()),
            News::NoSamples(why) => (
                "no-samples",
                format!("{why}; CPU time and resident memory tell whose traffic is"),
            ),
            News::Lifted => (
                "lifted",
                "all limits were lifted: without counters nobody can be judged".to_owned(),
            ),
            News::Foreign(path) => (
                "foreign-limit",
                format!(
                    "{}: somebody else has set a limit; it is respected",
                    path.display()
                ),
            ),
            News::Gone(path) => ("gone", format!("{}: is gone", path.display())),
            News::Ejected(ended) => (
                "ejected",
                format!("the kernel ended the scheduler: {ended}; quotas hold the limits now"),
            ),
            News::Failed(path, why) => ("failed", format!("{}: {why}", path.display())),
        };
        match news {
            News::Recovered(_) | News::Gone(_) | News::Samples(_, true) => tracing::info!("{what}"),
            _ => tracing::warn!("{what}"),
        }
        self.mark(name, &what);
    }
}
