//! Real programs under `dormouse process run`: persisted in the middle of their work, killed
//! together with their tracker, and restored by the same command.
//!
//! The tests run on this machine's own kernel, and need root (or the capabilities named in
//! docs/explanation/process-restore.md).

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse_tests::alone::{Beside, beside};
use dormouse_tests::processes::{tracker_of, with_descendants};
use dormouse_tests::{dormouse, dormouse_path};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A program with its tracker, its directory, its store and its output.
struct Tracked {
    directory: TempDir,
    command: Vec<String>,
    tracker: Option<Child>,
    _beside: Beside,
}

impl Tracked {
    fn new(command: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let beside = beside();
        // What dies leaves its children to us, as to an init.
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
            .expect("the kernel lets us adopt");
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let command = command(directory.path());
        let mut tracked = Self {
            directory,
            command,
            tracker: None,
            _beside: beside,
        };
        tracked.run();
        tracked
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command that starts the program, or restores it.
    fn run(&mut self) {
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("output"))
            .expect("output");
        let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let store = self.path("store");
        let tracker = Command::new(dormouse_path())
            .args(["process", "run", "it", "--on-power-loss", "none", "--store"])
            .arg(store)
            .arg("--")
            .args(words)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a copy"))
            .stderr(output)
            .spawn()
            .expect("the tracker");
        self.tracker = Some(tracker);
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap_or_default()
    }

