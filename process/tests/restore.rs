//! A program that was persisted, killed and recreated continues unchanged.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use common::{compile, until};
use dormouse_process::procfs;
use dormouse_process::ptrace::FrozenTree;
use roundtrip::{assert_good_end, finish, refused, start, through_death, wait_for};

/// Objects of System V are known by the processes that have touched them, and here all trackers are one process: the
/// test that has some is alone.
static SYSTEM_V: RwLock<()> = RwLock::new(());

/// Of `waits.c`: the thread that waits by `syscall()`.
const FUTEX: &str = "4";

fn beside() -> RwLockReadGuard<'static, ()> {
    SYSTEM_V.read().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_sleeping_shell_goes_on() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let script = "i=0; while [ $i -lt 20 ]; do echo line $i $$; i=$((i+1)); sleep 0.05; \
         [ $i = 4 ] && until [ -e go ]; do sleep 0.05; done; done; echo end";
    let child = start(
        Command::new("bash")
            .args(["-c", script])
            .current_dir(directory.path()),
        &output,
        "line 3 ",
    );
    let pid = child.id();
    let root = through_death(child);
    assert_eq!(root as u32, pid);
    std::fs::write(directory.path().join("go"), "").expect("go");
    assert_good_end(root, &output);
    let text = std::fs::read_to_string(&output).expect("the output");
    let wanted: String = (0..20).map(|i| format!("line {i} {pid}\n")).collect();
    assert_eq!(text, wanted + "end\n");
}

/// How many threads of a process are in a system call.
fn count_in(pid: i32, call: libc::c_long) -> usize {
    let is_in = |tid: &i32| {
        let now = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        now.is_ok_and(|now| now.split(' ').next() == Some(&call.to_string()))
    };
    let threads = procfs::threads(pid).expect("it lives");
    threads.iter().filter(|tid| is_in(tid)).count()
}

/// `waits.c`, with all its threads in their waits; one may be left out.
fn waits(directory: &Path, output: &Path, left_out: &str) -> Child {
    let program = compile(directory, "waits.c");
    // Long enough that no wait is over before all of them are seen, also on a busy machine.
    let child = start(Command::new(program).args(["8", left_out]), output, "");
    let pid = child.id() as i32;
    until("all waits", || {
        // The main thread waits for the others in a futex.
        let futexes = if left_out == FUTEX { 1 } else { 2 };
        let wanted = [
            (libc::SYS_clock_nanosleep, 1),
            (libc::SYS_poll, 1),
            (libc::SYS_ppoll, 1),
            (libc::SYS_epoll_wait, 1),
            (libc::SYS_read, 1),
            (libc::SYS_futex, futexes),
        ];
        let all = wanted
            .iter()
            .all(|(call, count)| count_in(pid, *call) == *count);
        all && procfs::threads(pid).expect("it lives").len() == 9
    });
    child
}

/// Waits until this many threads go on with a timed wait that was interrupted.
fn until_resumed(pid: i32, count: usize) {
    until("resumed waits", || {
        count_in(pid, libc::SYS_restart_syscall) == count
    });
}

#[test]
fn threads_in_all_kinds_of_waits_go_on_waiting() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let child = waits(directory.path(), &output, "-1");
    let root = through_death(child);
    assert_good_end(root, &output);
}

/// As every epoch interrupts them: the second time their registers no longer say which call it is.
#[test]
fn waits_that_were_interrupted_before_go_on_waiting() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let child = waits(directory.path(), &output, "-1");
    let pid = child.id() as i32;
    FrozenTree::freeze(&[pid]).expect("frozen").thaw();
    until_resumed(pid, 3);
    FrozenTree::freeze(&[pid]).expect("frozen").thaw();
    // Also while the kernel is about to make the call.
    let root = through_death(child);
    assert_good_end(root, &output);
}

/// Whether the C library's code has the number of the call just before the call. Since 2.41 its calls that
/// a thread can be cancelled in are made at one place, which takes the number from a register.
fn code_tells_the_call() -> bool {
    // SAFETY: a constant text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_str().expect("a version");
    let mut numbers = version.split('.').map(|number| number.parse::<u32>());
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        panic!("not understood: {version}");
    };
    (major, minor) < (2, 41)
}

/// A shell that stops and continues a job interrupts its waits, too. What the C library calls may be known
/// by its code; `syscall()` takes the number from a register.
#[test]
fn waits_that_something_else_interrupted_go_on_or_are_refused() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    for (left_out, count) in [("-1", 3), (FUTEX, 2)] {
        let child = waits(directory.path(), &output, left_out);
        let pid = child.id() as i32;
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: no memory involved.
            unsafe { libc::kill(pid, signal) };
            until("the signal's effect", || {
                let stat = procfs::stat(pid, pid).expect("it lives");
                (stat.state == 'T') == (signal == libc::SIGSTOP)
            });
        }
        until_resumed(pid, count);
        if left_out == FUTEX && code_tells_the_call() {
            let root = through_death(child);
            finish(root, Duration::from_secs(60));
        } else {
            let refusal = refused(pid);
            assert!(
                refusal.contains("in a wait that something else interrupted"),
                "{refusal}"
            );
            let mut child = child;
            child.wait().expect("it ends");
        }
        // The stop itself ends epoll_wait with EINTR.
        let text = std::fs::read_to_string(&output).expect("the output");
        let timed = ["poll:", "nanosleep:", "futex:"];
        let early = text
            .lines()
            .find(|line| timed.iter().any(|wait| line.starts_with(wait)));
        assert_eq!(early, None, "{text}");
    }
}

/// A program that checks itself: it says "ready", waits for the file "go", and ends with 0 if all
/// is right.
fn checks_itself(source: &str) {
    let _beside = beside();
    checks_itself_alone(source);
}

