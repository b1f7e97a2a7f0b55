//! Freezing leaves nothing running, and a program does not notice it.

mod common;

use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use common::{Killed, compile};
use dormouse_process::ptrace::FrozenTree;

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
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(40));
        let mut tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
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
    std::thread::sleep(Duration::from_millis(100));
    let file = std::fs::File::open(&path).expect("the counter");
    let mut last = 0;
    for round in 0..30 {
        std::thread::sleep(Duration::from_millis(7 + round % 5));
        let tree = FrozenTree::freeze(&[child.pid()]).expect("frozen");
        let first = counter(&file);
        assert!(
            first > last,
            "round {round}: the program did not run in between"
        );
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(counter(&file), first, "something runs in a frozen tree");
        last = first;
        tree.thaw();
    }
    // SAFETY: no memory involved.
    unsafe { libc::kill(-child.pid(), libc::SIGKILL) };
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
