//! What cannot be restored of System V semaphores and message queues is named while the program runs, and
//! the program goes on.

use std::fs;

use dormouse_tests::program::Program;

/// A child for each thing, made and ended on request. `outside`: a semaphore set that another program
/// has made.
const SCRIPT: &str = "
import ctypes, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
UNDO = 0o10000
def check(result):
    assert result not in (-1, None), os.strerror(ctypes.get_errno())
    return result
def undo(number):
    check(libc.semop(number, struct.pack('hhh', 0, 1, UNDO), 1))
def semaphores():
    number = check(libc.semget(0, 1, 0o1600))
    undo(number)
    return lambda: libc.semctl(number, 0, 0)
def queue():
    number = check(libc.mq_open(sys.argv[2].encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, None))
    return number, lambda: libc.mq_unlink(sys.argv[2].encode())
def of_a_thread():
    end = semaphores()
    # A thread without CLONE_SYSVSEM, which waits for ever: VM, FS, FILES, SIGHAND, THREAD.
    stack = ctypes.create_string_buffer(65536)
    top = (ctypes.addressof(stack) + 65536) & ~15
    wait = ctypes.cast(libc.pause, ctypes.c_void_p)
    check(libc.clone(wait, ctypes.c_void_p(top), 0x100 | 0x200 | 0x400 | 0x800 | 0x10000, None))
    return end, stack
def outside():
    undo(int(open(sys.argv[1] + '/outside').read()))
    return lambda: None
def without_rights():
    end = semaphores()
    os.setresuid(65534, 65534, 65534)
    return lambda: None
def by_a_thread():
    number, end = queue()
    # SIGEV_THREAD
    event = struct.pack('QiiQ40x', 0, 0, 2, ctypes.cast(libc.getpid, ctypes.c_void_p).value)
    check(libc.mq_notify(number, event))
    return end
def by_a_pending_signal():
    number, end = queue()
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    os.kill(os.getpid(), 40)
    check(libc.mq_notify(number, struct.pack('Qii48x', 0, 40, 0)))
    return end
makers = {
    'thread': of_a_thread, 'outside': outside, 'rights': without_rights, 'notifier': by_a_thread,
    'pending': by_a_pending_signal, 'plain': semaphores,
}
children = {}
def make(name):
    come, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go[1])
        kept = makers[name]()
        os.write(come[1], b'x')
        os.read(go[0], 1)
        (kept[0] if isinstance(kept, tuple) else kept)()
        os._exit(0)
    os.close(come[1])
    os.close(go[0])
    assert os.read(come[0], 1) == b'x', name
    os.close(come[0])
    return child, go[1]
print('ready', flush=True)
while True:
    for name in os.listdir(sys.argv[1]):
        what, name = name.split('-', 1) if '-' in name else ('', '')
        if what == 'make' and name not in children:
            children[name] = make(name)
            print('made', name, flush=True)
        if what == 'end' and children.get(name):
            child, end = children[name]
            os.close(end)
            assert os.waitpid(child, 0)[1] == 0, name
            children[name] = None
            print('ended', name, flush=True)
    time.sleep(0.02)
";

/// The thing, and how it is named.
const THINGS: [(&str, &str); 5] = [
    (
        "thread",
        "has adjustments of System V semaphores (SEM_UNDO) of its own",
    ),
    ("outside", "which processes of outside use"),
    ("rights", "has no right to operate on it any more"),
    ("notifier", "by a thread (SIGEV_THREAD)"),
    ("pending", "by a signal that is pending"),
];

fn obstacles(program: &Program) -> String {
    program.status()["tracker"]["obstacles"].to_string()
}

/// A semaphore set of this process.
struct Set(i32);

impl Set {
    fn new() -> Self {
        // SAFETY: no memory involved.
        unsafe {
            let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
            assert!(set >= 0, "{}", std::io::Error::last_os_error());
            Self(set)
        }
    }

    /// Makes this process the last one that has operated on it.
    fn use_it(&self) {
        let mut up = libc::sembuf {
            sem_num: 0,
            sem_op: 1,
            sem_flg: 0,
        };
        // SAFETY: the operation lives.
        let done = unsafe { libc::semop(self.0, &raw mut up, 1) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // SAFETY: no memory involved.
        unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
    }
}

/// A running program, and the directory of its requests.
struct Running {
    program: Program,
    directory: tempfile::TempDir,
}

impl Running {
    fn new(queue: &str, through: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().display().to_string();
        let mut program = Program::script(directory.path(), "200ms", SCRIPT, &[&place, queue]);
        if !through.is_empty() {
            program.start_through(through);
        }
        program.run();
        assert!(program.wait_for("ready", 1), "{}", program.said());
        Self { program, directory }
    }

    fn tell(&mut self, what: &str, name: &str, answer: &str) {
        let file = self.directory.path().join(format!("{what}-{name}"));
        fs::write(file, "").expect("told");
        let answer = format!("{answer} {name}");
        let program = &mut self.program;
        program.until(&answer, |program| program.said().contains(&answer));
    }

