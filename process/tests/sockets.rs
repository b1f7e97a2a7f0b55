//! Sockets in states that few programs bring them into: restored, or refused while the program goes on.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::path::Path;
use std::process::{Child, Command};

use common::compile;
use roundtrip::{assert_good_end, epoch, refused, start, through_death};

/// Starts a program that checks itself when there is a file "go", and ends with the number of differences.
fn started(directory: &Path, source: &str, argument: &str) -> Child {
    let program = compile(directory, source);
    let mut command = Command::new(program);
    command.current_dir(directory).arg(argument);
    start(&mut command, &directory.join("output"), "ready")
}

/// Has the program, which was not killed, check itself.
fn goes_on_well(directory: &Path, mut child: Child) {
    std::fs::write(directory.join("go"), "").expect("go");
    let status = child.wait().expect("it ends");
    let output = std::fs::read_to_string(directory.join("output")).unwrap_or_default();
    assert!(status.success(), "it did not end well: {output}");
}

/// Restored after several epochs.
fn is_as_it_was_after_death(source: &str, argument: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let child = started(directory.path(), source, argument);
    if !argument.is_empty() {
        epoch(child.id() as i32);
    }
    let root = through_death(child);
    std::fs::write(directory.path().join("go"), "").expect("go");
    assert_good_end(root, &directory.path().join("output"));
}

#[test]
fn unread_data_and_what_follows_it_is_as_it_was() {
    is_as_it_was_after_death("unread.c", "");
    is_as_it_was_after_death("unread.c", "several");
}

#[test]
fn options_that_few_programs_set_are_as_they_were() {
    is_as_it_was_after_death("socket_options.c", "several");
}

#[test]
fn an_epoch_takes_nothing_from_the_queues_of_a_program_that_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let child = started(directory.path(), "unread.c", "several");
    for _ in 0..2 {
        epoch(child.id() as i32);
    }
    goes_on_well(directory.path(), child);
}

#[test]
fn empty_messages_that_an_epoch_has_seen_are_refused_until_they_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let child = started(directory.path(), "unread.c", "");
    epoch(child.id() as i32);
    let refusal = refused(child.id() as i32);
    assert!(refusal.contains("unread empty messages"), "{refusal}");
    goes_on_well(directory.path(), child);
}

#[test]
fn what_cannot_be_restored_is_refused_and_the_program_goes_on() {
    for (kind, named) in [
        ("urgent", "urgent data"),
        ("mark", "urgent data"),
        ("unix-urgent", "out of band"),
        ("credentials", "sender's credentials"),
        ("held-back", "held back"),
        ("error-queue", "MSG_ERRQUEUE"),
        (
            "error-and-datagram",
            "an error that the program has not read",
        ),
        ("not-accepted", "has not accepted"),
        ("elsewhere", "another network namespace"),
        ("keys", "TCP_MD5SIG"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let child = started(directory.path(), "odd_sockets.c", kind);
        let refusal = refused(child.id() as i32);
        assert!(refusal.contains(named), "{kind}: {refusal}");
        goes_on_well(directory.path(), child);
    }
}
