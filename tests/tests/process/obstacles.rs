//! What cannot be restored is reported by name while the program runs, not after power failed: at
//! the start, at the next epoch after it appeared, and at a persist.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;
use dormouse_tests::{dormouse, dormouse_path};

/// Makes and ends one thing after the other on request, and reports each.
const SCRIPT: &str = "
import ctypes, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    assert result not in (-1, None), os.strerror(ctypes.get_errno())
    return result
class Descriptor:
    def __init__(self, number):
        self.number = check(number)
    def end(self):
        os.close(self.number)
class Queue:
    def __init__(self):
        self.number = check(libc.mq_open(b'/dormouse-test', os.O_CREAT | os.O_RDWR, 0o600, None))
        # By SIGCONT.
        check(libc.mq_notify(self.number, struct.pack('Qii48x', 0, 18, 0)))
    def end(self):
        os.close(self.number)
        libc.mq_unlink(b'/dormouse-test')
class Fifo:
    def __init__(self):
        self.path = sys.argv[1] + '/fifo'
        os.mkfifo(self.path)
        self.number = os.open(self.path, os.O_RDWR)
        os.unlink(self.path)
        os.mkfifo(self.path)
    def end(self):
        os.close(self.number)
        os.unlink(self.path)
class Ahead:
    def __init__(self, path='/ahead'):
        self.server, self.client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.server.bind(sys.argv[1] + path)
        self.server.listen()
        self.client.connect(sys.argv[1] + path)
        self.client.send(b'early')
    def end(self):
        self.client.close()
        self.server.close()
class Gone(Ahead):
    def __init__(self):
        super().__init__('/gone')
        self.client.close()
class Adjusted:
    # With a child that shares them: CLONE_SYSVSEM.
    def __init__(self):
        self.set = check(libc.semget(0, 1, 0o1600))
        check(libc.semop(self.set, struct.pack('hhh', 0, 1, 0o10000), 1))
        self.child = check(libc.syscall(56, 0x40000 | signal.SIGCHLD, 0, 0, 0, 0))
        while self.child == 0:
            time.sleep(1)
    def end(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        libc.semctl(self.set, 0, 0)
def other_namespace():
    come, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        check(libc.unshare(0x40000000))
        os.write(come[1], b'x')
        os.read(go[0], 1)
        os._exit(0)
    os.read(come[0], 1)
    number = os.open(f'/proc/{child}/ns/net', os.O_RDONLY)
    os.write(go[1], b'x')
    os.waitpid(child, 0)
    for end in come + go:
        os.close(end)
    return number
class Sharing:
    # Two children with one table of descriptors, which is not ours: CLONE_FILES | CLONE_PARENT.
    def __init__(self):
        come = os.pipe()
        first = os.fork()
        if first == 0:
            other = check(libc.syscall(56, 0x400 | 0x8000 | signal.SIGCHLD, 0, 0, 0, 0))
            if other:
                os.write(come[1], struct.pack('i', other))
            while True:
                time.sleep(1)
        self.children = [first, struct.unpack('i', os.read(come[0], 4))[0]]
        os.close(come[0])
        os.close(come[1])
    def end(self):
        for child in self.children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
def hung_up():
    master, slave = os.openpty()
    os.close(master)
    return slave
def ring():
    # IORING_SETUP_R_DISABLED: not enabled yet.
    parameters = ctypes.create_string_buffer(bytes(8) + bytes([64]), 120)
    return libc.syscall(425, 4, ctypes.byref(parameters))
makers = {
    'mqueue': Queue,
    'ring': lambda: Descriptor(ring()), 'fifo': Fifo,
    'ahead': Ahead, 'gone': Gone, 'adjusted': Adjusted,
    'namespace': lambda: Descriptor(other_namespace()), 'sharing': Sharing,
    'terminal': lambda: Descriptor(hung_up()),
    'fanotify': lambda: Descriptor(libc.fanotify_init(0, 0)),
}
things = {}
def follow():
    for name in os.listdir(sys.argv[1]):
        what, name = name.split('-', 1) if '-' in name else ('', '')
        if what == 'make' and name not in things:
            things[name] = makers[name]()
            print('made', name, flush=True)
        if what == 'end' and things.get(name):
            things[name].end()
            things[name] = None
            print('ended', name, flush=True)
follow()
print('ready', os.getpid(), flush=True)
while True:
    follow()
    time.sleep(0.02)
";

/// The thing, and how it is named.
const THINGS: [(&str, &str); 9] = [
    (
        "adjusted",
        "it shares its adjustments of System V semaphores (SEM_UNDO)",
    ),
    ("ring", "an io_uring instance"),
    ("fifo", "a named pipe that was removed, or is covered"),
    (
        "ahead",
        "a client that it has not accepted, and that has written already",
    ),
    (
        "gone",
        "a client that it has not accepted, and that has closed its end",
    ),
    ("mqueue", "by a signal that stops, continues or kills"),
    ("namespace", "net:["),
    ("sharing", "which is not its parent"),
    ("terminal", "is the device /dev/pts/"),
];

fn obstacles(program: &Program) -> String {
    program.status()["tracker"]["obstacles"].to_string()
}

fn tell(directory: &std::path::Path, what: &str) {
    fs::write(directory.join(what), "").expect("told");
}

#[test]
fn what_cannot_be_restored_is_named_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    tell(directory.path(), "make-ring");
    // Its epochs come soon, the first one surely after it is ready.
    let mut program = Program::script(directory.path(), "300ms", SCRIPT, &[&place]);
    program.run();
    assert!(program.wait_for("ready", 1), "{}", program.said());
    program.until("named", |program| {
        obstacles(program).contains("an io_uring instance")
    });
    let said = program.said();
    let pid = said
        .lines()
        .find_map(|line| line.strip_prefix("ready "))
        .expect("its PID");
    let words = format!("process {pid} (python3): fd");
    let line = said
        .lines()
        .find(|line| line.contains(&words))
        .expect(&said);
    assert!(line.contains("ERROR"), "{line}");
    assert!(line.contains("cannot be persisted as it is now"), "{line}");
    assert!(line.contains("not supported"), "{line}");
}

