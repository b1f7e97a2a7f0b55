//! The time of passes of the daemon, including reading and writing: real processes, each in a
//! cgroup of its own, under the code of `dormouse bandwidth run`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dormouse_bandwidth::daemon::Daemon;
use dormouse_bandwidth::daemon::config::Config;
use dormouse_bandwidth::daemon::residence::Watcher;
use dormouse_bandwidth::daemon::status::{Passes, Schedule, Status};
use dormouse_bandwidth::enforce::cgroup::{Hierarchy, cpu_hierarchy};
use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{Better, row, with_bar};
use serde_json::Value;

use super::cgroups::{self, Tasks};

const TASKS: [usize; 3] = [10, 100, 1000];
const SECONDS: u64 = 20;
const LITTLE: Duration = Duration::from_micros(20);
/// The error of an interrupted measurement.
pub const INTERRUPTED: &str = "interrupted";
const PAUSE: Duration = Duration::from_millis(50);

/// Passes with this number of tasks.
pub struct Whole {
    pub tasks: usize,
    pub times_ms: Summary,
    /// CPU time of each pass.
    pub cpu_ms: Summary,
    /// CPU time of all of the daemon's threads, in percent of a core.
    pub cpu_percent: f64,
    pub writes_per_pass: f64,
}

/// The loop of one task, while its parent lives.
pub fn task(busy: bool) -> ! {
    let ends = Some(rustix::process::Signal::KILL);
    if rustix::process::set_parent_process_death_signal(ends).is_err() {
        std::process::exit(1);
    }
    loop {
        let began = Instant::now();
        while began.elapsed() < LITTLE {
            std::hint::spin_loop();
        }
        if !busy {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Passes with 10, 100 and 1,000 tasks, or with one number of them; an error is a message.
pub fn measure(only: Option<usize>) -> Result<Vec<Whole>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals: {error}"))?;
    }
    let hierarchy = cpu_hierarchy().map_err(|error| error.to_string())?;
    for left in cgroups::remove_leftovers(&hierarchy) {
        eprintln!("bench: removed {}, left by an earlier run", left.display());
    }
    let mut all = Vec::new();
    for tasks in only.map_or(TASKS.to_vec(), |only| vec![only]) {
        eprintln!("bench: passes of the daemon over {tasks} tasks");
        let one = of(tasks, &hierarchy, &stop);
        // The signal also ended the tasks: their errors are no failures.
        if stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED.to_owned());
        }
        let one = one?;
        eprintln!(
            "bench: {:.3} ms a pass, CPU time {:.3} ms, {:.2} % of a core",
            one.times_ms.median, one.cpu_ms.median, one.cpu_percent
        );
        all.push(one);
    }
    Ok(all)
}

fn of(count: usize, hierarchy: &Hierarchy, stop: &AtomicBool) -> Result<Whole, String> {
    let tasks = Tasks::new(hierarchy, count)?;
    // In memory, as the daemon of a unit has it in /run.
    let state = Path::new("/dev/shm").join(&tasks.name);
    let file = state.join("bandwidth.toml");
    let text = format!(
        "nodes = [0]\nthreshold_gib_s = 1.0\ncgroups = [\"{}\"]\nstate = \"{}\"\n\
         [counter]\nkind = \"assumed\"\ngib_per_cpu_second = 10.0\n",
        tasks.name,
        state.display()
    );
    fs::create_dir_all(&state)
        .and_then(|()| fs::write(&file, text))
        .map_err(|e| e.to_string())?;
    let config = Config::read(&file).map_err(|error| error.to_string())?;
    let thresholds = config.thresholds().map_err(|error| error.to_string())?;
    // The tasks load their program and settle.
    std::thread::sleep(Duration::from_secs(2));
    let (mut daemon, _) =
        Daemon::new(config.clone(), &thresholds, hierarchy.clone()).map_err(|e| e.to_string())?;
    let watcher = Watcher::start(hierarchy.clone(), &config);
    let mut cpu_ms = Vec::new();
    let (mut generation, mut times, mut writes) = (0, Vec::new(), 0);
    let (mut passes, mut schedule) = (Passes::default(), Schedule::default());
    let began = Instant::now();
    let mut counted: Option<(Instant, Duration)> = None;
    while began.elapsed() < Duration::from_secs(SECONDS) {
        if stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED.to_owned());
        }
        let started = Instant::now();
        let cpu = thread();
        if let Some(found) = watcher.newer(generation) {
            generation = found.generation;
            daemon.set_users(&found);
        }
        let pass = daemon.pass(began.elapsed().as_nanos() as u64 + 1);
        if began.elapsed() > Duration::from_secs(5) {
            counted.get_or_insert_with(|| (Instant::now(), used()));
            cpu_ms.push((thread() - cpu).as_secs_f64() * 1000.0);
            times.push(started.elapsed().as_secs_f64() * 1000.0);
            writes += pass.writes;
        }
        passes.add(&pass, started.elapsed());
        if schedule.is_due() {
            let began = Instant::now();
            let status = Status::of(&daemon, &pass, &passes);
            status.write(&config.status()).map_err(|e| e.to_string())?;
            schedule.done(began);
        }
        std::thread::sleep(daemon.interval().saturating_sub(started.elapsed()));
    }
    let (since, before) = counted.ok_or("no pass was timed")?;
    let share = (used() - before).as_secs_f64() / since.elapsed().as_secs_f64();
    drop(watcher);
    daemon.finish();
    let passes = times.len();
    let _ = fs::remove_dir_all(&state);
    Ok(Whole {
        tasks: count,
        times_ms: Summary::of(times).ok_or("no pass was timed")?,
        cpu_ms: Summary::of(cpu_ms).ok_or("no pass was timed")?,
        cpu_percent: share * 100.0,
        writes_per_pass: writes as f64 / passes as f64,
    })
}

/// CPU time of this process so far.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of this thread so far.
fn thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub fn rows(whole: &[Whole]) -> Vec<Value> {
    let mut rows = Vec::new();
    for one in whole {
        let case = format!("{} tasks", one.tasks);
        let row = |metric, unit, value: &Summary, peer, goal| {
            let row = row(metric, &case, unit, Better::Less, value, Err(peer));
            match one.tasks {
                1000 => with_bar(row, Better::Less, goal),
                _ => row,
            }
        };
        let peer = "the loop of Kämmerer 2025 takes 30.8 ms";
        rows.push(row(
            "CPU time of a pass of the daemon",
            "ms",
            &one.cpu_ms,
            peer,
            2.0,
        ));
        rows.push(row("a pass of the daemon", "ms", &one.times_ms, peer, 2.0));
        if let Some(percent) = Summary::of([one.cpu_percent]) {
            let peer = "the loop of Kämmerer 2025 takes 9 %";
            rows.push(row(
                "the daemon's share of a core",
                "%",
                &percent,
                peer,
                0.5,
            ));
        }
    }
    rows
}
