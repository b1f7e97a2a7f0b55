//! `dormouse bandwidth` on this machine: real processes in real cgroups. What no machine without a
//! CXL device can tell is assumed by the configuration: what a CPU second on node 0 moves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::{dormouse, dormouse_path};

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// The hierarchy with the cpu controller, and the file of a limit in it.
fn hierarchy() -> (PathBuf, &'static str) {
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers");
    let controllers = fs::read_to_string(v2).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "cpu") {
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
        return (PathBuf::from("/sys/fs/cgroup"), "cpu.max");
    }
    (PathBuf::from("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us")
}

/// Two programs that write to memory without end, each in a cgroup of its own.
struct Writers {
    root: PathBuf,
    limit: &'static str,
    programs: Vec<Child>,
}

impl Writers {
    /// None, with a word on it, where this machine lets nobody make a cgroup (a container).
    fn new(name: &str) -> Option<Self> {
        let (hierarchy, limit) = hierarchy();
        let root = hierarchy.join(name);
        if let Err(error) = fs::create_dir(&root) {
            eprintln!(
                "left out: no cgroup can be made here: {}: {error}",
                root.display()
            );
            return None;
        }
        // Version 2 hands the controller down by order.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let mut writers = Self {
            root,
            limit,
            programs: Vec::new(),
        };
        for group in ["a", "b"] {
            let folder = writers.root.join(group);
            fs::create_dir_all(&folder).expect("a cgroup");
            let script = "b = bytearray(64 << 20)\n\
                          while True:\n  for i in range(0, len(b), 4096): b[i] = 1";
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
}

impl Drop for Writers {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        for folder in [self.root.join("a"), self.root.join("b"), self.root.clone()] {
            let deadline = Instant::now() + Duration::from_secs(5);
            while folder.exists() && fs::remove_dir(&folder).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Daemon(Child);

impl Daemon {
    fn start(config: &Path) -> Self {
        let child = Command::new(dormouse_path())
            .args(["bandwidth", "run", "--config"])
            .arg(config)
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

#[test]
fn the_heaviest_users_are_slowed_and_get_everything_back_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("dormouse-test-{}-end", std::process::id());
    let Some(writers) = Writers::new(&name) else {
        return;
    };
    let config = config(folder.path(), &name);
    let before = writers.limits();
    let mut daemon = Daemon::start(&config);
    let limited = || {
        let now = writers.limits();
        now.iter().zip(&before).all(|(now, before)| now != before)
    };
    until("both are limited", limited);
    let text = config.to_str().expect("UTF-8");
    let top = dormouse(&["bandwidth", "top", "--once", "--json", "--config", text]);
    assert_eq!(top.code, 0, "{}", top.all());
    for group in ["a", "b"] {
        assert!(
            top.stdout.contains(&format!("{name}/{group}")),
            "{}",
            top.all()
        );
    }
    let refused = dormouse(&["bandwidth", "undo", "--config", text]);
    assert_eq!(refused.code, 1, "while it runs: {}", refused.all());
    daemon.signal(rustix::process::Signal::TERM);
    let status = daemon.0.wait().expect("our own child");
    assert!(status.success(), "{status}");
    assert_eq!(writers.limits(), before);
}

#[test]
fn a_daemon_that_is_killed_leaves_no_limit_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("dormouse-test-{}-kill", std::process::id());
    let Some(writers) = Writers::new(&name) else {
        return;
    };
    let config = config(folder.path(), &name);
    let before = writers.limits();
    let mut daemon = Daemon::start(&config);
    until("one is limited", || writers.limits() != before);
    daemon.signal(rustix::process::Signal::KILL);
    let _ = daemon.0.wait();
    until("they have back what they had", || {
        writers.limits() == before
    });
    let text = config.to_str().expect("UTF-8");
    let undo = dormouse(&["bandwidth", "undo", "--wait", "--config", text]);
    assert_eq!(undo.code, 0, "{}", undo.all());
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
    let object: serde_json::Value = serde_json::from_str(&said.stdout).expect("one object");
    assert!(object.is_object(), "{object}");
    assert!(said.stdout.contains("fair"), "{}", said.all());
    let bad = dormouse(&["bandwidth", "simulate", "--curve", "nowhere"]);
    assert_eq!(bad.code, 1, "{}", bad.all());
    assert!(bad.stderr.contains("nowhere"), "{}", bad.all());
}
