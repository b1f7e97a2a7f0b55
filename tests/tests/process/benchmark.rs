//! `make bench-process` still measures: a case of each kind, without its peer.

use std::fs;
use std::process::Command;

use dormouse_tests::containers::until;
use dormouse_tests::processes::naming;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn the_benchmark_persists_restores_and_tracks_a_program() {
    let directory = tempfile::tempdir().expect("a directory");
    // Shared memory, as a user's run has it: files there are treated in their own way.
    let place = tempfile::Builder::new()
        .prefix("dormouse-test-bench-")
        .tempdir_in("/dev/shm")
        .expect("a directory in memory");
    let output = Command::new(env!("CARGO_BIN_EXE_bench_process"))
        .args(["--rounds", "1", "--parties", "ours,tracked,untracked"])
        .args([
            "--cases",
            "cycle 1M,budget 64M,passes 1M",
            "--max-mib",
            "256",
        ])
        .arg("--out")
        .arg(directory.path())
        .arg("--place")
        .arg(place.path())
        .output()
        .expect("the benchmark starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let journal = fs::read_to_string(directory.path().join("process.jsonl")).expect("a journal");
    let visits: Vec<Value> = journal
        .lines()
        .map(|line| serde_json::from_str(line).expect("a visit"))
        .collect();
    let kinds = |party: &str| {
        let of = visits.iter().filter(|visit| visit["party"] == party);
        of.map(|visit| visit["case"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds("tracked"), ["passes 1M"], "{said}");
    assert_eq!(kinds("untracked"), ["passes 1M"], "{said}");
    assert!(kinds("ours").contains(&"cycle 1M".to_owned()), "{said}");
    for visit in &visits {
        assert_eq!(visit["failure"], Value::Null, "{visit}");
    }
}

#[test]
fn an_interrupted_benchmark_leaves_no_process_and_no_contents_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("place");
    let mut benchmark = Command::new(env!("CARGO_BIN_EXE_bench_process"))
        .args(["--rounds", "1", "--parties", "ours", "--cases", "budget"])
        .args(["--max-mib", "256", "--out"])
        .arg(directory.path())
        .arg("--place")
        .arg(&place)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the benchmark starts");
    let is_load = |command: &str| command.contains("/load\0churn");
    let mut started = Vec::new();
    until("the program that it tracks", || {
        started = naming(&place, is_load);
        (!started.is_empty()).then_some(())
    });
    kill_process(Pid::from_child(&benchmark), Signal::TERM).expect("it can be sent");
    assert_eq!(benchmark.wait().expect("it ends").code(), Some(130));
    assert_eq!(naming(&place, |_| true), Vec::<i32>::new());
    assert!(!place.exists());
}
