//! An obstacle to a restore is named, and the refused restore leaves nothing behind; without the
//! obstacle the same state is restored.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dormouse_process::restore::{Error, Options, restore};
use dormouse_process::state::{Kernel, Tree};
use dormouse_process::store::Snapshot;
use roundtrip::{Pages, finish, persist_child, recreate, start};

const SCRIPT: &str = "\
import socket, time
data = open('data', 'r+')
server = socket.create_server(('127.0.0.1', int(open('port').read())))
print('ready', flush=True)
time.sleep(60)";

/// A persisted and killed program that has a file open and listens on a port.
fn persisted(directory: &Path) -> (Pages, Tree, u16) {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("its address").port()
    };
    fs::write(directory.join("data"), "some data").expect("data");
    fs::write(directory.join("port"), port.to_string()).expect("port");
    let mut command = Command::new("python3");
    command.current_dir(directory).args(["-c", SCRIPT]);
    let child = start(&mut command, &directory.join("output"), "ready");
    let pages = persist_child(child);
    let tree = Tree::decode(pages.description()).expect("its description");
    (pages, tree, port)
}

fn refused(pages: &Pages, tree: &Tree, options: &Options) -> Error {
    let pid = tree.processes[0].pid;
    let existed = Path::new(&format!("/proc/{pid}")).exists();
    let error = restore(tree, pages, options)
        .map(drop)
        .expect_err("it is in the way");
    if !existed {
        assert!(
            !Path::new(&format!("/proc/{pid}")).exists(),
            "a process is left behind"
        );
    }
    error
}

/// What could not be opened again, or would be another file.
const UNOPENABLE: &str = "\
import ctypes, fcntl, mmap, os, signal, socket, time
libc = ctypes.CDLL(None)
base = os.open('.', os.O_RDONLY)
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.mkfifo(b'fifo\\xe9')
fifo = os.open(b'fifo\\xe9', os.O_RDWR)
os.mkdir(b'watched\\xe9')
libc.inotify_add_watch(libc.inotify_init(), b'watched\\xe9', 0x100)
with open(b'mapped\\xe9', 'wb+', 0) as file:
    file.write(bytes(4096))
    mapped = mmap.mmap(file.fileno(), 4096)
path = os.path.abspath('socket')
bound = socket.socket(socket.AF_UNIX)
bound.bind(path)
alone = os.open(path, os.O_PATH)
latin = socket.socket(socket.AF_UNIX)
latin.bind(b'latin\\xe9')
status = open('/proc/self/status')
fcntl.flock(status, fcntl.LOCK_SH)
notified = os.open('.', os.O_RDONLY)
fcntl.fcntl(notified, fcntl.F_NOTIFY, fcntl.DN_RENAME)
os.mkdir(b'here\\xe9')
os.chdir(b'here\\xe9')
print('ready', flush=True)
while True:
    try:
        os.stat('go', dir_fd=base)
        break
    except OSError:
        time.sleep(0.01)
os.write(fifo, b'abc')
assert os.read(fifo, 3) == b'abc' and mapped[:1] == bytes(1)";

#[test]
fn what_could_not_be_opened_again_is_named_while_the_program_runs_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("python3");
    command.current_dir(directory.path());
    let output = directory.path().join("output");
    let pid = start(command.args(["-c", UNOPENABLE]), &output, "ready").id() as i32;
    let refusal = roundtrip::refused(pid);
    for named in [
        "fifo\u{fffd}, a name that is not UTF-8",
        "watched\u{fffd} is a name that is not UTF-8",
        "mapped\u{fffd}, a name that is not UTF-8",
        "socket, the file of a unix socket, by O_PATH",
        "latin\\xe9, a name that is not UTF-8",
        "/status) has a lock",
        "a directory with a receiver of signals (F_NOTIFY)",
        "its cwd is",
    ] {
        assert!(refusal.contains(named), "{named}: {refusal}");
    }
    fs::write(directory.path().join("go"), "").expect("go");
    roundtrip::assert_good_end(pid, &output);
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pages, tree, port) = persisted(directory.path());
    let options = Options::default();

    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    let error = refused(&pages, &tree, &options).to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{port}")) && error.contains("in use"),
        "{error}"
    );
    drop(listener);

    let data = directory.path().join("data");
    let aside = directory.path().join("aside");
    fs::rename(&data, &aside).expect("moved");
    let error = refused(&pages, &tree, &options).to_string();
    assert!(error.contains(&data.display().to_string()), "{error}");
    fs::rename(&aside, &data).expect("moved back");

    let mut other = tree.clone();
    other.kernel = Kernel {
        vdso_digest: 1,
        release: "5.4.0-old".to_owned(),
        ..other.kernel
    };
    let error = refused(&pages, &other, &options).to_string();
    assert!(
        error.contains("5.4.0-old") && error.contains("vdso"),
        "{error}"
    );

    let mut other = tree.clone();
    other.kernel.xstate_features |= 1 << 62;
    let error = refused(&pages, &other, &options).to_string();
    assert!(error.contains("register features"), "{error}");

    // A mapping that cannot be made: the recreated processes fail, not we.
    let mut other = tree.clone();
    other.processes[0].directory = directory.path().join("port").display().to_string();
    let error = refused(&pages, &other, &options).to_string();
    assert!(
        error.contains("enter its directory") && error.contains("Not a directory"),
        "{error}"
    );

    let restored = recreate(&pages);
    let root = restored.root;
    restored.tree.thaw();
    let error = refused(&pages, &tree, &options).to_string();
    assert!(
        error.contains(&format!("PID {root} is taken by python3")),
        "{error}"
    );
    assert_eq!(finish(root, Duration::ZERO), None, "it was running");

    fs::write(&data, "other data").expect("written");
    let error = refused(&pages, &tree, &options);
    assert!(
        matches!(&error, Error::Changed { path, .. } if *path == data.display().to_string()),
        "{error}"
    );
    let accept = Options {
        accept_changed_files: true,
        ..Options::default()
    };
    let restored = restore(&tree, &pages, &accept).expect("the change is accepted");
    restored.tree.kill();
}
