//! The parent that a program sees: its tracker, which has the same number in each of its lives.

use std::path::Path;

use dormouse_tests::occupied::Occupied;
use dormouse_tests::program::Program;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Root and orphan print the number of their parent.
const SCRIPT: &str = "
import os, time
def live(name):
    while True:
        os.write(1, b'%s %d of %d\\n' % (name, os.getpid(), os.getppid()))
        time.sleep(0.02)
if os.fork() == 0:
    if os.fork() == 0:
        live(b'orphan')
    os._exit(0)
os.wait()
live(b'root')
";

fn program(directory: &Path) -> Program {
    Program::script(directory, "60min", SCRIPT, &[])
}

/// Runs it, and waits until both have spoken; the parents that they have seen in this life.
fn parents(program: &mut Program) -> Vec<i32> {
    let before = program.said().len();
    program.run();
    let of = |said: &str, name: &str| -> Vec<i32> {
        let lines = said.lines().filter(|line| line.starts_with(name));
        lines
            .filter_map(|line| line.split_once(" of ")?.1.parse().ok())
            .collect()
    };
    program.until("both speak", |program| {
        let said = &program.said()[before..];
        // The first word after a restore may be from before it.
        of(said, "root").len() > 2 && of(said, "orphan").len() > 2
    });
    let said = &program.said()[before..];
    ["root", "orphan"].map(|name| of(said, name)).concat()
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("not zero")
}

fn state(number: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
    rest.chars().next().unwrap_or('-')
}

#[test]
fn the_program_and_its_orphans_see_the_same_parent_in_each_life() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = program(directory.path());
    parents(&mut program);
    let tracker = program.tracker();
    assert_eq!(tracker, program.started());
    for life in 0..4 {
        if life % 2 == 0 {
            program.persist_and_kill(&format!("life {life}"));
        } else {
            let said = program.verb("persist", &[]);
            assert_eq!(said.code, 0, "{}", said.all());
            program.cut(life == 1);
        }
        let seen = parents(&mut program);
        assert!(
            seen.iter().all(|parent| *parent == tracker),
            "{seen:?} of {tracker}"
        );
        assert_eq!(program.tracker(), tracker);
        assert_ne!(program.started(), tracker);
    }
}

#[test]
fn a_number_of_the_parent_that_is_taken_is_named_and_the_program_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = program(directory.path());
    parents(&mut program);
    let tracker = program.tracker();
    program.persist_and_kill("the first life");
    let occupied = Occupied::number(tracker);
    parents(&mut program);
    assert_ne!(program.tracker(), tracker);
    let words = format!("the number of the program's parent, {tracker}, cannot be had again");
    assert!(program.said().contains(&words), "{}", program.said());
    drop(occupied);
    // What it sees now is what it has.
    let tracker = program.tracker();
    program.persist_and_kill("the second life");
    let last = parents(&mut program).pop();
    assert_eq!(last, Some(tracker), "{}", program.said());
}

#[test]
fn what_was_started_hands_signals_on_stops_and_ends_as_the_tracker_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut program = program(directory.path());
    parents(&mut program);
    program.persist_and_kill("the first life");
    parents(&mut program);

    let (tracker, started) = (program.tracker(), program.started());
    kill_process(pid(tracker), Signal::STOP).expect("it lives");
    program.until("stopped", |_| {
        state(tracker) == 'T' && state(started) == 'T'
    });
    kill_process(pid(started), Signal::CONT).expect("it lives");
    program.until("continued", |_| {
        state(tracker) != 'T' && state(started) != 'T'
    });
    let said = program.verb("persist", &[]);
    assert_eq!(said.code, 0, "{}", said.all());

    // With the sender of a signal that ends the tracker.
    kill_process(pid(started), Signal::USR1).expect("it lives");
    assert_eq!(program.wait(), -1, "a signal ends it: {}", program.said());
    let words = format!("is ended by SIGUSR1 from process {};", std::process::id());
    assert!(program.said().contains(&words), "{}", program.said());
    program.cut(false);

    // Neither outlives the other.
    parents(&mut program);
    let (tracker, started) = (program.tracker(), program.started());
    kill_process(pid(started), Signal::KILL).expect("it lives");
    assert_eq!(program.wait(), -1, "{}", program.said());
    let ended = waitpid(Some(pid(tracker)), WaitOptions::empty()).expect("our own child now");
    let (_, status) = ended.expect("waited for");
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
    program.cut(false);
    parents(&mut program);
    kill_process(pid(program.tracker()), Signal::KILL).expect("it lives");
    assert_eq!(program.wait(), -1, "{}", program.said());
    let words =
        "the tracker was killed by signal 9, and its program, if it lives, is tracked no more";
    assert!(program.said().contains(words), "{}", program.said());
    program.cut(false);
}

#[test]
fn the_exit_code_of_a_restored_program_is_that_of_the_command() {
    const ENDS: &str = "
import os, sys, time
print('ready', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.exit(7)
";
    let directory = tempfile::tempdir().expect("a directory");
    let end = directory.path().join("end");
    let arguments = [end.to_str().expect("a path")];
    let mut program = Program::script(directory.path(), "60min", ENDS, &arguments);
    program.run();
    assert!(program.wait_for("ready", 1), "{}", program.said());
    program.persist_and_kill("the first life");
    program.run();
    std::fs::write(&end, "").expect("a file");
    assert_eq!(program.wait(), 7, "{}", program.said());
}
