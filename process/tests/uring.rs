//! Rings of io_uring come back as they were, or are refused while the program runs, which does not notice.

mod common;
#[path = "common/roundtrip.rs"]
mod roundtrip;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use common::{compile, until};
use dormouse_process::procfs;
use dormouse_process::ptrace::{FrozenTree, sys::take_fd};
use roundtrip::{assert_good_end, finish, refused, start, through_death, through_death_of};

/// The kernel counts the requests of a ring since Linux 6.16; older ones are refused by name.
fn counted() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(['.', '-'])
        .map(|text| text.parse::<u32>().unwrap_or(0));
    let version = (numbers.next(), numbers.next());
    let off = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let off = off.is_ok_and(|text| text.trim() == "2");
    if version < (Some(6), Some(16)) || off {
        eprintln!(
            "skipped: Linux {release} does not count the requests of a ring, or io_uring is off"
        );
        return false;
    }
    true
}

fn started(directory: &Path, program: &str, what: &str) -> Child {
    let compiled = compile(directory, program);
    let output = directory.join("output");
    let mut command = Command::new(compiled);
    start(command.arg(what).current_dir(directory), &output, "ready")
}

fn go(directory: &Path) {
    std::fs::write(directory.join("go"), "").expect("go");
}

#[test]
fn rings_without_requests_under_way_come_back_as_they_were() {
    if !counted() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let child = started(directory.path(), "uring.c", "");
    let root = through_death(child);
    // What was made again can be described again.
    let root = through_death_of(root);
    go(directory.path());
    assert_good_end(root, &directory.path().join("output"));
}

#[test]
fn requests_that_end_by_themselves_are_waited_for() {
    const TIMES: usize = 20;
    if !counted() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut root = started(directory.path(), "uring_busy.c", "files").id() as i32;
    for _ in 0..TIMES {
        root = through_death_of(root);
    }
    go(directory.path());
    assert_good_end(root, &directory.path().join("output"));
}

/// Whoever looks at the descriptors of a process holds their files meanwhile, and a process that forks has
/// a copy of our own until it executes its program.
#[test]
fn a_ring_that_others_hold_for_an_instant_is_not_refused() {
    const TIMES: usize = 20;
    const HELD: Duration = Duration::from_millis(5);
    if !counted() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut root = started(directory.path(), "uring_busy.c", "files").id() as i32;
    let (seen, over) = (AtomicI32::new(root), AtomicBool::new(false));
    let held = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Also when a persist fails: the scope waits for the thread.
        let _ends = SetWhenDropped(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let rings = rings_of(seen.load(Ordering::Relaxed));
                held.fetch_add(rings.len() as u64, Ordering::Relaxed);
                std::thread::sleep(HELD);
                drop(rings);
                std::thread::sleep(HELD);
            }
        });
        for _ in 0..TIMES {
            root = through_death_of(root);
            seen.store(root, Ordering::Relaxed);
        }
    });
    assert!(held.into_inner() > 0, "nothing held the ring");
    go(directory.path());
    assert_good_end(root, &directory.path().join("output"));
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies of the descriptors of a process that are rings; none if it is gone.
fn rings_of(pid: i32) -> Vec<OwnedFd> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let is_ring = |path: PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.as_os_str() == "anon_inode:[io_uring]")
    };
    let numbers = entries
        .filter(|entry| is_ring(entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|number| take_fd(pid, number).ok())
        .collect()
}

#[test]
fn a_wait_for_a_completion_does_not_notice_that_it_was_interrupted() {
    if !counted() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let child = started(directory.path(), "uring_busy.c", "wait");
    let pid = child.id() as i32;
    let waits = || {
        let threads = procfs::threads(pid).expect("it lives");
        threads.iter().any(|tid| {
            let call = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
            call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_io_uring_enter)))
        })
    };
    for _ in 0..3 {
        until("a wait in the kernel", waits);
        FrozenTree::freeze(&[pid]).expect("frozen").thaw();
    }
    until("a wait in the kernel", waits);
    let root = through_death(child);
    until("a wait in the kernel", waits);
    go(directory.path());
    assert_good_end(root, &directory.path().join("output"));
}

#[test]
fn what_cannot_be_made_again_is_refused_and_its_request_ends_as_if_nothing_had_happened() {
    if !counted() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for (what, words) in [
        ("poll", "with requests under way (1, among them a poll)"),
        (
            "multishot",
            "with requests under way (1, among them a poll)",
        ),
        ("read", "with requests under way (1, among them a poll)"),
        ("worker", "with requests under way (1)"),
        (
            "timeout",
            "with requests under way (1, among them a timeout)",
        ),
        ("sqpoll", "IORING_SETUP_SQPOLL"),
        ("single", "IORING_SETUP_SINGLE_ISSUER"),
        ("disabled", "IORING_SETUP_R_DISABLED"),
        ("registered-files", "registered files"),
        ("registered-buffers", "registered buffers"),
        ("registered-eventfd", "a registered eventfd"),
        ("registered-credentials", "registered credentials"),
        ("registered-ring", "held by something else, too"),
        ("closed", "of which no process of the tree has a descriptor"),
    ] {
        let pid = started(directory.path(), "uring_busy.c", what).id() as i32;
        let refusal = refused(pid);
        assert!(refusal.contains(words), "{what}: {refusal}");
        go(directory.path());
        let status = finish(pid, Duration::from_secs(30));
        let output = std::fs::read_to_string(directory.path().join("output"));
        assert_eq!(status, Some(0), "{what}: {output:?}");
        std::fs::remove_file(directory.path().join("go")).expect("gone");
    }
}
