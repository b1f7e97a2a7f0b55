//! Freezing leaves nothing running, and a program does not notice it.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{Killed, compile, until};
use dormouse_process::procfs;
use dormouse_process::ptrace::{FrozenTree, release_late};

/// Waits for a state; the limit is for a test that fails.
/// Waits until all threads of `waits.c` exist.
fn until_it_waits(pid: i32) {
    const THREADS: usize = 9;
    until("all threads", || {
        procfs::threads(pid).is_ok_and(|threads| threads.len() == THREADS)
    });
}

fn counter(file: &std::fs::File) -> u64 {
    let mut bytes = [0u8; 8];
    file.read_exact_at(&mut bytes, 0).expect("the counter");
    u64::from_ne_bytes(bytes)
}

#[test]
fn calls_that_run_in_a_frozen_thread_do_not_disturb_what_it_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "waits.c");
    let mut child = Killed(Command::new(program).arg("2").spawn().expect("the program"));
    until_it_waits(child.pid());
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(40));
        let mut tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
        // On a busy machine its waits are over before the last round.
        if round > 0
            && tree
                .processes
                .iter()
                .all(|process| process.threads.is_empty())
        {
            break;
        }
        for process in &mut tree.processes {
            for thread in 0..process.threads.len() {
                let tid = process.threads[thread].tid as u64;
                let pid = process.pid as u64;
                let mut call = |number| {
                    process
                        .syscall(thread, number, [0; 6])
                        .expect("it lives")
                        .expect("no error")
                };
                assert_eq!(call(libc::SYS_getpid), pid);
                assert_eq!(call(libc::SYS_gettid), tid);
            }
        }
        tree.thaw();
    }
    let status = child.0.wait().expect("its end");
    assert!(status.success(), "a wait was disturbed: {status}");
}

#[test]
fn a_wait_ends_at_its_limit_also_where_freezes_are_more_frequent_and_never_before() {
    /// Without the limit it would end in none of them.
    const FREEZES_MAX: u32 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "limits.c");
    let mut child = Killed(Command::new(program).spawn().expect("the program"));
    let mut freezes = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("our own child") {
            break status;
        }
        assert!(freezes < FREEZES_MAX, "a wait does not end");
        freezes += 1;
        // It may have ended just now.
        if let Ok(tree) = FrozenTree::freeze(&[child.pid()]) {
            tree.thaw();
        }
        std::thread::sleep(Duration::from_millis(40));
    };
    assert!(
        status.success(),
        "a wait ended early or otherwise: {status}"
    );
}

#[test]
fn a_frozen_tree_of_short_lived_threads_and_children_stands_still_and_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "spawns.c");
    let path = directory.path().join("counter");
    let child = Killed(
        Command::new(program)
            .arg(&path)
            .process_group(0)
            .spawn()
            .expect("it runs"),
    );
    until("the counter is there", || {
        std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() >= 8)
    });
    let file = std::fs::File::open(&path).expect("the counter");
    let mut last = 0;
    for round in 0..30 {
        until("it goes on", || counter(&file) != last);
        std::thread::sleep(Duration::from_millis(7 + round % 5));
        let tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
        let first = counter(&file);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(counter(&file), first, "something runs in a frozen tree");
        last = first;
        tree.thaw();
    }
    // SAFETY: no memory involved.
    unsafe { libc::kill(-child.pid(), libc::SIGKILL) };
}

/// Waits for a child's end, but not for ever.
fn end(child: Killed, each: fn()) -> ExitStatus {
    let limit = Instant::now() + Duration::from_secs(120);
    loop {
        each();
        let mut status = 0;
        // SAFETY: status lives. (The library's wait would take the stop of a tracee for its end.)
        let got = unsafe { libc::waitpid(child.pid(), &raw mut status, libc::WNOHANG) };
        if got == child.pid() && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status)) {
            // Its number may be somebody else's now.
            std::mem::forget(child);
            return ExitStatus::from_raw(status);
        }
        assert!(got >= 0, "the end of process {} was lost", child.pid());
        assert!(Instant::now() < limit, "process {} hangs", child.pid());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The kill comes at any instant of the freeze: the tracer must not take the end in place of the
/// parent.
#[test]
fn an_exit_status_is_not_lost_when_the_program_is_killed_while_it_is_being_frozen() {
    for round in 0..300u64 {
        let mut child = Killed(Command::new("sleep").arg("100").spawn().expect("sleep"));
        let pid = child.pid();
        let killer = std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_micros(round % 60 * 5);
            while Instant::now() < until {}
            // SAFETY: no memory involved.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        // It may be dead before it is stopped, or after.
        drop(FrozenTree::freeze(&[pid]));
        killer.join().expect("the killer");
        let status = child.0.wait().expect("its end is ours");
        assert_eq!(
            status.signal(),
            Some(libc::SIGKILL),
            "round {round}: {status}"
        );
    }
}

