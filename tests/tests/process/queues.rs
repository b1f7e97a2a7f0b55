//! POSIX message queues: their messages come back from every epoch in their order; what another program has
//! in their place is named and stays.

use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};

use dormouse_tests::program::{Chance, Program};

/// Has messages of three priorities, one of them a number. Takes all of them again and again, checks them,
/// and sends them with the next number.
const SCRIPT: &str = "
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result
sizes = struct.pack('8q', 0, 9, 64, 0, 0, 0, 0, 0)
queue = check(libc.mq_open(sys.argv[1].encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, sizes))
def send(priority, text):
    check(libc.mq_send(queue, text, len(text), priority))
def receive():
    text, priority = ctypes.create_string_buffer(64), ctypes.c_uint()
    count = check(libc.mq_receive(queue, text, 64, ctypes.byref(priority)))
    return priority.value, text.raw[:count]
n = 0
while True:
    all = [(7, b'%d' % n), (7, b''), (2, b'first'), (2, b'second'), (2, b'third'), (0, b'last')]
    # In the order of each priority, the lowest first.
    for at in (5, 2, 0, 3, 1, 4):
        send(*all[at])
    time.sleep(0.005)
    got = [receive() for _ in all]
    assert got == all, got
    print('ok', n, flush=True)
    n += 1
";

/// The name of a queue that no other test has; it is removed also if the test fails.
struct Name(CString);

impl Name {
    fn new(test: &str) -> Self {
        let name = format!("/dormouse-{test}-{}", std::process::id());
        Self(CString::new(name).expect("a name"))
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("plain letters")
    }

    fn open(&self, flags: i32, messages: i64) -> OwnedFd {
        // SAFETY: name and attributes live; the descriptor is new.
        unsafe {
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = messages;
            attributes.mq_msgsize = 64;
            let opened = libc::mq_open(self.0.as_ptr(), flags, 0o600, &raw const attributes);
            assert!(opened >= 0, "{}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(opened)
        }
    }

    fn unlink(&self) -> bool {
        // SAFETY: the name lives.
        unsafe { libc::mq_unlink(self.0.as_ptr()) == 0 }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.unlink();
    }
}

#[test]
fn messages_come_back_from_background_epochs_and_a_queue_in_their_place_is_named_and_stays() {
    let (name, directory) = (
        Name::new("epochs"),
        tempfile::tempdir().expect("a directory"),
    );
    let mut program = Program::script(directory.path(), "20ms", SCRIPT, &[name.text()]);
    let mut chance = Chance::new(19);
    for _ in 0..5 {
        program.run();
        // Its store is there by then.
        assert!(program.wait_for("ok", 1), "{}", program.said());
        program.until_epoch();
        let count = chance.below(20) as usize + 2;
        assert!(program.wait_for("ok", count), "{}", program.said());
        program.cut(chance.below(2) == 0);
    }
    // What it has left behind is replaced; what is not its own is not.
    assert!(name.unlink(), "it has left its queue");
    let other = name.open(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 3);
    drop(other);
    let said = program.refused(&[]);
    assert_eq!(said.code, 1, "{}", said.all());
    let named = format!(
        "the POSIX message queue {} is another program's",
        name.text()
    );
    assert!(said.stderr.contains(&named), "{}", said.all());
    assert!(name.unlink(), "the other one stays");
    // One of the same size that a program has open.
    let other = name.open(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 9);
    let said = program.refused(&[]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains("has it open"), "{}", said.all());
    drop(other);
    program.run();
    assert!(program.wait_for("ok", 3), "{}", program.said());
    program.persist_and_kill("at the end");
    program.run();
    assert!(program.wait_for("ok", 3), "{}", program.said());
}

#[test]
fn a_queue_that_another_program_has_open_is_an_obstacle_and_keeps_its_messages() {
    let (name, directory) = (
        Name::new("opened"),
        tempfile::tempdir().expect("a directory"),
    );
    let mut program = Program::script(directory.path(), "50ms", SCRIPT, &[name.text()]);
    program.run();
    assert!(program.wait_for("ok", 1), "{}", program.said());
    let obstacles = |program: &Program| program.status()["tracker"]["obstacles"].to_string();
    program.until("no obstacle", |program| obstacles(program) == "[]");
    let other = name.open(libc::O_RDONLY, 9);
    let named = "has open, too, which is not of the tree";
    program.until(named, |program| obstacles(program).contains(named));
    let said = program.verb("persist", &["--then", "kill"]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains(named), "{}", said.all());
    assert!(program.wait_for("ok", 3), "{}", program.said());
    drop(other);
    program.until("no obstacle", |program| obstacles(program) == "[]");
    program.persist_and_kill("alone again");
}

/// Registers for a notification with another value each time, waits for several epochs without one, and causes
/// it.
const NOTIFIED: &str = "
import ctypes, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
SIGNAL = 40
def check(result):
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result
def taken(seconds):
    mask, info = struct.pack('16Q', 1 << SIGNAL - 1, *[0] * 15), ctypes.create_string_buffer(128)
    if libc.sigtimedwait(mask, info, struct.pack('qq', seconds, 0)) != SIGNAL:
        return None
    return struct.unpack_from('i', info, 8)[0], struct.unpack_from('Q', info, 24)[0]
signal.pthread_sigmask(signal.SIG_BLOCK, [SIGNAL])
queue = check(libc.mq_open(sys.argv[1].encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, None))
n = 0
while True:
    value = 0x123456789abc0000 + n
    check(libc.mq_notify(queue, struct.pack('Qii48x', value, SIGNAL, 0)))
    for _ in range(10):
        time.sleep(0.01)
        assert taken(0) is None
    assert libc.mq_notify(queue, struct.pack('Qii48x', 0, SIGNAL, 0)) < 0, 'not registered any more'
    check(libc.mq_send(queue, b'', 0, 3))
    # SI_MESGQ
    assert taken(10) == (-3, value)
    check(libc.mq_receive(queue, ctypes.create_string_buffer(8192), 8192, None))
    print('ok', n, flush=True)
    n += 1
";

#[test]
fn a_registration_for_a_notification_outlasts_epochs_and_cuts_with_its_value() {
    let (name, directory) = (
        Name::new("notified"),
        tempfile::tempdir().expect("a directory"),
    );
    let mut program = Program::script(directory.path(), "10ms", NOTIFIED, &[name.text()]);
    for life in 0..3 {
        program.run();
        // Its store is there by then.
        assert!(program.wait_for("ok", 1), "{}", program.said());
        program.until_epoch();
        assert!(program.wait_for("ok", 5), "{}", program.said());
        program.cut(life % 2 == 0);
    }
}