    fn wait_for(&mut self, file: &str, word: &str) {
        let started = Instant::now();
        while !fs::read_to_string(self.path(file))
            .unwrap_or_default()
            .contains(word)
        {
            let tracker = self.tracker.as_mut().expect("a tracker");
            let ended = tracker.try_wait().expect("its state");
            assert!(
                started.elapsed() < WAIT_MAX && ended.is_none(),
                "no {word:?} in {file}, the tracker: {ended:?}; {}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn started(&self) -> i32 {
        self.tracker.as_ref().expect("a tracker").id() as i32
    }

    /// All processes under the tracker.
    fn processes(&self) -> Vec<i32> {
        let tracker = tracker_of(self.started());
        let mut all = with_descendants(vec![tracker]);
        all.retain(|&pid| pid != tracker);
        all.sort_unstable();
        all
    }

    /// The program is safe, and does nothing any more.
    fn persist(&self) {
        let store = self.path("store");
        let store = store.to_str().expect("a path in UTF-8");
        let said = dormouse(&[
            "process", "persist", "it", "--store", store, "--then", "stop",
        ]);
        assert_eq!(said.code, 0, "{}\n{}", said.all(), self.output());
    }

    /// Power fails: the tracker and all processes are gone at once.
    fn cut(&mut self) {
        // The tracker, where it is a child of what was started, ends with that.
        let mut processes = self.processes();
        processes.extend(Some(tracker_of(self.started())).filter(|pid| *pid != self.started()));
        let mut tracker = self.tracker.take().expect("a tracker");
        tracker.kill().expect("it can be killed");
        tracker.wait().expect("its end");
        for &pid in &processes {
            let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let started = Instant::now();
        for &pid in &processes {
            while Path::new(&format!("/proc/{pid}")).exists() {
                let number = rustix::process::Pid::from_raw(pid);
                let _ = rustix::process::waitpid(number, rustix::process::WaitOptions::NOHANG);
                assert!(started.elapsed() < WAIT_MAX, "process {pid} does not die");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Whether the tracker answers, as it does once all processes of its program are there.
    fn is_running(&self) -> bool {
        let store = self.path("store");
        let store = store.to_str().expect("a path in UTF-8");
        let said = dormouse(&["process", "status", "it", "--store", store, "--json"]);
        said.code == 0 && said.report()["tracker"]["program"] == "running"
    }

    /// Persist, cut, restore. The program runs again, or has ended since.
    fn through_power_loss(&mut self) {
        self.persist();
        self.cut();
        self.run();
        let started = Instant::now();
        // Not until each of its processes is seen: one that had only milliseconds to go ends before
        // anybody looks.
        while !self.is_running() {
            assert!(
                started.elapsed() < WAIT_MAX,
                "not restored: {}",
                self.output()
            );
            let ended = self
                .tracker
                .as_mut()
                .expect("a tracker")
                .try_wait()
                .expect("its state");
            // A short program may have ended already.
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The program ends by itself, and well.
    fn assert_good_end(&mut self) {
        let started = Instant::now();
        let tracker = self.tracker.as_mut().expect("a tracker");
        loop {
            if let Some(status) = tracker.try_wait().expect("its state") {
                assert!(status.success(), "{status}: {}", self.output());
                return;
            }
            assert!(
                started.elapsed() < WAIT_MAX,
                "it does not end: {}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.tracker.is_some() {
            self.cut();
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Compiles a program that checks itself: it says "ready", waits for a file "go", and ends with 0
/// if all is right.
fn checks_itself(source: &str) {
    let mut tracked = Tracked::new(|directory| {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../process/tests/programs");
        let compiler = if source.ends_with("cpp") {
            "g++"
        } else {
            "gcc"
        };
        let program = directory.join("program");
        let status = Command::new(compiler)
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(programs.join(source))
            .status()
            .expect("a compiler");
        assert!(status.success(), "{source} does not compile");
        vec![program.to_string_lossy().into_owned()]
    });
    tracked.wait_for("output", "ready");
    tracked.through_power_loss();
    fs::write(tracked.path("go"), "").expect("go");
    tracked.assert_good_end();
}

#[test]
fn every_kind_of_open_file_survives_power_loss() {
    checks_itself("files.c");
}

#[test]
fn threads_with_vector_registers_and_futexes_survive_power_loss() {
    checks_itself("vectors.cpp");
}

#[test]
fn a_tree_of_twenty_processes_survives_power_loss() {
    checks_itself("family.c");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

fn connect(port: u16, tracked: &Tracked) -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => {
                assert!(
                    started.elapsed() < WAIT_MAX,
                    "{error}: {}",
                    tracked.output()
                );
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Writes one key after the other until the connection breaks, and notes what was acknowledged.
fn write_keys(port: u16, acknowledged: &AtomicU64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut answer = String::new();
    loop {
        let next = acknowledged.load(Ordering::SeqCst) + 1;
        stream.write_all(format!("SET key:{next} value:{next}\r\n").as_bytes())?;
        answer.clear();
        answers.read_line(&mut answer)?;
        if answer != "+OK\r\n" {
            return Err(std::io::Error::other(answer));
        }
        acknowledged.store(next, Ordering::SeqCst);
    }
}

/// How often power fails under redis: `DORMOUSE_TEST_CUTS`, or 50.
fn cuts() -> u64 {
    std::env::var("DORMOUSE_TEST_CUTS")
        .ok()
        .and_then(|cuts| cuts.parse().ok())
        .unwrap_or(50)
}

#[test]
fn redis_has_every_acknowledged_write_after_each_of_fifty_cuts() {
    let port = free_port();
    let mut tracked = Tracked::new(|_| {
        let mut command = words(&["redis-server", "--save", "", "--appendonly", "no", "--port"]);
        command.push(port.to_string());
        command
    });
    tracked.wait_for("output", "Ready to accept");
    let first = tracked.processes();
    let acknowledged = Arc::new(AtomicU64::new(0));
    // The same instants in each run, so that a failure can be repeated.
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for cut in 0..cuts() {
        let before = acknowledged.load(Ordering::SeqCst);
        let load = Command::new("redis-benchmark")
            .args(["-p", &port.to_string(), "-q", "-c", "20", "-n", "10000000"])
            .args(["-r", "20000", "-d", "100", "-t"])
            .arg(["set", "lpush"][(cut % 2) as usize])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut load = load.expect("redis-benchmark");
        let writer = {
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || write_keys(port, &acknowledged))
        };
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let instant = Instant::now() + Duration::from_millis(20 + (random >> 33) % 150);
        let started = Instant::now();
        while Instant::now() < instant || acknowledged.load(Ordering::SeqCst) < before + 10 {
            assert!(
                started.elapsed() < WAIT_MAX,
                "redis does not answer: {}",
                tracked.output()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        tracked.through_power_loss();
        let _ = load.kill();
        let _ = load.wait();
        writer
            .join()
            .expect("the writer")
            .expect_err("its connection broke");
        assert!(
            first.iter().all(|pid| tracked.processes().contains(pid)),
            "cut {cut}: {first:?} are {:?}; {}",
            tracked.processes(),
            tracked.output()
        );
        let last = acknowledged.load(Ordering::SeqCst);
        let mut stream = connect(port, &tracked);
        let mut answers = BufReader::new(stream.try_clone().expect("a copy"));
        let keys = if cut + 1 == cuts() { 1 } else { before + 1 };
        for key in keys..=last {
            stream
                .write_all(format!("GET key:{key}\r\n").as_bytes())
                .expect("sent");
            let mut line = String::new();
            answers.read_line(&mut line).expect("an answer");
            line.clear();
            answers.read_line(&mut line).expect("the value");
            assert_eq!(
                line,
                format!("value:{key}\r\n"),
                "cut {cut}: an acknowledged write is lost"
            );
        }
    }
    // The load was there, too.
    let mut stream = connect(port, &tracked);
    stream.write_all(b"INFO commandstats\r\n").expect("sent");
    let mut answers = BufReader::new(stream.try_clone().expect("a copy"));
    // The answer: "$", its length, and so many bytes.
    let mut header = String::new();
    answers.read_line(&mut header).expect("an answer");
    let length = header
        .trim_start_matches('$')
        .trim()
        .parse()
        .expect("a length");
    let mut statistics = vec![0; length];
    answers.read_exact(&mut statistics).expect("an answer");
    let statistics = String::from_utf8_lossy(&statistics);
    for command in ["set", "lpush"] {
        let counted = format!("cmdstat_{command}:");
        assert!(statistics.contains(&counted), "no {command}: {statistics}");
    }
    stream.write_all(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    tracked.assert_good_end();
}

#[test]
fn python_with_eight_threads_writes_what_it_would_have_written() {
    let script = r#"
import hashlib, threading
log = open("log", "w")
lock = threading.Lock()
def work(number):
    digest = b"%d" % number
    for step in range(300):
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
        with lock:
            log.write("%d %d %s\n" % (number, step, digest.hex()))
            if number == 0 and step == 20:
                log.flush()
                print("ready", flush=True)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
log.close()
lines = {}
for line in open("log"):
    number, step, digest = line.split()
    lines.setdefault(int(number), []).append((int(step), digest))
for number in range(8):
    digest = b"%d" % number
    assert len(lines[number]) == 300, (number, len(lines[number]))
    for step in range(300):
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
        assert lines[number][step] == (step, digest.hex()), (number, step)
print("all right", flush=True)
"#;
    let mut tracked = Tracked::new(|_| words(&["python3", "-c", script]));
    tracked.wait_for("output", "ready");
    tracked.through_power_loss();
    tracked.assert_good_end();
    assert!(tracked.output().contains("all right"));
}

#[test]
fn sqlite_in_a_loop_of_transactions_commits_each_once() {
    let mut script =
        "PRAGMA synchronous=OFF;\nCREATE TABLE t(n INTEGER PRIMARY KEY, v TEXT);\n".to_owned();
    for n in 0..4000 {
        script += &format!(
            "BEGIN;\nINSERT INTO t VALUES({n}, hex(randomblob(600)));\n\
             UPDATE t SET v = v || 'x' WHERE n <= {n} AND n > {n} - 5;\nCOMMIT;\n"
        );
        if n == 60 {
            script += "SELECT 'ready';\n";
        }
    }
    script += "SELECT 'rows', count(*), sum(length(v)) FROM t;\nPRAGMA integrity_check;\n";
    let mut tracked = Tracked::new(|directory| {
        fs::write(directory.join("script"), &script).expect("the script");
        words(&["sqlite3", "-bail", "database", ".read script"])
    });
    tracked.wait_for("output", "ready");
    tracked.through_power_loss();
    tracked.assert_good_end();
    // Each row has 1200 digits and one letter for each of the five updates that reach it.
    let letters: u64 = (0..4000).map(|n: u64| (4000 - n).min(5)).sum();
    let output = tracked.output();
    assert!(
        output.contains(&format!("rows|4000|{}", 4000 * 1200 + letters)),
        "{output}"
    );
    assert!(output.contains("\nok\n"), "{output}");
}

#[test]
fn a_shell_pipeline_loses_and_repeats_nothing() {
    let script = "seq 1 3000 | while read n; do echo $n; [ $((n % 20)) = 0 ] && sleep 0.02; \
                  [ $n = 2000 ] && until [ -e go ]; do sleep 0.02; done; done | sed 's/$/ x/' \
                  | while read n x; do echo $n >&2; echo $n; [ $n = 200 ] && echo ready >> marks; done \
                  2>>seen | awk '{ sum += $1; n++ } END { print n, sum }'";
    let mut tracked = Tracked::new(|_| words(&["bash", "-c", script]));
    tracked.wait_for("marks", "ready");
    tracked.through_power_loss();
    fs::write(tracked.path("go"), "").expect("go");
    tracked.assert_good_end();
    let output = tracked.output();
    assert!(
        output.contains(&format!("3000 {}\n", 3000 * 3001 / 2)),
        "{output}"
    );
    let seen = fs::read_to_string(tracked.path("seen")).expect("the lines");
    let wanted: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    assert!(seen == wanted, "lines are lost or repeated");
}

fn get(port: u16, tracked: &Tracked) -> String {
    let mut stream = connect(port, tracked);
    stream
        .write_all(b"GET /page HTTP/1.0\r\nHost: x\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn nginx_with_workers_serves_on_and_reloads() {
    let port = free_port();
    let mut tracked = Tracked::new(|directory| {
        let place = directory.display();
        let configuration = format!(
            "daemon off; worker_processes 2; pid {place}/pid; error_log {place}/error;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {place}; proxy_temp_path {place};\n\
             fastcgi_temp_path {place}; uwsgi_temp_path {place}; scgi_temp_path {place};\n\
             limit_req_zone $binary_remote_addr zone=one:1m rate=100000r/s;\n\
             server {{ listen 127.0.0.1:{port}; root {place}/www; }} }}\n"
        );
        fs::create_dir(directory.join("www")).expect("a directory");
        fs::write(directory.join("www/page"), "the page").expect("a page");
        File::create(directory.join("conf"))
            .and_then(|mut file| file.write_all(configuration.as_bytes()))
            .expect("a configuration");
        words(&["nginx", "-c", &format!("{place}/conf")])
    });
    assert!(get(port, &tracked).ends_with("the page"));
    let master = tracked.processes()[0];
    tracked.through_power_loss();
    for _ in 0..20 {
        assert!(get(port, &tracked).ends_with("the page"));
    }
    let mut workers = tracked.processes();
    workers.retain(|pid| *pid != master);
    // The master works, too: it makes new workers on a signal, and ends well on another.
    let master = rustix::process::Pid::from_raw(master).expect("not zero");
    rustix::process::kill_process(master, rustix::process::Signal::HUP).expect("a master");
    let started = Instant::now();
    while tracked.processes().iter().any(|pid| workers.contains(pid)) {
        assert!(started.elapsed() < WAIT_MAX, "the old workers stay");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(get(port, &tracked).ends_with("the page"));
    rustix::process::kill_process(master, rustix::process::Signal::QUIT).expect("a master");
    tracked.assert_good_end();
}
