//! Two nodes that see one store: never two running programs, and one that goes on when a node is
//! lost. Each node has a mount of its own of the store, through a file server of its own, and its own
//! network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::containers::until;
use dormouse_tests::processes::with_descendants;
use dormouse_tests::program::{Chance, compile};
use dormouse_tests::{dormouse, dormouse_path};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A node: whatever ends, it starts again, as an engine does.
const NODE: &str = r#"
mount --make-rprivate /
bindfs -f -o attr_timeout=0,entry_timeout=0,negative_timeout=0 "$SHARED" "$MOUNT" &
until mountpoint -q "$MOUNT"; do sleep 0.05; done
while :; do
    "$DORMOUSE" process run beat --store "$MOUNT" --lease 2s --epoch-interval 200ms \
        --accept-changed-files -- "$BEAT" "$LOG"
    sleep 0.2
done
"#;

struct Node(Child);

impl Node {
    fn start(directory: &Path, name: &str, beat: &Path) -> Self {
        let mount = directory.join(name);
        fs::create_dir(&mount).expect("made");
        let output = fs::File::create(directory.join(format!("{name}.log"))).expect("made");
        let errors = output.try_clone().expect("duplicated");
        let child = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", NODE])
            .env("SHARED", directory.join("shared"))
            .env("MOUNT", mount)
            .env("DORMOUSE", dormouse_path())
            .env("BEAT", beat)
            .env("LOG", directory.join("beats"))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("unshare can be started");
        Self(child)
    }

    fn processes(&self) -> Vec<i32> {
        with_descendants(vec![self.0.id() as i32])
    }

    fn signal(&self, signal: Signal) {
        for pid in self.processes() {
            // What has ended meanwhile needs none.
            let _ = kill_process(Pid::from_raw(pid).expect("a PID"), signal);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The loop first, or it starts another one.
        let all = self.processes();
        for pid in all {
            let _ = kill_process(Pid::from_raw(pid).expect("a PID"), Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// One run of the program: from its first to its last sign of life, and how far it came.
#[derive(Debug)]
struct Run {
    namespace: String,
    first_ns: u64,
    last_ns: u64,
    first_count: u64,
    last_count: u64,
}

fn runs(log: &Path) -> Vec<Run> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut runs: Vec<Run> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [time, namespace, count] = words[..] else {
            continue;
        };
        let (time, count) = (
            time.parse().expect("a time"),
            count.parse().expect("a count"),
        );
        match runs.iter_mut().find(|run| run.namespace == namespace) {
            Some(run) => {
                run.last_ns = time;
                run.last_count = count;
            }
            None => runs.push(Run {
                namespace: namespace.to_owned(),
                first_ns: time,
                last_ns: time,
                first_count: count,
                last_count: count,
            }),
        }
    }
    runs.sort_by_key(|run| run.first_ns);
    runs
}

fn assert_one_at_a_time(runs: &[Run]) {
    for pair in runs.windows(2) {
        assert!(
            pair[0].last_ns < pair[1].first_ns,
            "two programs ran at the same time: {pair:#?}"
        );
    }
}

fn set_up(directory: &Path) -> (PathBuf, PathBuf) {
    fs::create_dir(directory.join("shared")).expect("made");
    (compile(directory, "beat.c"), directory.join("beats"))
}

fn beats(log: &Path) -> u64 {
    fs::metadata(log).map_or(0, |metadata| metadata.len())
}

/// Waits for the first epoch: what is lost before that is started anew.
fn first_epoch(directory: &Path) {
    let shared = directory.join("shared");
    let store = shared.to_str().expect("a name in UTF-8");
    until("an epoch", || {
        let said = dormouse(&["process", "status", "beat", "--store", store, "--json"]);
        (said.code == 0 && said.report()["store"]["epoch"].is_object()).then_some(())
    });
}

fn goes_on(log: &Path) {
    let before = beats(log);
    until("a running program", || (beats(log) > before).then_some(()));
}

#[test]
#[ignore = "make test-containers: file servers in namespaces, as root, for some minutes"]
fn never_do_two_nodes_with_one_store_run_its_program_however_they_are_paused() {
    let directory = TempDir::new().expect("a directory");
    let (beat, log) = set_up(directory.path());
    let nodes = [
        Node::start(directory.path(), "a", &beat),
        Node::start(directory.path(), "b", &beat),
    ];
    goes_on(&log);
    first_epoch(directory.path());
    let pauses = std::env::var("DORMOUSE_TEST_PAUSES").map_or(20, |n| n.parse().expect("a number"));
    let mut chance = Chance::new(4);
    let mut pause = |limit| std::thread::sleep(Duration::from_millis(chance.below(limit)));
    let mut which = Chance::new(7);
    for number in 0..pauses {
        let node = &nodes[which.below(2) as usize];
        pause(1500);
        node.signal(Signal::STOP);
        pause(6000);
        node.signal(Signal::CONT);
        if number % 5 == 4 {
            goes_on(&log);
        }
        assert_one_at_a_time(&runs(&log));
    }
    goes_on(&log);
    drop(nodes);
    let runs = runs(&log);
    assert_one_at_a_time(&runs);
    assert!(
        runs.len() > 1,
        "the program was never taken over: {runs:#?}"
    );
    for pair in runs.windows(2) {
        assert!(pair[1].first_count > 0, "it was started anew: {pair:#?}");
        assert!(pair[1].first_count <= pair[0].last_count + 1, "{pair:#?}");
    }
    println!("{} runs in {pauses} pauses: {runs:#?}", runs.len());
}

#[test]
#[ignore = "make test-containers: file servers in namespaces, as root"]
fn a_program_of_a_lost_node_goes_on_at_the_other_one() {
    let directory = TempDir::new().expect("a directory");
    let (beat, log) = set_up(directory.path());
    let first = Node::start(directory.path(), "a", &beat);
    goes_on(&log);
    first_epoch(directory.path());
    let second = Node::start(directory.path(), "b", &beat);
    let refused = directory.path().join("b.log");
    until("a refusal", || {
        let said = fs::read_to_string(&refused).unwrap_or_default();
        said.contains("holds the lease").then_some(())
    });
    let lost = Instant::now();
    drop(first);
    until("the other node", || (runs(&log).len() > 1).then_some(()));
    println!("taken over {:?} after the loss", lost.elapsed());
    drop(second);
    let runs = runs(&log);
    assert_one_at_a_time(&runs);
    assert!(runs[1].first_count > 0, "it was started anew: {runs:#?}");
}

#[test]
fn a_lease_and_a_namespace_are_not_for_a_program_that_runs_already() {
    for option in [&["--lease", "5s"][..], &["--isolate"]] {
        let said = dormouse(&[&["process", "attach", "x", "1"], option].concat());
        assert_eq!(said.code, 2, "{}", said.all());
        assert!(said.stderr.contains("--lease"), "{}", said.all());
    }
    let short = dormouse(&["process", "run", "x", "--lease", "10ms", "--", "true"]);
    assert_eq!(short.code, 2, "{}", short.all());
}
