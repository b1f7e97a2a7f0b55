//! `dormouse bandwidth` on this machine: real processes in real cgroups. The configuration assumes
//! what only a CXL device could show: the bytes per CPU second on node 0.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::{dormouse, dormouse_path};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The hierarchy with the cpu controller, and the name of its limit file.
fn hierarchy() -> (PathBuf, &'static str) {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers");
    let controllers = fs::read_to_string(v2).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "cpu") {
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
        return (PathBuf::from("/sys/fs/cgroup"), "cpu.max");
    }
    (PathBuf::from("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us")
}

/// Two programs that write to memory all the time, each in a cgroup of its own.
struct Writers {
    root: PathBuf,
    limit: &'static str,
    programs: Vec<Child>,
}

impl Writers {
    /// `None`, with a message, where no cgroup can be created (in a container).
    fn new(name: &str) -> Option<Self> {
        let script = "b = bytearray(64 << 20)\n\
                      while True:\n  for i in range(0, len(b), 4096): b[i] = 1";
        Self::of(name, [script, script])
    }

    /// The same with other Python programs.
    fn of(name: &str, scripts: [&str; 2]) -> Option<Self> {
        let (hierarchy, limit) = hierarchy();
        let root = hierarchy.join(name);
        if let Err(error) = fs::create_dir(&root) {
            eprintln!(
                "left out: no cgroup can be made here: {}: {error}",
                root.display()
            );
            return None;
        }
        // Version 2 delegates the controller on request only.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let mut writers = Self {
            root,
            limit,
            programs: Vec::new(),
        };
        for (group, script) in ["a", "b"].into_iter().zip(scripts) {
            let folder = writers.root.join(group);
            fs::create_dir_all(&folder).expect("a cgroup");
            let program = Command::new("python3")
                .args(["-c", script])
                .stdin(Stdio::null())
                .spawn()
                .expect("python3");
            let pid = program.id().to_string();
            writers.programs.push(program);
            fs::write(folder.join("cgroup.procs"), pid).expect("it moves");
        }
        Some(writers)
    }

    fn limits(&self) -> Vec<String> {
        ["a", "b"]
            .map(|group| {
                let text = fs::read_to_string(self.root.join(group).join(self.limit));
                text.expect("a limit").trim().to_owned()
            })
            .to_vec()
    }

    fn name(&self) -> std::path::Display<'_> {
        Path::new(self.root.file_name().expect("a name")).display()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        for folder in [self.root.join("a"), self.root.join("b"), self.root.clone()] {
            let deadline = Instant::now() + TIMEOUT;
            while folder.exists() && fs::remove_dir(&folder).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The events file of a daemon with this configuration.
fn events(config: &Path) -> PathBuf {
    config.with_extension("events")
}

fn reported(config: &Path, what: &str) -> bool {
    fs::read_to_string(events(config)).is_ok_and(|text| text.contains(what))
}

struct Daemon(Child);

impl Daemon {
    fn start(config: &Path) -> Self {
        let child = Command::new(dormouse_path())
            .args(["bandwidth", "run", "--config"])
            .arg(config)
            .arg("--events")
            .arg(events(config))
            .stdin(Stdio::null())
            .spawn()
            .expect("dormouse can be started");
        Self(child)
    }

    fn signal(&mut self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).expect("a PID");
        rustix::process::kill_process(pid, signal).expect("our own child");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn config(folder: &Path, cgroup: &str) -> PathBuf {
    let file = folder.join("bandwidth.toml");
    let text = format!(
        "nodes = [0]\nthreshold_gib_s = 1.0\ncgroups = [\"{cgroup}\"]\nstate = \"{}\"\n\
         [counter]\nkind = \"assumed\"\ngib_per_cpu_second = 40.0\n",
        folder.join("state").display()
    );
    fs::write(&file, text).expect("written");
    file
}

/// Two writers, and the configuration of a daemon that is to limit them.
struct Setting {
    folder: tempfile::TempDir,
    writers: Writers,
    config: PathBuf,
    /// The writers' limits.
    before: Vec<String>,
}

impl Setting {
    /// `None` as [`Writers::new`].
    fn new(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let name = format!("dormouse-test-{}-{test}", std::process::id());
        let writers = Writers::new(&name)?;
        let config = config(folder.path(), &name);
        let before = writers.limits();
        Some(Self {
            folder,
            writers,
            config,
            before,
        })
    }

    /// Whether both have another limit than before.
    fn are_limited(&self) -> bool {
        let now = self.writers.limits();
        now.iter()
            .zip(&self.before)
            .all(|(now, before)| now != before)
    }

    fn are_as_before(&self) -> bool {
        self.writers.limits() == self.before
    }
}

#[test]
fn the_heaviest_users_are_limited_and_all_limits_are_restored_at_the_end() {
    let Some(setting) = Setting::new("end") else {
        return;
    };
    let mut daemon = Daemon::start(&setting.config);
    until("both are limited", || setting.are_limited());
    let text = setting.config.to_str().expect("UTF-8");
    let top = dormouse(&["bandwidth", "top", "--once", "--json", "--config", text]);
    assert_eq!(top.code, 0, "{}", top.all());
    for group in ["a", "b"] {
        assert!(
            top.stdout
                .contains(&format!("{}/{group}", setting.writers.name())),
            "{}",
            top.all()
        );
    }
    let refused = dormouse(&["bandwidth", "undo", "--config", text]);
    assert_eq!(refused.code, 1, "while it runs: {}", refused.all());
    daemon.signal(rustix::process::Signal::TERM);
    let status = daemon.0.wait().expect("our own child");
    assert!(status.success(), "{status}");
    assert_eq!(setting.writers.limits(), setting.before);
}

#[test]
fn the_status_and_doctor_report_how_cpu_times_are_read() {
    let Some(setting) = Setting::new("times") else {
        return;
    };
    let _daemon = Daemon::start(&setting.config);
    let file = setting.folder.path().join("state/status.json");
    let cpu_times = || {
        let text = fs::read_to_string(&file).ok()?;
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        status["cpu_times"].as_str().map(str::to_owned)
    };
    until("it has a status", || cpu_times().is_some());
    let status = cpu_times().expect("it has a status");
    let config = setting.config.to_str().expect("UTF-8");
    let said = dormouse(&["bandwidth", "doctor", "--json", "--config", config]);
    let report = said.report();
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["id"] == "cpu times");
    let check = check.expect("a check");
    assert_eq!(check["needed"], false, "{check}");
    let found = check["found"].as_str().expect("text");
    match status.split_once("files: ") {
        None => assert_eq!(
            (status.as_str(), &check["ok"]),
            ("bpf", &true.into()),
            "{check}"
        ),
        Some((_, why)) => assert!(found.contains(why), "{status}: {check}"),
    }
}

#[test]
fn a_daemon_that_is_killed_leaves_no_limit_behind() {
    let Some(setting) = Setting::new("kill") else {
        return;
    };
    let mut daemon = Daemon::start(&setting.config);
    until("one is limited", || !setting.are_as_before());
    daemon.signal(rustix::process::Signal::KILL);
    let _ = daemon.0.wait();
    until("they have back what they had", || setting.are_as_before());
    let text = setting.config.to_str().expect("UTF-8");
    let undo = dormouse(&["bandwidth", "undo", "--wait", "--config", text]);
    assert_eq!(undo.code, 0, "{}", undo.all());
}

/// Writes the text of a counter that grows by 2 GiB/s until it is dropped.
struct Counting {
    end: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Counting {
    fn start(file: &Path) -> Self {
        let end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (file, stop) = (file.to_owned(), end.clone());
        let began = Instant::now();
        let write = move || {
            let bytes = began.elapsed().as_micros() * (2 << 30) / 1_000_000;
            let new = file.with_extension("new");
            fs::write(&new, format!("read write\n{bytes} 0\n")).expect("written");
            fs::rename(&new, &file).expect("replaced");
        };
        write();
        let thread = std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                write();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self {
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Changes the counter of a configuration.
fn counted_by(config: &Path, counter: &str) {
    let text = fs::read_to_string(config).expect("read");
    let (before, _) = text.split_once("[counter]").expect("a counter");
    fs::write(config, format!("{before}[counter]\n{counter}")).expect("written");
}

#[test]
fn a_counter_file_that_vanishes_lifts_all_limits_and_the_reason_is_reported() {
    let Some(setting) = Setting::new("gone") else {
        return;
    };
    let file = setting.folder.path().join("counter");
    counted_by(
        &setting.config,
        &format!("kind = \"text\"\npath = \"{}\"\n", file.display()),
    );
    let counting = Counting::start(&file);
    let _daemon = Daemon::start(&setting.config);
    until("one is limited", || !setting.are_as_before());
    drop(counting);
    fs::remove_file(&file).expect("removed");
    until("they have back what they had", || setting.are_as_before());
    until("the reason is reported", || {
        reported(&setting.config, "cannot be read") || reported(&setting.config, "stands still")
    });
    // The counter returns.
    let _counting = Counting::start(&file);
    until("one is limited again", || !setting.are_as_before());
}

#[test]
fn a_cgroup_that_vanishes_is_reported_and_no_other_is_charged_for_it() {
    let Some(mut setting) = Setting::new("rmdir") else {
        return;
    };
    let mut daemon = Daemon::start(&setting.config);
    // It goes away while both are limited: a limit that is not used would be lifted soon.
    until("it looks away while both are limited", || {
        daemon.signal(rustix::process::Signal::STOP);
        let limited = setting.are_limited();
        if !limited {
            daemon.signal(rustix::process::Signal::CONT);
        }
        limited
    });
    let mut program = setting.writers.programs.pop().expect("two programs");
    program
        .kill()
        .and_then(|()| program.wait())
        .expect("our own child");
    let gone = setting.writers.root.join("b");
    until("its cgroup goes", || fs::remove_dir(&gone).is_ok());
    daemon.signal(rustix::process::Signal::CONT);
    until("the notice", || reported(&setting.config, "is gone"));
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.0.wait().expect("our own child").success());
    let left = fs::read_to_string(setting.writers.root.join("a").join(setting.writers.limit))
        .expect("a limit");
    assert_eq!(left.trim(), setting.before[0]);
}

#[test]
fn a_limit_that_another_program_sets_outlives_the_daemon() {
    let Some(setting) = Setting::new("other") else {
        return;
    };
    let mut daemon = Daemon::start(&setting.config);
    until("both are limited", || setting.are_limited());
    let theirs = if setting.writers.limit == "cpu.max" {
        "7700 100000"
    } else {
        "7700"
    };
    fs::write(
        setting.writers.root.join("a").join(setting.writers.limit),
        theirs,
    )
    .expect("set");
    until("the daemon notices it", || {
        reported(&setting.config, "another program has set")
    });
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.0.wait().expect("our own child").success());
    assert_eq!(
        setting.writers.limits(),
        [theirs.to_owned(), setting.before[1].clone()]
    );
    assert!(reported(&setting.config, "another program has set"));
}

#[test]
fn samples_attribute_traffic_where_memory_and_cpu_time_cannot() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("dormouse-test-{}-samples", std::process::id());
    // The kernel counts and samples page faults: one program causes them all the time, the other
    // one has more memory and as much CPU time.
    let faults = "import mmap\n\
                  while True:\n  m = mmap.mmap(-1, 4 << 20)\n  \
                  for i in range(0, len(m), 4096): m[i] = 1\n  m.close()";
    let computes = "b = bytearray(64 << 20)\nwhile True: pass";
    let Some(_writers) = Writers::of(&name, [faults, computes]) else {
        return;
    };
    let config = config(folder.path(), &name);
    let text = fs::read_to_string(&config).expect("read");
    let (head, _) = text.split_once("[counter]").expect("a counter");
    let text = head.replace("= 1.0", "= 0.02")
        + "[samples]\nkind = \"page-faults\"\n\
           [counter]\nkind = \"perf\"\npmus = [[\"software\"]]\nreads = [\"minor-faults\"]\n\
           bytes_per_count = 4096\n";
    fs::write(&config, text).expect("written");
    let words = [
        "bandwidth",
        "doctor",
        "--config",
        config.to_str().expect("UTF-8"),
    ];
    let doctor = dormouse(&words);
    if doctor.stdout.contains("-- samples ") || doctor.code != 0 {
        eprintln!("left out: faults cannot be sampled here: {}", doctor.all());
        return;
    }
    let _daemon = Daemon::start(&config);
    let words = ["bandwidth", "top", "--once", "--json", "--config", words[3]];
    until("it is charged with them", || {
        let top = dormouse(&words);
        let Ok(top) = serde_json::from_str::<serde_json::Value>(&top.stdout) else {
            return false;
        };
        let gib_s = |group: &str| {
            let users = top["users"].as_array()?;
            let user = users.iter().find(|user| {
                user["cgroup"]
                    .as_str()
                    .is_some_and(|path| path.ends_with(group))
            })?;
            user["gib_s"].as_f64()
        };
        let (a, b) = (gib_s("/a"), gib_s("/b"));
        a.zip(b).is_some_and(|(a, b)| a > 0.0 && b < a / 10.0)
    });
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = config(folder.path(), "nobody");
    let text = fs::read_to_string(&file)
        .expect("read")
        .replace("[0]", "[77]");
    fs::write(&file, text).expect("written");
    let words = [
        "bandwidth",
        "doctor",
        "--config",
        file.to_str().expect("UTF-8"),
    ];
    let said = dormouse(&words);
    assert_eq!(said.code, 3, "{}", said.all());
    assert!(said.stdout.contains("77"), "{}", said.all());
}

#[test]
fn a_simulation_holds_the_threshold_and_prints_one_object() {
    let said = dormouse(&[
        "bandwidth",
        "simulate",
        "--policy",
        "none",
        "--policy",
        "fair",
        "--runs",
        "1",
        "--json",
    ]);
    assert_eq!(said.code, 0, "{}", said.all());
    let object = said.report();
    assert!(object.is_object(), "{object}");
    assert!(said.stdout.contains("fair"), "{}", said.all());
    let bad = dormouse(&["bandwidth", "simulate", "--curve", "nowhere"]);
    assert_eq!(bad.code, 1, "{}", bad.all());
    assert!(bad.stderr.contains("nowhere"), "{}", bad.all());
}

#[test]
fn a_latency_that_is_measured_finds_the_threshold() {
    let Some(setting) = Setting::new("latency") else {
        return;
    };
    // No memory answers in a nanosecond: the threshold falls from its maximum.
    let text = fs::read_to_string(&setting.config).expect("a configuration");
    let text = text.replace("threshold_gib_s = 1.0", "max_latency_ns = 1");
    fs::write(&setting.config, text).expect("written");
    let _daemon = Daemon::start(&setting.config);
    until("both are limited", || setting.are_limited());
    let path = setting.config.to_str().expect("UTF-8");
    until("the threshold follows", || {
        let top = dormouse(&["bandwidth", "top", "--once", "--json", "--config", path]);
        let status: serde_json::Value = serde_json::from_str(&top.stdout).unwrap_or_default();
        let number = |name: &str| status[name].as_f64();
        let follows = number("latency_ns").zip(number("threshold_gib_s"));
        follows.is_some_and(|(ns, gib_s)| ns > 1.0 && gib_s < 256.0)
    });
    let top = dormouse(&["bandwidth", "top", "--once", "--config", path]);
    assert!(top.stdout.contains("an access takes"), "{}", top.all());
}

#[test]
fn a_latency_curve_is_measured_and_the_simulator_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let curve = folder.path().join("curve.csv");
    let curve = curve.to_str().expect("UTF-8");
    let probe = [
        "bandwidth",
        "probe",
        "--node",
        "0",
        "--threads",
        "1",
        "--step",
        "50",
        "--json",
        "--out",
    ];
    let measured = dormouse(&[&probe[..], &[curve]].concat());
    let points: serde_json::Value = serde_json::from_str(&measured.stdout).expect("JSON");
    let points = points["points"].as_array().expect("points");
    assert!(points.len() > 2, "{}", measured.all());
    let ns = |point: &serde_json::Value| point[1].as_f64().expect("a latency");
    assert!(
        points.iter().all(|point| ns(point) > 1.0),
        "{}",
        measured.all()
    );
    // One processor may not be enough to reach the knee of this machine's memory.
    if measured.code == 1 {
        assert!(measured.stderr.contains("knee"), "{}", measured.all());
        assert!(
            !Path::new(curve).exists(),
            "what is no curve is not written"
        );
        return;
    }
    assert_eq!(measured.code, 0, "{}", measured.all());
    let simulate = [
        "bandwidth",
        "simulate",
        "--policy",
        "none",
        "--runs",
        "1",
        "--curve",
    ];
    let simulated = dormouse(&[&simulate[..], &[curve]].concat());
    assert_eq!(simulated.code, 0, "{}", simulated.all());
}

#[test]
fn a_node_that_is_not_there_cannot_be_probed() {
    let said = dormouse(&["bandwidth", "probe", "--node", "999"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains("no node 999"), "{}", said.all());
}
