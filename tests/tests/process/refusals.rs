//! An obstacle to a restore or a persist is named; without it the same state is restored. Each test
//! starts from the command, and checks the documented exit code.

use std::fs::{self, File, FileTimes, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_process::state::Tree;
use dormouse_process::store::{Access, Snapshot, Store};
use dormouse_tests::alone::alone;
use dormouse_tests::dormouse_path;
use dormouse_tests::occupied::Occupied;
use dormouse_tests::program::Program;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// Has a file open and listens on a port, and counts aloud. Grows on request.
const SCRIPT: &str = "
import os, socket, sys, time
data = open(sys.argv[1] + '/data', 'r+')
server = socket.create_server(('127.0.0.1', int(sys.argv[2])))
count, more = 0, b''
while True:
    if not more and os.path.exists(sys.argv[1] + '/grow'):
        more = os.urandom(128 << 20)
    count += 1
    print('at', count, os.getpid(), len(more), flush=True)
    time.sleep(0.02)
";

/// A program that counts, its store, its file and its port.
struct Counter {
    program: Program,
    directory: TempDir,
    port: u16,
}

impl Counter {
    /// Started, and has counted a little.
    fn running(store: Option<&Path>, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its mode");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        fs::write(directory.path().join("data"), "some data").expect("the data");
        let place = directory.path().display().to_string();
        let options = [&["--on-power-loss", "none"], options].concat();
        let command = ["python3", "-c", SCRIPT, &place, &port.to_string()];
        let store = store.unwrap_or(directory.path());
        let mut program = Program::new(alone(), store, "it", &options, &command);
        // The store's file system may be full.
        program.set_output(&directory.path().join("output"));
        program.run();
        assert!(program.wait_for("at", 3), "{}", program.said());
        Self {
            program,
            directory,
            port,
        }
    }

    /// Persisted and killed.
    fn persisted(store: Option<&Path>) -> Self {
        let mut counter = Self::running(store, &[]);
        counter.program.persist_and_kill("persist");
        counter
    }

    /// It counts on, and is then persisted and killed.
    fn counts_and_is_killed(&mut self) {
        let program = &mut self.program;
        assert!(program.wait_for("at", 2), "{}", program.said());
        program.persist_and_kill("persist");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it has counted: numbers, and the PIDs of the counting processes.
    fn counted(&self) -> Vec<(u64, i32)> {
        let said = self.program.said();
        let lines = said.lines().filter_map(|line| line.strip_prefix("at "));
        lines
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect()
    }

    fn pid(&self) -> i32 {
        self.counted().last().expect("it has counted").1
    }

    fn grow(&mut self) {
        fs::write(self.path("grow"), "").expect("grow");
        self.program.until("grown", has_grown);
    }

    /// It is refused, with this exit code and these words.
    fn refused(&self, code: i32, words: &[&str]) {
        let said = self.program.refused(&[]);
        assert_eq!(said.code, code, "{}", said.all());
        for word in words {
            assert!(said.stderr.contains(word), "no {word:?}: {}", said.all());
        }
        let process = format!("/proc/{}/cmdline", self.pid());
        let left = fs::read_to_string(process).unwrap_or_default();
        assert!(!left.contains("python3"), "a process is left behind");
    }

    /// The state was not touched: the same process counts on from where it stood.
    fn goes_on(mut self) {
        self.program.run();
        self.has_gone_on();
    }

    fn has_gone_on(mut self) {
        assert!(self.program.wait_for("at", 3), "{}", self.program.said());
        let counted = self.counted();
        for pair in counted.windows(2) {
            assert_eq!(
                (pair[0].0 + 1, pair[0].1),
                pair[1],
                "{}",
                self.program.said()
            );
        }
        self.program.cut(false);
    }
}

#[test]
fn a_pid_that_is_taken_is_named_with_its_holder_and_the_state_is_kept() {
    let counter = Counter::persisted(None);
    let pid = counter.pid();
    let mut holder = Occupied::number(pid);
    counter.refused(1, &[&format!("PID {pid} is taken by sleep")]);
    assert!(holder.lives(), "the process that has it is left alone");
    drop(holder);
    counter.goes_on();
}

/// What was killed has its number until its parent, which is this test, has taken its end.
#[test]
fn a_killed_program_is_waited_for_and_a_zombie_that_stays_is_named() {
    let mut counter = Counter::running(None, &[]);
    let said = counter.program.verb("persist", &["--then", "stop"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let program = Pid::from_raw(counter.pid()).expect("not zero");
    let tracker = Pid::from_raw(counter.program.tracker()).expect("not zero");
    for pid in [tracker, program] {
        kill_process(pid, Signal::KILL).expect("it lives");
    }
    counter.program.wait();
    let parent = std::process::id();
    let words = format!(
        "PID {} is taken by python3, a zombie of process {parent}",
        counter.pid()
    );
    counter.refused(1, &[&words]);
    counter.program.run();
    waitpid(Some(program), WaitOptions::empty()).expect("our child");
    counter.has_gone_on();
}

#[test]
fn a_file_that_is_missing_is_named_and_the_state_is_kept() {
    let counter = Counter::persisted(None);
    let (data, aside) = (counter.path("data"), counter.path("aside"));
    fs::rename(&data, &aside).expect("moved");
    counter.refused(1, &[&data.display().to_string(), "No such file"]);
    fs::rename(&aside, &data).expect("moved back");
    counter.goes_on();
}

#[test]
fn a_file_that_has_changed_is_named_and_can_be_accepted() {
    let mut counter = Counter::persisted(None);
    let data = counter.path("data");
    let before = fs::metadata(&data)
        .expect("it")
        .modified()
        .expect("its time");
    fs::write(&data, "other data").expect("written");
    counter.refused(
        1,
        &[
            &data.display().to_string(),
            "has changed",
            "10 bytes and had 9",
        ],
    );
    fs::write(&data, "same size").expect("written");
    counter.refused(1, &[&data.display().to_string(), "it was written to"]);
    // The file as it was, in content, length and time.
    fs::write(&data, "some data").expect("written");
    let file = File::options().write(true).open(&data).expect("it");
    file.set_times(FileTimes::new().set_modified(before))
        .expect("its time");
    counter.program.run();
    counter.counts_and_is_killed();
    // Or the change is accepted.
    fs::write(&data, "other data").expect("written");
    counter.refused(1, &["has changed"]);
    let options = ["--on-power-loss", "none", "--accept-changed-files"];
    counter.program.set_options(&options);
    counter.goes_on();
}

#[test]
fn a_port_that_is_taken_is_named_and_the_state_is_kept() {
    let counter = Counter::persisted(None);
    let taken = TcpListener::bind(("127.0.0.1", counter.port)).expect("the port is free");
    counter.refused(1, &[&format!("127.0.0.1:{}", counter.port), "in use"]);
    drop(taken);
    counter.goes_on();
}

#[test]
fn a_state_of_another_kernel_is_refused_with_its_release_and_kept() {
    let counter = Counter::persisted(None);
    // What the store would hold had it been written under another kernel.
    let change = |how: &dyn Fn(&mut Tree)| {
        let path = counter.path("it.store");
        let mut store = Store::open(&path, "it", Access::Write, None).expect("the store");
        let epoch = store.snapshot().expect("an epoch");
        let mut tree = Tree::decode(epoch.description()).expect("its description");
        let last_space = store.root().expect("a root").last_space;
        drop(epoch);
        how(&mut tree);
        store
            .commit(
                &tree.encode(),
                dormouse_process::store::Cause::Persist,
                last_space,
            )
            .expect("committed");
        tree.kernel.release
    };
    let release = change(&|_| {});
    change(&|tree| {
        tree.kernel.release = "5.10.0-other".to_owned();
        tree.kernel.vdso_digest ^= 1;
    });
    counter.refused(3, &["Linux 5.10.0-other", "vdso", "boot that kernel"]);
    change(&|tree| {
        tree.kernel.release.clone_from(&release);
        tree.kernel.vdso_digest ^= 1;
        tree.kernel.xstate_features |= 1 << 62;
    });
    counter.refused(3, &["register features 0x4"]);
    change(&|tree| tree.kernel.xstate_features &= !(1 << 62));
    counter.goes_on();
}

#[test]
fn another_user_is_told_whose_it_is_or_which_right_is_missing_and_the_state_is_kept() {
    const NOBODY: u32 = 65_534;
    let counter = Counter::persisted(None);
    let copy = counter.path("dormouse");
    fs::copy(dormouse_path(), &copy).expect("copied");
    let by_nobody = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command.uid(NOBODY).gid(NOBODY);
        let said = counter.program.refused_by(command, &["--"]);
        for word in words {
            assert!(said.stderr.contains(word), "no {word:?}: {}", said.all());
        }
        said.code
    };
    let store = counter.path("it.store");
    let mode = fs::metadata(&store).expect("the store").mode() & 0o777;
    assert_eq!(
        mode, 0o600,
        "other users cannot read the memory of a program"
    );
    assert_eq!(by_nobody(&["it.store", "user 0", "user 65534"]), 1);
    // Its own file does not give the user the capabilities that a restore needs.
    chown(&store, Some(NOBODY), Some(NOBODY)).expect("root");
    assert_eq!(by_nobody(&["CAP_SYS_PTRACE"]), 3);
    chown(&store, Some(0), Some(0)).expect("root");
    counter.goes_on();
}

#[test]
fn a_store_that_is_full_says_so_and_keeps_the_last_epoch() {
    let mut counter = full(Counter::running(None, &["--store-size", "48MiB"]));
    // A larger one takes the same state, and what has grown.
    let options = ["--on-power-loss", "none", "--store-size", "1GiB"];
    counter.program.set_options(&options);
    counter.program.cut(false);
    counter.program.run();
    counter.grow();
    counter.program.persist_and_kill("persist");
    counter.program.run();
    assert!(
        counter.program.wait_for("at", 2),
        "{}",
        counter.program.said()
    );
    assert!(has_grown(&counter.program));
}

/// Whether it has said so with its last line.
fn has_grown(program: &Program) -> bool {
    let said = program.said();
    let last = said.lines().rfind(|line| line.starts_with("at "));
    last.is_some_and(|line| line.ends_with(" 134217728"))
}

/// It grows beyond its store: a persist says so, the program goes on, and the epoch from before
/// restores.
fn full(mut counter: Counter) -> Counter {
    let before = counter.counted().len() as u64;
    let said = counter.program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    counter.grow();
    for then in ["continue", "stop", "kill"] {
        let said = counter.program.verb("persist", &["--then", then]);
        assert_eq!(said.code, 1, "{}", said.all());
        for word in [
            "it.store: full",
            "more bytes are needed",
            "last complete epoch is kept",
        ] {
            assert!(said.stderr.contains(word), "no {word:?}: {}", said.all());
        }
        assert!(
            counter.program.wait_for("at", 2),
            "{then}: {}",
            counter.program.said()
        );
    }
    let most = counter.counted().len() as u64;
    counter.program.cut(false);
    fs::remove_file(counter.path("grow")).expect("no more");
    counter.program.run();
    assert!(
        counter.program.wait_for("at", 1),
        "{}",
        counter.program.said()
    );
    assert!(!has_grown(&counter.program), "{}", counter.program.said());
    let first = counter.counted()[most as usize..]
        .iter()
        .map(|(at, _)| *at)
        .min();
    let first = first.expect("it counts");
    assert!(
        before < first && first <= most,
        "{first}: {}",
        counter.program.said()
    );
    counter
}

/// A small file system of its own.
struct Mounted {
    directory: TempDir,
}

impl Mounted {
    fn new(size: &str) -> Self {
        let mounted = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        mounted.mount(&[
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size}"),
            "dormouse-test",
        ]);
        mounted
    }

    fn mount(&self, words: &[&str]) {
        let status = Command::new("mount")
            .args(words)
            .arg(self.directory.path())
            .status();
        assert!(status.expect("mount").success(), "mount {words:?}");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.directory.path())
            .status();
    }
}

#[test]
fn a_file_system_that_is_full_says_so_and_keeps_the_last_epoch() {
    let small = Mounted::new("64m");
    full(Counter::running(Some(small.directory.path()), &[]));
}

#[test]
fn a_store_on_a_read_only_file_system_is_named_and_the_state_is_kept() {
    let medium = Mounted::new("256m");
    let counter = Counter::persisted(Some(medium.directory.path()));
    medium.mount(&["-o", "remount,ro"]);
    counter.refused(1, &["it.store", "read-only", "another --store"]);
    // Looking is no writing.
    let said = counter.program.verb("verify", &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    medium.mount(&["-o", "remount,rw"]);
    counter.goes_on();
}

#[test]
fn a_second_tracker_is_refused_with_the_name_of_the_first_which_continues() {
    let mut counter = Counter::running(None, &[]);
    let tracker = format!("in use by process {} (dormouse)", counter.program.tracker());
    let said = counter.program.refused(&[]);
    assert_eq!(said.code, 1, "{}", said.all());
    assert!(said.stderr.contains(&tracker), "{}", said.all());
    let said = counter.program.refused(&["--fresh"]);
    assert_eq!(said.code, 1, "{}", said.all());
    for verb in ["remove", "verify"] {
        let said = counter.program.verb(verb, &[]);
        assert_eq!(said.code, 1, "{verb}: {}", said.all());
        assert!(said.stderr.contains(&tracker), "{verb}: {}", said.all());
    }
    counter.counts_and_is_killed();
    counter.goes_on();
}

#[test]
fn a_program_that_cannot_be_started_costs_no_state_and_leaves_no_store() {
    let counter = Counter::persisted(None);
    for (name, option) in [("it", Some("--fresh")), ("misspelt", None)] {
        let said = Command::new(dormouse_path())
            .args(["process", "run", name, "--store"])
            .arg(counter.directory.path())
            .args(option)
            .args(["--", "/no/such/program"])
            .output()
            .expect("dormouse runs");
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(1), "{text}");
        assert!(text.contains("cannot run /no/such/program"), "{text}");
    }
    assert!(!counter.path("misspelt.store").exists());
    counter.goes_on();
}
