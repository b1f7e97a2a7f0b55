//! The time that passes of the daemon take here, reading and writing included: real processes, each
//! in a cgroup of its own, looked at and limited by the code that `dormouse bandwidth run` runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_bandwidth::daemon::Daemon;
use dormouse_bandwidth::daemon::config::Config;
use dormouse_bandwidth::daemon::residence::Watcher;
use dormouse_bandwidth::enforce::cgroup::{Hierarchy, Version};
use dormouse_bandwidth::enforce::meter::accounting_root;
use dormouse_report::stats::Summary;
use dormouse_tests::bench::rows::{Better, row, with_bar};
use serde_json::Value;

const TASKS: [usize; 3] = [10, 100, 1000];
/// That compute all the time; the others do a little every 50 ms.
const BUSY: usize = 2;
const SECONDS: u64 = 20;
const LITTLE: Duration = Duration::from_micros(20);
const PAUSE: Duration = Duration::from_millis(50);

/// Passes over so many tasks.
pub struct Whole {
    pub tasks: usize,
    pub times_ms: Summary,
    /// CPU time of each.
    pub cpu_ms: Summary,
    /// Of a core, of all of the daemon's threads.
    pub cpu_percent: f64,
    pub writes_per_pass: f64,
}

/// What one of the tasks does, for ever.
pub fn task(busy: bool) -> ! {
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

/// Passes over 10, 100 and 1,000 tasks; in words, why not.
pub fn measure() -> Result<Vec<Whole>, String> {
    let mut all = Vec::new();
    for tasks in TASKS {
        eprintln!("bench: passes of the daemon over {tasks} tasks");
        let one = of(tasks)?;
        eprintln!(
            "bench: {:.3} ms a pass, CPU time {:.3} ms, {:.2} % of a core",
            one.times_ms.median, one.cpu_ms.median, one.cpu_percent
        );
        all.push(one);
    }
    Ok(all)
}

/// Cgroups with a task each, which end with this.
struct Tasks {
    roots: Vec<PathBuf>,
    name: String,
    count: usize,
    children: Vec<Child>,
}

impl Tasks {
    fn new(hierarchy: &Hierarchy, count: usize) -> Result<Self, String> {
        // Version 1 may account for CPU time elsewhere; tasks are moved there as well.
        let other = accounting_root().filter(|root| *root != hierarchy.root);
        let other = other.filter(|_| hierarchy.version == Version::V1);
        let mut tasks = Self {
            roots: std::iter::once(hierarchy.root.clone())
                .chain(other)
                .collect(),
            name: format!("dormouse-bench-{}", std::process::id()),
            count,
            children: Vec::new(),
        };
        tasks
            .start()
            .map_err(|error| format!("cgroups cannot be made here: {error}"))?;
        Ok(tasks)
    }

    fn start(&mut self) -> std::io::Result<()> {
        for root in &self.roots {
            fs::create_dir(root.join(&self.name))?;
            let _ = fs::write(root.join(&self.name).join("cgroup.subtree_control"), "+cpu");
        }
        let program = std::env::current_exe()?;
        for at in 0..self.count {
            let kind = if at < BUSY { "busy" } else { "little" };
            let child = Command::new("nice")
                .args(["-n", "19"])
                .arg(&program)
                .args(["--task", kind])
                .stdin(Stdio::null())
                .spawn()?;
            let pid = child.id().to_string();
            self.children.push(child);
            for root in &self.roots {
                let folder = root.join(&self.name).join(at.to_string());
                fs::create_dir(&folder)?;
                fs::write(folder.join("cgroup.procs"), &pid)?;
            }
        }
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        for root in &self.roots {
            let root = root.join(&self.name);
            let below = (0..self.count).map(|at| root.join(at.to_string()));
            for folder in below.chain([root.clone()]) {
                while folder.exists()
                    && fs::remove_dir(&folder).is_err()
                    && Instant::now() < deadline
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}

fn of(count: usize) -> Result<Whole, String> {
    let hierarchy = Hierarchy::find().map_err(|error| error.to_string())?;
    let tasks = Tasks::new(&hierarchy, count)?;
    let state = std::env::temp_dir().join(&tasks.name);
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
    let threshold = config.threshold().map_err(|error| error.to_string())?;
    // They load their program and come to rest.
    std::thread::sleep(Duration::from_secs(2));
    let (mut daemon, _) =
        Daemon::new(config.clone(), threshold, hierarchy.clone()).map_err(|e| e.to_string())?;
    let watcher = Watcher::start(hierarchy, config.cgroups.clone(), config.nodes.clone());
    let mut cpu_ms = Vec::new();
    let (mut generation, mut times, mut writes) = (0, Vec::new(), 0);
    let began = Instant::now();
    let mut counted: Option<(Instant, Duration)> = None;
    while began.elapsed() < Duration::from_secs(SECONDS) {
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
        let peer = "the seed's loop takes 30.8 ms";
        rows.push(row(
            "CPU time of a pass of the daemon",
            "ms",
            &one.cpu_ms,
            peer,
            2.0,
        ));
        rows.push(row("a pass of the daemon", "ms", &one.times_ms, peer, 2.0));
        if let Some(percent) = Summary::of([one.cpu_percent]) {
            let peer = "the seed's takes 9 %";
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
