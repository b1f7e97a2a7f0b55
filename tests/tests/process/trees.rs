//! Unusual process trees: orphans, and groups and sessions without their leaders.

use std::collections::BTreeMap;
use std::fs;

use dormouse_tests::alone::alone;
use dormouse_tests::processes::with_descendants;
use dormouse_tests::program::{Chance, Program, compile};

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
    // Those that only started others have ended, and two of them nobody has waited for.
    program.until("only zombies besides", |program| {
        let found = tree(program);
        found.len() == NAMES.len() + 2 && found.values().filter(|of| of[0] == "Z").count() == 2
    });
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

/// Forks again and again while a background round may be reading its memory.
const FORKS: &str = "
import mmap, os, signal, sys, time
memory = mmap.mmap(-1, int(sys.argv[1]) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for life in range(int(sys.argv[2])):
    for at in range(0, len(memory), 4096):
        memory[at:at + 8] = (at + life + 1).to_bytes(8, 'little')
    time.sleep(life % 6 * 0.02)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    print('forked', life, flush=True)
    while not os.path.exists(f'{sys.argv[3]}/measured-{life}'):
        time.sleep(0.01)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
";

#[test]
fn memory_stays_shared_with_children_that_are_born_while_it_is_copied() {
    const LIVES: usize = 12;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    let arguments = [SHARED_MIB.to_string(), LIVES.to_string()];
    let arguments = [&arguments[0], &arguments[1], path];
    let mut program = Program::script(directory.path(), "100ms", FORKS, &arguments);
    program.run();
    for life in 0..LIVES {
        program.wait_for(&format!("forked {life}"), 1);
        // The round that was under way is over.
        let epochs = program.epochs();
        program.until("two epochs", |program| program.epochs() > epochs + 1);
        let mut pids = with_descendants(vec![program.tracker()]);
        pids.remove(0);
        let used = proportional_bytes(&pids) >> 20;
        assert!(
            (SHARED_MIB..SHARED_MIB * 5 / 4).contains(&used),
            "{used} MiB after fork {life}"
        );
        fs::write(directory.path().join(format!("measured-{life}")), "").expect("written");
    }
}

/// A family of which each member has changed the memory that it has inherited, and changes it further.
const FAMILY: &str = "
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
for call in [libc.mmap, libc.mremap]:
    call.restype = ctypes.c_void_p
PAGE, PAGES = 4096, (int(sys.argv[1]) << 20) // 4096
def mapped(pages):
    return libc.mmap(None, ctypes.c_size_t(pages * PAGE), 3, 0x22, -1, ctypes.c_long(0))
start = mapped(PAGES)
places = {page: start + page * PAGE for page in range(PAGES)}
values = {page: page + 1 for page in range(PAGES)}
def write(pages, by):
    for page in pages:
        values[page] = page + by
        ctypes.c_uint64.from_address(places[page]).value = values[page]
def at(page):
    return ctypes.c_void_p(start + page * PAGE)
def bytes(pages):
    return ctypes.c_size_t(pages * PAGE)
def child(name, work):
    if os.fork() == 0:
        work()
        live(name)
def live(name):
    round = 0
    while True:
        wrong = [page for page in places if ctypes.c_uint64.from_address(places[page]).value != values[page]]
        os.write(1, b'%s %s %s\\n' % (b'WRONG' if wrong else b'right', name.encode(), str(wrong[:9]).encode()))
        write([8000 + round % 100], os.getpid() * 1000 + round)
        round += 1
        time.sleep(0.3)
def changes():
    write(range(100, 1000), 10**6)
    child('grandchild', lambda: write(range(2000, 2500, 2), 10**7))
def unmaps():
    assert libc.munmap(at(0), bytes(1000)) == 0
    for page in range(1000):
        del places[page]
def protects():
    assert libc.mprotect(at(3000), bytes(1000), 1) == 0
def moves():
    to = mapped(1000)
    assert libc.mremap(at(5000), bytes(1000), bytes(1000), 3, ctypes.c_void_p(to)) == to
    places.update({page: to + (page - 5000) * PAGE for page in range(5000, 6000)})
def drops():
    assert libc.madvise(at(6000), bytes(500), 4) == 0
    values.update({page: 0 for page in range(6000, 6500)})
write(range(PAGES), 1)
for work in [changes, unmaps, protects, moves, drops]:
    child(work.__name__, work)
live('root')
";

#[test]
fn memory_that_was_shared_copy_on_write_is_shared_after_a_restore_and_each_has_its_own_contents() {
    const MEMBERS: usize = 7;
    let directory = tempfile::tempdir().expect("a directory");
    let megabytes = SHARED_MIB.to_string();
    let mut program = Program::script(directory.path(), "1h", FAMILY, &[&megabytes]);
    let right = |said: &str| {
        assert!(!said.contains("WRONG"), "{said}");
        let mut lines: Vec<&str> = said.lines().filter(|l| l.starts_with("right")).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.len() == MEMBERS
    };
    // Beside them there are the tracker, the guard of a program that lacks pages, and what isolates it.
    let members = |program: &Program| {
        let mut pids = with_descendants(vec![program.tracker()]);
        pids.retain(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.starts_with("python"))
        });
        pids
    };
    let used = |program: &Program| {
        let members = members(program);
        assert_eq!(members.len(), MEMBERS);
        proportional_bytes(&members) >> 20
    };
    program.run();
    program.until("all there", |program| right(&program.said()));
    let before = used(&program);
    for (life, way) in [&[][..], &["--eager"], &["--verify-first"]]
        .iter()
        .enumerate()
    {
        program.persist_and_kill(&format!("life {life}"));
        let length = program.said().len();
        let options = ["--on-power-loss", "none", "--epoch-interval", "1h"];
        program.set_options(&[&options[..], way].concat());
        program.run();
        program.until("all there again", |program| {
            right(&program.said()[length..])
                && program.status()["tracker"]["to_bring_in_bytes"] == 0
        });
        let now = used(&program);
        // What was moved is no longer shared: 1000 pages.
        assert!(
            now < before + 16,
            "{before} MiB, then {now} MiB with {way:?}"
        );
        // They go on, and write to what they share.
        let length = program.said().len();
        program.until("further", |program| right(&program.said()[length..]));
        // To persist them reads what they share, and leaves it shared.
        assert_eq!(program.verb("persist", &[]).code, 0);
        let now = used(&program);
        assert!(
            now < before + 16,
            "{before} MiB, then {now} MiB when persisted again"
        );
    }
}

