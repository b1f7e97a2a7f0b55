//! `process persist --rehearse`: a copy is restored and compared before anything is committed. A copy that
//! is not like the program is found, whatever differs, and the program continues.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

/// Has one of nearly everything, says so, and counts.
const MANY: &str = "
import ctypes, fcntl, mmap, os, select, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
here = sys.argv[1]
keep = []
f = open(here + '/locked', 'w+b')
f.write(b'x' * 10000); f.flush(); f.seek(17); fcntl.flock(f, fcntl.LOCK_EX)
g = open(here + '/records', 'w+b')
g.write(b'y' * 100); g.flush(); fcntl.lockf(g, fcntl.LOCK_EX, 10, 5)
keep += [f, g, os.dup(f.fileno())]
u = open(here + '/gone', 'w+b'); u.write(b'gone'); u.flush(); os.unlink(here + '/gone')
private = mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE); private[0] = 65
keep += [u, mmap.mmap(g.fileno(), 100), private]
tcp = socket.create_server(('0.0.0.0', 0))
client = socket.create_connection(('127.0.0.1', tcp.getsockname()[1]))
server, _ = tcp.accept()
client.sendall(b'abc')
keep += [client, server, socket.create_server(('::1', 0), family=socket.AF_INET6)]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('127.0.0.1', 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sender.sendto(b'datagram', udp.getsockname())
unix = socket.socket(socket.AF_UNIX); unix.bind(here + '/socket'); unix.listen()
caller = socket.socket(socket.AF_UNIX); caller.connect(here + '/socket')
called, _ = unix.accept(); caller.sendall(b'hello')
nameless = socket.socket(socket.AF_UNIX); nameless.bind(b'\\0dormouse-rehearsal'); nameless.listen()
pair = socket.socketpair(); pair[0].send(b'pair')
r, w = os.pipe(); os.write(w, b'pipe')
os.mkfifo(here + '/fifo'); fifo = os.open(here + '/fifo', os.O_RDWR); os.write(fifo, b'fifo')
events = select.epoll(); events.register(tcp, select.EPOLLIN); events.register(r, select.EPOLLIN)
timer = libc.timerfd_create(1, 0)
assert libc.timerfd_settime(timer, 0, struct.pack('qqqq', 3, 0, 1000, 0), None) == 0
memory = os.memfd_create('memory'); os.ftruncate(memory, 8192); keep.append(mmap.mmap(memory, 4096))
watches = libc.inotify_init(); libc.inotify_add_watch(watches, here.encode(), 0x100)
segment = libc.shmget(0, 8192, 0o1600)
libc.shmat.restype = ctypes.c_void_p; ctypes.memset(libc.shmat(segment, None, 0), 7, 100)
libc.shmctl(segment, 0, None)
shared = mmap.mmap(-1, 8192); shared[0:4] = b'anon'
master, slave = os.openpty()
for _ in range(3):
    threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()
if os.fork() == 0:
    os.setsid(); signal.pause()
if os.fork() == 0:
    os.setpgid(0, 0); os.chdir('/'); signal.pause()
if os.fork() == 0:
    os._exit(3)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1000, 5)
print('ready', os.getpid(), flush=True)
number = 0
while True:
    number += 1
    print('number', number, flush=True)
    time.sleep(0.05)
";

/// Has one file, locked, at descriptor 3, which its child has as well.
const FEW: &str = "
import fcntl, os, signal, sys
f = os.open(sys.argv[1] + '/file', os.O_CREAT | os.O_RDWR)
os.dup2(f, 3)
if f != 3:
    os.close(f)
os.write(3, b'text')
fcntl.flock(3, fcntl.LOCK_EX)
if os.fork() == 0:
    signal.pause()
print('ready', flush=True)
while True:
    signal.pause()
";

/// Counts as fast as it can.
const FAST: &str = "
import os, sys
number = 0
print('ready', flush=True)
with open(sys.argv[1] + '/numbers', 'a') as file:
    while True:
        number += 1
        os.write(file.fileno(), b'%d\\n' % number)
        if number % 1000 == 0:
            print('thousand', flush=True)
";

/// Is in a page fault at nearly every instant.
const FAULTS: &str = "
import mmap
print('ready', flush=True)
while True:
    memory = mmap.mmap(-1, 64 << 20)
    for at in range(0, 64 << 20, 4096):
        memory[at] = 1
    memory.close()
";

const OPTIONS: [&str; 4] = ["--on-power-loss", "none", "--epoch-interval", "1h"];

fn start(directory: &Path, script: &str, through: &[&str]) -> Program {
    let place = directory.join("files");
    fs::create_dir_all(&place).expect("a directory");
    let place = place.display().to_string();
    let command = ["python3", "-c", script, &place];
    let mut program = Program::new(alone(), directory, "it", &OPTIONS, &command);
    program.start_through(through);
    program.run();
    program.until("ready", |program| program.said().contains("ready"));
    program
}

fn epoch(program: &Program) -> i64 {
    let number = &program.status()["store"]["epoch"]["number"];
    number.as_i64().expect("it has an epoch")
}

/// What a rehearsal could leave behind, or change.
fn traces(directory: &Path, tracker: i32) -> String {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let mut files: Vec<String> = fs::read_dir(directory.join("files"))
        .expect("a directory")
        .flatten()
        .map(|entry| {
            let about = entry.metadata().expect("it is there");
            let (inode, mode, bytes) = (about.ino(), about.mode(), about.len());
            let times = (about.mtime(), about.mtime_nsec(), about.ctime_nsec());
            format!("{:?} {inode} {mode:o} {bytes} {times:?}", entry.file_name())
        })
        .collect();
    files.sort();
    format!(
        "{}\n{files:#?}\nchildren {}",
        read(format!("/proc/{tracker}/mounts")),
        read(format!("/proc/{tracker}/task/{tracker}/children")),
    )
}