#[test]
fn what_comes_later_is_named_at_the_next_epoch_and_by_persist_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    let mut program = Program::script(directory.path(), "200ms", SCRIPT, &[&place]);
    program.run();
    assert!(program.wait_for("ready", 1), "{}", program.said());
    for (thing, named) in THINGS {
        program.until("no obstacle", |program| obstacles(program) == "[]");
        tell(directory.path(), &format!("make-{thing}"));
        program.until("made", |program| {
            program.said().contains(&format!("made {thing}"))
        });
        program.until(named, |program| obstacles(program).contains(named));
        assert!(program.said().contains(named), "{thing}: not in the log");
        for then in ["stop", "kill"] {
            let said = program.verb("persist", &["--then", then]);
            assert_eq!(said.code, 1, "{thing}: {}", said.all());
            assert!(said.stderr.contains(named), "{thing}: {}", said.all());
            assert!(
                said.stderr.contains("not supported"),
                "{thing}: {}",
                said.all()
            );
        }
        tell(directory.path(), &format!("end-{thing}"));
        program.until("ended", |program| {
            program.said().contains(&format!("ended {thing}"))
        });
    }
    // Without any of it, it is as safe as ever.
    program.persist_and_kill("persist");
    program.run();
    // It still has the earlier requests.
    tell(directory.path(), "make-fanotify");
    program.until("made", |program| program.said().contains("made fanotify"));
    assert_eq!(
        program.said().matches("made ring").count(),
        1,
        "{}",
        program.said()
    );
}

/// Becomes the tracker, and has two children by then, of which one traces the other.
const TRACED: &str = "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
here = sys.argv[1]
traced = os.fork()
if traced == 0:
    while True:
        time.sleep(1)
if os.fork() == 0:
    assert libc.ptrace(0x4206, traced, 0, 0) == 0, 'PTRACE_SEIZE'
    open(here + '/traced', 'w').close()
    while not os.path.exists(here + '/end'):
        time.sleep(0.01)
    os._exit(0)
while not os.path.exists(here + '/traced'):
    time.sleep(0.01)
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn a_process_that_another_one_traces_from_the_start_is_an_obstacle_until_it_is_let_go() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().display().to_string();
    let store = ["--store", &place, "--on-power-loss", "none"];
    let mut tracker = Command::new("python3")
        .args(["-c", TRACED, &place])
        .arg(dormouse_path())
        .args(["process", "run", "it"])
        .args(store)
        .args(["--epoch-interval", "200ms", "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .expect("python3 starts");
    let status = || dormouse(&["process", "status", "it", "--store", &place, "--json"]);
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut until = |what: &str, holds: &dyn Fn(&serde_json::Value) -> bool| {
        loop {
            let said = status();
            let known = serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap_or_default();
            if holds(&known["tracker"]) {
                return;
            }
            let ended = tracker.try_wait().expect("our own child");
            assert!(ended.is_none(), "{what}: the tracker has ended: {ended:?}");
            assert!(Instant::now() < deadline, "{what}: {}", said.all());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("named", &|tracker| {
        let obstacles = tracker["obstacles"].to_string();
        obstacles.contains("it is traced by process") && obstacles.contains("(python3)")
    });
    tell(directory.path(), "end");
    until("an epoch", &|tracker| {
        tracker["epochs"].as_u64().unwrap_or(0) > 0
            && tracker["obstacles"].as_array().is_some_and(Vec::is_empty)
    });
    let said = dormouse(&[
        "process", "persist", "it", "--store", &place, "--then", "kill",
    ]);
    let end = tracker.wait().expect("its end");
    assert_eq!(said.code, 0, "{}", said.all());
    assert_eq!(end.code(), Some(0), "{end}");
}

#[test]
fn a_number_that_a_restore_may_not_open_is_an_obstacle_to_each_epoch() {
    let directory = tempfile::tempdir().expect("a directory");
    // A restore's own numbers lie above the program's, and its tracker may not raise the limit.
    let script = "ulimit -n 600; exec 590</dev/null; echo ready; exec sleep infinity";
    let command = ["bash", "-c", script];
    let options = ["--on-power-loss", "none"];
    let mut program = Program::new(alone(), directory.path(), "it", &options, &command);
    program.start_through(&[
        "setpriv",
        "--bounding-set",
        "-sys_resource",
        "--",
        "prlimit",
        "--nofile=600:600",
    ]);
    program.run();
    program.until("ready", |program| program.said().contains("ready"));
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains("600"), "{}", said.all());
    assert!(!program.has_ended());
}