    /// The thing is named by the next epoch and by a persist, and when it has ended there is no obstacle.
    fn named(&mut self, thing: &str, named: &str, then: impl FnOnce()) {
        let program = &mut self.program;
        program.until("no obstacle", |program| obstacles(program) == "[]");
        self.tell("make", thing, "made");
        then();
        let program = &mut self.program;
        program.until(named, |program| obstacles(program).contains(named));
        let said = program.verb("persist", &["--then", "kill"]);
        assert_eq!(said.code, 1, "{thing}: {}", said.all());
        assert!(said.stderr.contains(named), "{thing}: {}", said.all());
        self.tell("end", thing, "ended");
        let program = &mut self.program;
        program.until("no obstacle", |program| obstacles(program) == "[]");
    }
}

#[test]
fn what_cannot_be_kept_of_semaphores_and_queues_is_named_and_nothing_is_lost() {
    let set = Set::new();
    let mut running = Running::new(&format!("/dormouse-ipc-{}", std::process::id()), &[]);
    let path = running.directory.path().join("outside");
    fs::write(path, set.0.to_string()).expect("told");
    for (thing, named) in THINGS {
        running.named(thing, named, || set.use_it());
    }
    // Without any of it, it is as safe as ever.
    running.program.persist_and_kill("persist");
    running.program.run();
    running.tell("make", "plain", "made");
}

#[test]
fn a_limit_of_operations_that_is_too_low_for_adjustments_is_named() {
    // Eight operations in a call, in namespaces of its own.
    let lower = "echo '32000 1024000000 8 32000' >/proc/sys/kernel/sem && exec \"$@\"";
    let through = ["unshare", "--ipc", "sh", "-ec", lower, "sh"];
    let mut running = Running::new("/dormouse-ipc", &through);
    running.named("plain", "allows too few operations (SEMOPM 8)", || ());
    running.program.persist_and_kill("persist");
}

/// A program with a list of adjustments of semaphores, as each with threads has, and one that makes and removes objects.
const THREADED: &str = "
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('up', flush=True)
threading.Event().wait()
";
const CHURN: &str = "
import ctypes, sys
libc = ctypes.CDLL(None)
make, remove = {
    'sem': (lambda: libc.semget(0, 1, 0o1600), lambda it: libc.semctl(it, 0, 0)),
    'msg': (lambda: libc.msgget(0, 0o1600), lambda it: libc.msgctl(it, 0, 0)),
}[sys.argv[1]]
while True:
    # Many, so that each list has some.
    for it in [make() for _ in range(32)]:
        remove(it)
";

/// Ends with this.
struct Churn(std::process::Child);

impl Drop for Churn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn semaphores_and_queues_that_others_remove_meanwhile_are_no_obstacle() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = Program::script(directory.path(), "60min", THREADED, &[]);
    program.run();
    assert!(program.wait_for("up", 1), "{}", program.said());
    for kind in ["sem", "msg"] {
        let churn = std::process::Command::new("python3")
            .args(["-c", CHURN, kind])
            .spawn();
        let _churn = Churn(churn.expect("python3 is installed"));
        for number in 0..20 {
            let said = program.verb("persist", &[]);
            assert_eq!(said.code, 0, "{kind}, persist {number}: {}", said.all());
        }
    }
}

/// Makes 300 segments, and one after the other is removed by another program.
const MAKER: &str = "
import ctypes, threading
libc = ctypes.CDLL(None)
for _ in range(300):
    assert libc.shmget(0, 4096, 0o1600) != -1
print('up', flush=True)
threading.Event().wait()
";
const REMOVER: &str = "
import ctypes, sys, time
libc = ctypes.CDLL(None)
rows = [line.split() for line in open('/proc/sysvipc/shm')][1:]
made = [int(row[1]) for row in rows if row[4] == sys.argv[1]]
assert len(made) == 300
for segment in made:
    assert libc.shmctl(segment, 0, 0) == 0
    time.sleep(0.003)
";

/// Ends by itself; until then segments are left.
struct Remover(std::process::Child);

impl Drop for Remover {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

#[test]
fn segments_of_the_program_that_others_remove_meanwhile_are_no_obstacle() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = Program::script(directory.path(), "60min", MAKER, &[]);
    program.run();
    assert!(program.wait_for("up", 1), "{}", program.said());
    let pid = program.status()["tracker"]["pids"][0].to_string();
    let remover = std::process::Command::new("python3")
        .args(["-c", REMOVER, &pid])
        .spawn();
    let mut remover = Remover(remover.expect("python3 is installed"));
    let ended = loop {
        let said = program.verb("persist", &[]);
        assert_eq!(said.code, 0, "{}", said.all());
        if let Some(status) = remover.0.try_wait().expect("our own child") {
            break status;
        }
    };
    assert!(ended.success());
}