/// How much a tracker has open. It has a userfaultfd of each process, from when it first meets it.
fn descriptors(tracker: i32) -> usize {
    let all = fs::read_dir(format!("/proc/{tracker}/fd")).expect("it lives");
    let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| !link.to_string_lossy().ends_with("[userfaultfd]"))
        .count()
}

#[test]
fn a_program_of_which_a_copy_comes_back_the_same_is_persisted_and_the_rehearsal_leaves_no_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = start(directory.path(), MANY, &[]);
    // Its first epoch opens what the tracker keeps open.
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
    let before = traces(directory.path(), program.tracker());
    let opened = descriptors(program.tracker());
    let said = program.verb("persist", &["--rehearse", "--json"]);
    assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
    let report = said.report();
    assert!(report["rehearsal_ns"].as_u64() > Some(0), "{report}");
    assert_eq!(traces(directory.path(), program.tracker()), before);
    // Those of connections to it go a moment later.
    program.until("without further descriptors", |program| {
        descriptors(program.tracker()) <= opened
    });
    // Its lock is still its own.
    let file = fs::File::open(directory.path().join("files/locked")).expect("there");
    // SAFETY: no memory involved.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
    assert_eq!(locked, -1, "the program has lost its lock");
    assert!(program.wait_for("number", 2), "{}", program.said());

    let said = program.verb("persist", &["--rehearse", "--then", "kill"]);
    assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
    assert_eq!(program.wait(), 0, "{}", program.said());
    program.run();
    assert!(program.wait_for("number", 2), "{}", program.said());
    assert_eq!(program.said().matches("ready").count(), 1);
    // It is the same after its restore, too.
    let said = program.verb("persist", &["--rehearse"]);
    assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
}

#[test]
fn whatever_differs_in_the_copy_is_named_and_nothing_is_committed_and_the_program_continues() {
    for (fault, named) in [
        ("register", "register r12: "),
        ("vector-register", "vector registers: "),
        ("signal-mask", "blocked signals: "),
        ("memory", "memory at 0x"),
        ("mapping", "mapping "),
        ("advice", "flags rd wr"),
        ("descriptor", "descriptor 3: "),
        ("offset", "descriptor 3: pos: 4, in the copy 5"),
        ("lock", "descriptor 3: lock: FLOCK ADVISORY WRITE"),
        ("description", "descriptor 3: open file description: "),
        ("directory", "cwd: "),
        ("limit", "limit of Max core file size: "),
        ("restore", "it could not be restored: "),
        ("end", "the copy's keeper gave no answer"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let variable = format!("DORMOUSE_REHEARSAL_FAULT={fault}");
        let program = start(directory.path(), FEW, &["env", &variable]);
        let said = program.verb("persist", &[]);
        assert_eq!(said.code, 0, "{fault}: {}", said.all());
        let before = (epoch(&program), traces(directory.path(), program.tracker()));
        for then in ["continue", "kill"] {
            let said = program.verb("persist", &["--rehearse", "--then", then]);
            assert_eq!(said.code, 1, "{fault}: {}", said.all());
            assert!(said.stderr.contains("not persisted: "), "{}", said.all());
            assert!(said.stderr.contains("rehearsal"), "{fault}: {}", said.all());
            assert!(said.stderr.contains(named), "{fault}: {}", said.all());
        }
        let after = (epoch(&program), traces(directory.path(), program.tracker()));
        assert_eq!(after, before, "{fault}");
        let pids = program.status()["tracker"]["pids"].clone();
        assert_eq!(pids.as_array().map(Vec::len), Some(1), "{fault}: {pids}");
    }
}

#[test]
fn the_copy_does_not_execute_a_single_instruction_of_the_program() {
    counts_as_if_there_were_no_copy(&[], 0);
    counts_as_if_there_were_no_copy(&["env", "DORMOUSE_REHEARSAL_FAULT=restore"], 1);
}

fn counts_as_if_there_were_no_copy(through: &[&str], code: i32) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = start(directory.path(), FAST, through);
    for _ in 0..5 {
        assert!(program.wait_for("thousand", 1), "{}", program.said());
        let said = program.verb("persist", &["--rehearse"]);
        assert_eq!(said.code, code, "{}\n{}", said.all(), program.said());
    }
    // A copy that runs counts as well: to the output that it shares with the program.
    assert!(program.wait_for("thousand", 1), "{}", program.said());
    program.cut(true);
    let text = fs::read_to_string(directory.path().join("files/numbers")).expect("written");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let numbers = whole.lines().map(|line| line.parse().expect("a number"));
    let numbers: Vec<u64> = numbers.collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert!(numbers == expected, "numbers are there twice, or missing");
    let thousands = program.said().matches("thousand").count();
    assert!(
        (numbers.len() / 1000).abs_diff(thousands) <= 1,
        "{thousands} times a thousand of {}",
        numbers.len()
    );
}

#[test]
fn a_tracker_without_the_right_to_make_namespaces_says_so_and_persists_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let through = ["setpriv", "--bounding-set", "-sys_admin", "--"];
    let program = start(directory.path(), FEW, &through);
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    let before = epoch(&program);
    let said = program.verb("persist", &["--rehearse", "--then", "kill"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains("CAP_SYS_ADMIN"), "{}", said.all());
    assert_eq!(epoch(&program), before);
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
}

/// A page fault sets the resume flag of the registers that it keeps, and no other stop does.
#[test]
fn a_copy_of_a_program_that_was_stopped_at_a_page_fault_is_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = start(directory.path(), FAULTS, &[]);
    for _ in 0..10 {
        let said = program.verb("persist", &["--rehearse"]);
        assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
    }
}
