//! Unusual process trees: orphans, and groups and sessions without their leaders.

use std::collections::BTreeMap;
use std::fs;

use dormouse_tests::alone::alone;
use dormouse_tests::processes::with_descendants;
use dormouse_tests::program::Program;

const SCRIPT: &str = "
import os, time
def live(name):
    while True:
        os.write(1, b'alive %s %d\\n' % (name.encode(), os.getpid()))
        time.sleep(0.05)
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(3)
    return pid
def member(name):
    child(lambda: live(name))
def job():
    os.setpgid(0, 0)
    member('job-one')
    member('job-two')
def family():
    member('daemon-child')
    live('daemon')
def daemon():
    os.setsid()
    child(family)
def server():
    os.setsid()
    child(lambda: member('server-orphan'))
    live('server')
# Orphans of a job whose leader has ended.
os.waitpid(child(job), 0)
# The same, but the leader is a zombie.
unasked = child(job)
# A daemon, started the old way: its session has lost its leader.
os.waitpid(child(daemon), 0)
# A leader that lives.
child(server)
member('child')
live('root')
";

/// Name, parent, group and session of each process, from /proc.
fn tree(program: &Program) -> BTreeMap<i32, [String; 4]> {
    let tracker = program.tracker();
    let mut found = BTreeMap::new();
    for pid in with_descendants(vec![tracker]) {
        if pid == tracker {
            continue;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let (_, rest) = stat.rsplit_once(") ").expect("a name");
        let words: Vec<&str> = rest.split(' ').collect();
        let parent = if words[1] == tracker.to_string() {
            "tracker"
        } else {
            words[1]
        };
        let zombie = if words[0] == "Z" { "Z" } else { "" };
        let words = [zombie, parent, words[2], words[3]];
        found.insert(pid, words.map(str::to_owned));
    }
    found
}

#[test]
fn orphans_and_members_of_groups_and_sessions_without_leaders_are_as_they_were() {
    const NAMES: [&str; 10] = [
        "job-one",
        "job-two",
        "daemon",
        "daemon-child",
        "server",
        "server-orphan",
        "child",
        "root",
        "job-one",
        "job-two",
    ];
    let directory = tempfile::tempdir().expect("a directory");
    let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
    let mut program = Program::new(
        alone(),
        directory.path(),
        "tree",
        &options,
        &["python3", "-c", SCRIPT],
    );
    program.run();
    let alive = |said: &str| {
        let mut lines: Vec<&str> = said.lines().filter(|l| l.starts_with("alive ")).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.len()
    };
    program.until("all there", |program| alive(&program.said()) == NAMES.len());
    let before = tree(&program);
    let leaders: Vec<&String> = before.values().flat_map(|of| &of[2..]).collect();
    let gone = leaders
        .iter()
        .filter(|pid| !before.contains_key(&pid.parse().unwrap_or(0)));
    assert!(gone.count() > 4, "{before:?}");
    for life in 0..3 {
        program.persist_and_kill(&format!("life {life}"));
        let length = program.said().len();
        program.run();
        program.until("all there again", |program| {
            alive(&program.said()[length..]) == NAMES.len()
        });
        // The guard of a program that has not all of its pages is a child of the tracker, too.
        program.until("all pages there", |program| {
            program.status()["tracker"]["to_bring_in_bytes"] == 0
                && tree(program).len() == before.len()
        });
        assert_eq!(tree(&program), before, "life {life}: {}", program.said());
    }
}

const SHARED_MIB: u64 = 64;

/// Bytes that processes have in memory, what they share counted once.
fn proportional_bytes(pids: &[i32]) -> u64 {
    let of = |pid: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it lives");
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.expect("in kB").parse::<u64>().expect("a number") << 10
    };
    pids.iter().map(of).sum()
}

#[test]
fn memory_that_a_parent_shares_with_its_children_stays_shared_when_it_is_persisted() {
    let script = format!(
        "
import mmap, os, signal, time
memory = mmap.mmap(-1, {SHARED_MIB} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(memory), 4096):
    memory[at:at + 8] = at.to_bytes(8, 'little')
for _ in range(3):
    if os.fork() == 0:
        signal.pause()
print('ready', flush=True)
signal.pause()
"
    );
    let directory = tempfile::tempdir().expect("a directory");
    // Background rounds read while the program runs, a persist while it stands.
    for interval in ["1h", "100ms"] {
        let mut program = Program::script(directory.path(), interval, &script, &[]);
        program.run();
        program.wait_for("ready", 1);
        let tracker = program.tracker();
        let pids = || {
            let mut pids = with_descendants(vec![tracker]);
            pids.retain(|pid| *pid != tracker);
            pids
        };
        program.until("four of them", |_| pids().len() == 4);
        if interval != "1h" {
            program.until_epoch();
        }
        assert_eq!(program.verb("persist", &[]).code, 0);
        let used = proportional_bytes(&pids()) >> 20;
        assert!(
            (SHARED_MIB..2 * SHARED_MIB).contains(&used),
            "{used} MiB with {interval}"
        );
        program.persist_and_kill(interval);
        assert_eq!(program.verb("remove", &[]).code, 0);
    }
}