#[test]
fn a_thread_that_does_not_stop_in_time_is_named_and_runs_on_when_it_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "late.c");
    let go = directory.path().join("go");
    let child = Killed(Command::new(program).arg(&go).spawn().expect("it runs"));
    until("it waits for its child", || {
        procfs::stat(child.pid(), child.pid()).is_ok_and(|stat| stat.state == 'D')
            && procfs::children(child.pid()).is_ok_and(|children| !children.is_empty())
    });
    // The second try takes up what the first had to leave.
    for _ in 0..2 {
        let error = FrozenTree::freeze(&[child.pid()])
            .map(drop)
            .expect_err("it waits for its child")
            .to_string();
        assert!(
            error.contains(&format!("thread {}", child.pid())),
            "{error}"
        );
        assert!(error.contains("did not stop"), "{error}");
    }
    std::fs::write(go, "").expect("go");
    let status = end(child, release_late);
    assert!(status.success(), "it has missed its child's end: {status}");
}

#[test]
fn an_exit_status_is_not_lost_when_the_program_ends_while_it_is_being_frozen() {
    for round in 0..100 {
        let child = Killed(
            Command::new("sh")
                .args(["-c", "exit 7"])
                .spawn()
                .expect("a shell"),
        );
        while !FrozenTree::freeze(&[child.pid()])
            .expect("frozen")
            .processes
            .iter()
            .all(|process| process.threads.is_empty())
        {}
        let status = end(child, || {});
        assert_eq!(status.code(), Some(7), "round {round}: {status}");
    }
}

#[test]
fn a_program_that_is_killed_while_it_is_frozen_is_reaped() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "waits.c");
    let mut command = Command::new(program);
    let child = Killed(
        command
            .arg("600")
            .process_group(0)
            .spawn()
            .expect("it runs"),
    );
    let group = child.pid();
    until_it_waits(child.pid());
    let tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
    // SAFETY: no memory involved.
    unsafe { libc::kill(child.pid(), libc::SIGKILL) };
    tree.thaw();
    // On a busy machine its threads end after the thaw has given up waiting for them: then they
    // are let go by the next call, as a tracker makes it for each SIGCHLD.
    let status = end(child, release_late);
    // Its child would go on for ten minutes, with our output open.
    // SAFETY: no memory involved.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
}

#[test]
fn a_program_that_a_debugger_holds_is_refused_with_the_debuggers_name() {
    let child = Killed(Command::new("sleep").arg("100").spawn().expect("sleep"));
    let tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
    let pid = child.pid();
    let other = std::thread::spawn(move || {
        FrozenTree::freeze(&[pid])
            .map(drop)
            .expect_err("two tracers")
            .to_string()
    });
    let message = other.join().expect("the other thread");
    assert!(message.contains(&format!("process {pid}")), "{message}");
    assert!(message.contains("is traced by process"), "{message}");
    drop(tree);
    FrozenTree::freeze(&[pid]).expect("free again").kill();
}

/// Killed when it goes out of scope, and reaped if it is ours by then.
struct Adopted(i32);

impl Drop for Adopted {
    fn drop(&mut self) {
        let wait = |options| {
            // SAFETY: no memory involved.
            unsafe { libc::waitpid(self.0, std::ptr::null_mut(), options) }
        };
        // Reaped already, its number may be another's.
        if wait(libc::WNOHANG) == 0 {
            kill(self.0);
            wait(0);
        }
    }
}

/// A process that has a child; we adopt the child when it ends.
fn parent_with_child() -> (Adopted, Killed) {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).expect("a subreaper");
    let mut parent = Command::new("sh");
    parent.args([
        "-c",
        "sleep 600 >/dev/null & echo $!; exec sleep 600 >/dev/null",
    ]);
    let mut parent = Killed(parent.stdout(Stdio::piped()).spawn().expect("it runs"));
    let mut child = String::new();
    let output = parent.0.stdout.take().expect("its output");
    BufReader::new(output)
        .read_line(&mut child)
        .expect("a line");
    (Adopted(child.trim().parse().expect("a number")), parent)
}

/// Which of these are our own children.
fn own_of(pids: [i32; 2]) -> std::io::Result<Vec<i32>> {
    let mut own = procfs::children(std::process::id() as i32)?;
    own.retain(|pid| pids.contains(pid));
    Ok(own)
}

fn kill(pid: i32) {
    // SAFETY: no memory involved.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Before anything is stopped, and when everything is: the list of the roots is older than the end.
#[test]
fn an_orphan_of_a_process_that_ends_while_it_is_frozen_is_frozen_too() {
    for at in [1, 2] {
        let (adopted, parent) = parent_with_child();
        let child = adopted.0;
        let pids = [parent.pid(), child];
        let mut lists = 0;
        let tree = FrozenTree::freeze_all(|| {
            let own = own_of(pids)?;
            lists += 1;
            if lists == at {
                kill(parent.pid());
                until("the child is ours", || {
                    own_of(pids).is_ok_and(|own| own.contains(&child))
                });
            }
            Ok(own)
        });
        let tree = tree.expect("frozen");
        let state = procfs::stat(child, child).expect("it lives").state;
        let living = tree.living();
        tree.kill();
        assert_eq!((living, state), (vec![child], 't'), "at list {at}");
        assert!(lists > at, "{lists} lists");
    }
}
