//! A program that was persisted, killed and recreated continues unchanged.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use common::compile;
use dormouse_process::procfs;
use roundtrip::{assert_good_end, start, through_death, wait_for};

/// Objects of System V are known by the processes that have touched them, and here all trackers are one process: the
/// test that has some is alone.
static SYSTEM_V: RwLock<()> = RwLock::new(());

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

#[test]
fn threads_in_all_kinds_of_waits_go_on_waiting() {
    let _beside = beside();
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("output");
    let program = compile(directory.path(), "waits.c");
    // Long enough that no wait is over before all of them are seen, also on a busy machine.
    let child = start(Command::new(program).arg("8"), &output, "");
    let pid = child.id() as i32;
    while procfs::threads(pid).expect("it lives").len() < 9 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let root = through_death(child);
    assert_good_end(root, &output);
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