fn checks_itself_alone(source: &str) {
    checks_itself_in(source);
}

/// The same; returns the program's directory.
fn checks_itself_in(source: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), source);
    let output = directory.path().join("output");
    let child = start(
        Command::new(program).current_dir(directory.path()),
        &output,
        "ready",
    );
    let pid = child.id() as i32;
    let root = through_death(child);
    assert_eq!(root, pid);
    std::fs::write(directory.path().join("go"), "").expect("go");
    assert_good_end(root, &output);
    directory
}

#[test]
fn every_kind_of_open_file_and_of_process_state_is_as_it_was() {
    checks_itself("files.c");
}

#[test]
fn threads_with_vector_registers_and_futexes_compute_on() {
    checks_itself("vectors.cpp");
}

#[test]
fn seals_and_locks_of_memory_are_as_they_were() {
    let _alone = SYSTEM_V.write().unwrap_or_else(PoisonError::into_inner);
    checks_itself_alone("sealed.c");
}

#[test]
fn details_of_open_files_are_as_they_were() {
    checks_itself("descriptions.c");
}

/// Such as the times of last access.
#[test]
fn an_epoch_leaves_details_of_open_files() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "descriptions.c");
    let output = directory.path().join("output");
    let mut command = Command::new(program);
    let pid = start(command.current_dir(directory.path()), &output, "ready").id() as i32;
    roundtrip::epoch(pid);
    std::fs::write(directory.path().join("go"), "").expect("go");
    assert_good_end(pid, &output);
}

#[test]
fn processor_flags_of_each_thread_are_as_they_were() {
    checks_itself("flags.c");
}

#[test]
fn a_tree_of_twenty_processes_passes_its_token_on() {
    checks_itself("family.c");
}

#[test]
fn details_that_only_the_program_sees_are_as_they_were() {
    checks_itself("details.c");
}

#[test]
fn rare_states_of_descriptors_sockets_and_children_are_as_they_were() {
    checks_itself("rarities.c");
}

#[test]
fn memory_semaphores_and_messages_of_system_v_and_posix_are_as_they_were() {
    let _alone = SYSTEM_V.write().unwrap_or_else(PoisonError::into_inner);
    checks_itself_alone("ipc.c");
}

#[test]
fn messages_of_posix_queues_and_adjustments_of_semaphores_are_as_they_were() {
    let _alone = SYSTEM_V.write().unwrap_or_else(PoisonError::into_inner);
    let directory = checks_itself_in("queues.c");
    // Written by its child, after the program has ended.
    let result = directory.path().join("result");
    wait_for(&result, "at the end");
    let text = std::fs::read_to_string(result).expect("it is there");
    assert_eq!(text, "0 differences at the end\n");
}

#[test]
fn what_was_removed_or_is_under_way_or_forbidden_is_as_it_was() {
    checks_itself("removed.c");
}

#[test]
fn shared_tables_unread_events_and_sockets_with_addresses_are_as_they_were() {
    checks_itself("shared.c");
}

/// A page without a private copy is the object's, also where the object is anonymous memory that
/// was opened through `map_files`.
#[test]
fn private_mappings_of_shared_memory_have_their_own_pages_and_the_objects_others() {
    checks_itself("private_of_shared.c");
}

#[test]
fn settings_of_processes_and_threads_are_as_they_were() {
    checks_itself("settings.c");
}

#[test]
fn directories_ends_of_children_and_absolute_timers_are_as_they_were() {
    checks_itself("births.c");
}

/// Each is named, and the program runs on.
#[test]
fn what_threads_have_for_themselves_is_refused_by_name() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), "refused.c");
    for (kind, words) in [
        ("net", "in another net namespace than the main thread"),
        ("uts", "in another uts namespace than the main thread"),
        ("ipc", "in another ipc namespace than the main thread"),
        ("mnt", "has a current directory, root and umask of its own"),
        (
            "directory",
            "has a current directory, root and umask of its own",
        ),
        (
            "pid-for-children",
            "its children will be in another PID namespace",
        ),
        (
            "time-for-children",
            "its children will be in another time namespace",
        ),
        (
            "other-clocks",
            "its clocks are others than those of the first process",
        ),
        (
            "shared-directory",
            "it shares the current directory, root and umask of process",
        ),
        ("dispatch", "dispatches its system calls to itself"),
        ("segments", "it has segments of its own"),
        ("keyring", "has a thread keyring"),
        (
            "death-signal",
            "has asked for a signal at the end of its parent, which is not the main",
        ),
        ("task-directory", "of a thread other than the main thread"),
        ("task-file", "a file of a thread other than the main thread"),
        ("thread-pidfd", "a thread other than the main thread"),
        ("outer-pidfd", "a process that is not of the tree"),
        ("timer-clock", "measures a thread or process that has ended"),
        ("timer-thread", "signals thread"),
        ("zombie", "its parent gets another signal than SIGCHLD"),
    ] {
        let go = directory.path().join("go");
        let output = directory.path().join("output");
        let mut command = Command::new(&program);
        command.arg(kind).current_dir(directory.path());
        let mut child = start(&mut command, &output, "\n");
        let text = std::fs::read_to_string(&output).expect("the output");
        assert!(text.contains("ready"), "{kind}: {text}");
        let refusal = refused(child.id() as i32);
        std::fs::write(&go, "").expect("go");
        let status = child.wait().expect("its end");
        let text = std::fs::read_to_string(&output).expect("the output");
        std::fs::remove_file(&go).expect("removed");
        assert!(refusal.contains(words), "{kind}: {refusal}");
        assert!(status.success(), "{kind}: {text}");
    }
}
