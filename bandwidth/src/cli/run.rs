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
use crate::curve::GIB;
use crate::daemon::config::Config;
use crate::daemon::metrics::serve;
use crate::daemon::residence::Watcher;
use crate::daemon::status::{Passes, Schedule, Status};
use crate::daemon::{Daemon, Notice, Probe};
use crate::enforce::cgroup::{Hierarchy, cpu_hierarchy};
use crate::enforce::ledger::{Ledger, Undone, Wait};

pub fn run(arguments: &RunArguments) -> Result<u8, CliError> {
    let config = Config::read(&arguments.config)?;
    let thresholds = config.thresholds()?;
    let hierarchy = cpu_hierarchy()?;
    // Files of each cgroup stay open.
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, files) {
        tracing::warn!("the limit of open files stays low: {error}");
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
    let file = arguments.trace.as_deref();
    let (mut daemon, mut trace) = begin(&config, &thresholds, &hierarchy, file, &mut events)?;
    for (at, &threshold) in thresholds.iter().enumerate() {
        if let Some(probe) = probe(&config, at, threshold, &mut events)? {
            daemon.follow(at, probe);
        }
    }
    let guardian = guard(&arguments.config);
    let status = Arc::new(Mutex::new(Status::default()));
    if let Some(address) = config.metrics {
        let bound = serve(address, Arc::clone(&status))
            .map_err(|error| CliError::Failed(format!("{address}: {error}")))?;
        tracing::info!("metrics are served at {bound}");
    }
    let watcher = Watcher::start(hierarchy, &config);
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
            for notices in daemon.set_users(&found) {
                events.tell(&notices);
            }
        }
        let pass = daemon.pass(began.elapsed().as_nanos() as u64 + 1);
        for notices in &pass.notices {
            events.tell(notices);
        }
        counts.add(&pass, started.elapsed());
        if let Some(file) = &mut trace
            && let Err(error) =
                file.add(counts.passes, began.elapsed().as_secs_f64(), &daemon, &pass)
        {
            tracing::warn!("--trace: {error}; tracing stops");
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
        // Missed passes are skipped: only the present state matters.
        due = due.max(Instant::now());
        sleep_until(due, &stop);
    }
    drop(watcher);
    let failed = restore_limits(daemon, &mut events);
    let _ = std::fs::remove_file(config.status());
    end(guardian);
    if failed {
        return Err(CliError::Failed(
            "not every limit could be restored; run `dormouse bandwidth undo`".to_owned(),
        ));
    }
    Ok(DONE)
}

/// The daemon, and the file of its trace.
fn begin(
    config: &Config,
    thresholds: &[f64],
    hierarchy: &Hierarchy,
    trace: Option<&Path>,
    events: &mut Events,
) -> Result<(Daemon, Option<Trace>), CliError> {
    let (daemon, undone) = Daemon::new(config.clone(), thresholds, hierarchy.clone())?;
    for undone in &undone {
        tracing::warn!("left by an earlier run: {}", describe(undone));
        events.mark("undone", &describe(undone));
    }
    match daemon.reads_at_once() {
        Ok(()) => tracing::info!("a BPF program reads users' CPU times"),
        Err(why) => tracing::info!("users' CPU times are read file by file: {why}"),
    }
    // Only with the ledger: another daemon may be writing to the same file.
    let trace = trace.map(Trace::create).transpose()?;
    Ok((daemon, trace))
}

/// The latency probe of a device, if configured. Where latency cannot be measured, the configured threshold or
/// curve applies.
fn probe(
    config: &Config,
    at: usize,
    threshold: f64,
    events: &mut Events,
) -> Result<Option<Probe>, CliError> {
    let device = &config.devices[at];
    let error = match Probe::of(config, device, threshold) {
        Ok(probe) => return Ok(probe),
        Err(error) if device.has_threshold() => error,
        Err(error) => return Err(error.into()),
    };
    let what = format!(
        "{}: latency cannot be measured: {error}; the threshold stays at {:.2} GiB/s",
        device.name,
        threshold / GIB
    );
    tracing::warn!("{what}");
    events.mark("no-latency", &what);
    Ok(None)
}

/// Returns whether a limit could not be restored.
fn restore_limits(daemon: Daemon, events: &mut Events) -> bool {
    let undone = daemon.finish();
    for undone in &undone {
        tracing::info!("{}", describe(undone));
        events.mark("undone", &describe(undone));
    }
    undone.iter().any(|one| matches!(one, Undone::Failed(..)))
}