#[test]
fn each_of_a_tree_of_processes_that_change_shared_memory_at_random_has_its_own_pages_in_each_life()
{
    const PROCESSES: usize = 8;
    let setting = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
    };
    let (seed, lives) = (setting("DORMOUSE_SEED", 11), setting("DORMOUSE_KILLS", 12));
    println!("DORMOUSE_SEED={seed} DORMOUSE_KILLS={lives}");
    let directory = tempfile::tempdir().expect("a directory");
    let model = compile(directory.path(), "shared_model.c");
    let model = model.display().to_string();
    let mut chance = Chance::new(seed);
    let command = [&*model, &seed.to_string(), &PROCESSES.to_string()];
    let mut program = Program::new(alone(), directory.path(), "model", &[], &command);
    for life in 0..lives {
        let way = [&[][..], &["--eager"], &["--verify-first"]][life as usize % 3];
        let interval = ["1h", "100ms"][chance.below(2) as usize];
        let options = ["--on-power-loss", "none", "--epoch-interval", interval];
        program.set_options(&[&options[..], way].concat());
        let length = program.said().len();
        program.run();
        program.until("rounds of all", |program| {
            let said = &program.said()[length..];
            assert!(
                !said.contains("DIFFERS"),
                "seed {seed}, life {life}: {said}"
            );
            (0..PROCESSES).all(|process| {
                let word = format!("ok {process} ");
                said.lines().filter(|line| line.starts_with(&word)).count() > 5
            })
        });
        let said = &program.said()[length..];
        let anew = said.lines().any(|line| line == "ok 0 0");
        assert_eq!(anew, life == 0, "seed {seed}, life {life}: {said}");
        if interval == "1h" {
            let rehearse: &[&str] = if life % 4 == 0 { &["--rehearse"] } else { &[] };
            let said = program.verb("persist", rehearse);
            assert_eq!(said.code, 0, "seed {seed}, life {life}: {}", said.all());
        } else {
            program.until_epoch();
        }
        program.cut(chance.below(2) == 0);
    }
}
