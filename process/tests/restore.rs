//! A program that was persisted, killed and recreated goes on as if nothing had happened.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::compile;
use roundtrip::{finish, persist, recreate};

/// Starts a program with its output in a file, and waits until that holds a word.
fn start(command: &mut Command, output: &Path, word: &str) -> Child {
    // As the tracker does: orphans come to us.
    // SAFETY: no memory involved.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let file = std::fs::File::create(output).expect("an output file");
    let child = command
        .stdin(Stdio::null())
        .stderr(file.try_clone().expect("a copy"))
        .stdout(file)
        .spawn()
        .expect("the program");
    wait_for(output, word);
    child
}

fn wait_for(output: &Path, word: &str) {
    let started = Instant::now();
    while !std::fs::read_to_string(output)
        .unwrap_or_default()
        .contains(word)
    {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no {word:?} in {:?}",
            std::fs::read_to_string(output)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Persists, kills, recreates and lets run; returns the root.
fn through_death(child: Child) -> i32 {
    let pages = persist(child.id() as i32);
    // Killing the tree has waited for it.
    drop(child);
    let restored = recreate(&pages);
    restored.tree.thaw();
    restored.root
}

fn assert_good_end(root: i32, output: &Path) {
    let status = finish(root, Duration::from_secs(30));
    let text = std::fs::read_to_string(output).unwrap_or_default();
    assert_eq!(status, Some(0), "it did not end well: {text}");
}

#[test]
fn a_sleeping_shell_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let script =
        "i=0; while [ $i -lt 20 ]; do echo line $i $$; i=$((i+1)); sleep 0.05; done; echo end";
    let child = start(
        Command::new("bash").args(["-c", script]),
        &output,
        "line 3 ",
    );
    let pid = child.id();
    let root = through_death(child);
    assert_eq!(root as u32, pid);
    assert_good_end(root, &output);
    let text = std::fs::read_to_string(&output).expect("the output");
    let wanted: String = (0..20).map(|i| format!("line {i} {pid}\n")).collect();
    assert_eq!(text, wanted + "end\n");
}

#[test]
fn threads_in_all_kinds_of_waits_go_on_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let program = compile(directory.path(), "waits.c");
    let child = start(Command::new(program).arg("2"), &output, "");
    std::thread::sleep(Duration::from_millis(500));
    let root = through_death(child);
    assert_good_end(root, &output);
}

/// A program that checks itself: it says "ready", waits for the file "go", and ends with 0 if all
/// is right.
fn checks_itself(source: &str) {
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
fn a_tree_of_twenty_processes_passes_its_token_on() {
    checks_itself("family.c");
}