/// Sleeps in short pieces, so that a signal takes effect soon.
fn sleep_until(due: Instant, stop: &AtomicBool) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Starts a process that restores all limits when this one ends for any reason. It waits for the
/// ledger's lock, which the kernel releases with its owner.
fn guard(config: &Path) -> Option<Child> {
    let program = std::env::current_exe().ok()?;
    let child = Command::new(program)
        .args(["bandwidth", "undo", "--wait", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // A signal to this process group must not end the guardian.
        .process_group(0)
        .spawn();
    child
        .map_err(|error| tracing::warn!("the guardian process cannot be started: {error}"))
        .ok()
}

/// The ledger is free now: the guardian finds nothing to do and ends.
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
        text.push_str(&describe(undone));
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

/// A description for messages.
fn describe(undone: &Undone) -> String {
    let limit = |max: &crate::enforce::cgroup::Max| match max.cpu() {
        Some(cpu) => format!("{cpu:.3} CPUs"),
        None => "no limit".to_owned(),
    };
    match undone {
        Undone::Restored(path, max) => format!("{}: restored: {}", path.display(), limit(max)),
        Undone::Reset(path, value) => format!("{}: restored: {value}", path.display()),
        Undone::Kept(path, value) => format!(
            "{}: left at {value}, which another program has set",
            path.display()
        ),
        Undone::Gone(path) => format!("{}: is gone", path.display()),
        Undone::LeftAlone(path, max) => format!(
            "{}: left at {}, which another program has set",
            path.display(),
            limit(max)
        ),
        Undone::Failed(path, why) => format!("{}: {why}", path.display()),
    }
}

/// Writes to the log and to the events file.
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
            tracing::warn!("--events: {error}; writing events stops");
            self.writer = None;
        }
    }

    fn tell(&mut self, notices: &Notice) {
        let (name, what) = match notices {
            Notice::Fault(node, fault) => (
                "counter-fault",
                format!("the counter of node {node} {}", fault.as_str()),
            ),
            Notice::Recovered(node) => (
                "counter-recovered",
                format!("the counter of node {node} is valid again"),
            ),
            Notice::Counter(what) => ("counter", what.clone()),
            Notice::Samples(node, true) => (
                "samples",
                format!("node {node}: samples attribute its traffic"),
            ),
            Notice::Samples(node, false) => (
                "no-samples",
                format!(
                    "node {node}: there are no samples; CPU time and resident memory attribute its \
                     traffic"
                ),
            ),
            Notice::Sampled(what) => ("samples", what.clone()),
            Notice::NoSamples(why) => (
                "no-samples",
                format!("{why}; CPU time and resident memory attribute the traffic"),
            ),
            Notice::Derated {
                device,
                latency_ns,
                expected_ns,
                total,
                threshold,
            } => (
                "derated",
                format!(
                    "{device}: an access takes {latency_ns:.0} ns instead of {expected_ns:.0} at {:.2} GiB/s: the \
                     device carries less than when its curve was measured or the threshold was \
                     chosen. The threshold is {:.2} GiB/s now and follows. `dormouse bandwidth \
                     probe` measures the curve anew",
                    total / GIB,
                    threshold / GIB
                ),
            ),
            Notice::Fits(device) => (
                "fits",
                format!(
                    "{device}: the configured threshold is in force again: accesses are as fast as \
                     expected"
                ),
            ),
            Notice::Lifted(device) => (
                "lifted",
                format!(
                    "{device}: all its limits were lifted: traffic cannot be attributed without \
                     counters"
                ),
            ),
            Notice::Annotation(why) => ("annotation", why.clone()),
            Notice::Tiering(why) => ("tiering", why.clone()),
            Notice::Foreign(path) => (
                "foreign-limit",
                format!(
                    "{}: another program has set a limit; it stays",
                    path.display()
                ),
            ),
            Notice::Gone(path) => ("gone", format!("{}: is gone", path.display())),
            Notice::Ejected(exit_record) => (
                "ejected",
                format!(
                    "the kernel ended the scheduler: {exit_record}; quotas hold the limits now"
                ),
            ),
            Notice::Failed(path, why) => ("failed", format!("{}: {why}", path.display())),
        };
        match notices {
            Notice::Recovered(_) | Notice::Gone(_) | Notice::Samples(_, true) => {
                tracing::info!("{what}")
            }
            _ => tracing::warn!("{what}"),
        }
        self.mark(name, &what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::cgroup::Version;

    fn config(folder: &Path, thresholds: &str) -> Config {
        let file = folder.join("bandwidth.toml");
        let text = format!(
            "nodes = [999]\n{thresholds}\ncgroups = [\"a\"]\nstate = \"{}\"\n\
             [counter]\nkind = \"text\"\npath = \"/nowhere\"\n",
            folder.display()
        );
        std::fs::write(&file, text).unwrap();
        Config::read(&file).unwrap()
    }

    #[test]
    fn a_daemon_that_cannot_begin_leaves_the_trace_of_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "threshold_gib_s = 1.0");
        let hierarchy = Hierarchy {
            root: folder.path().join("cgroup"),
            version: Version::V2,
        };
        let trace = folder.path().join("trace.tsv");
        std::fs::write(&trace, "another's\n").unwrap();
        let mut events = Events::open(None).unwrap();
        let mut begin = || begin(&config, &[GIB], &hierarchy, Some(&trace), &mut events);
        let (ledger, _) = Ledger::open(&config.ledger(), Wait::Briefly).unwrap();
        assert!(begin().is_err());
        let kept = || std::fs::read_to_string(&trace).unwrap();
        assert_eq!(kept(), "another's\n");
        drop(ledger);
        let begun = begin().unwrap();
        drop(begun);
        assert!(kept().starts_with("pass\t"), "{}", kept());
    }

    #[test]
    fn a_latency_that_cannot_be_measured_is_no_failure_beside_a_threshold() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("events");
        let mut events = Events::open(Some(&log)).unwrap();
        let mut probe = |thresholds| probe(&config(folder.path(), thresholds), 0, GIB, &mut events);
        let both = "max_latency_ns = 600\nthreshold_gib_s = 1.0";
        assert!(probe(both).unwrap().is_none());
        let said = probe("max_latency_ns = 600").unwrap_err().to_string();
        assert!(said.contains("no node 999"), "{said}");
        assert!(probe("threshold_gib_s = 1.0").unwrap().is_none());
        drop(events);
        let told = std::fs::read_to_string(log).unwrap();
        assert_eq!(told.matches("no-latency").count(), 1, "{told}");
        assert!(told.contains("1.00 GiB/s"), "{told}");
    }
}
