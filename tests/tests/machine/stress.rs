//! `lab stress`: many cycles under load; its failures are found, named, and distinguished from
//! success.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_tests::{Said, dormouse, dormouse_path, machine_folder};
use serde_json::Value;

fn stress(folder: &Path, words: &[&str]) -> Said {
    let mut all = vec!["lab", "stress", "--json", "--machine"];
    all.push(folder.to_str().expect("a UTF-8 path"));
    all.extend_from_slice(words);
    dormouse(&all)
}

/// The cycles and the summary of a run.
fn parsed(said: &Said) -> (Vec<Value>, Value) {
    let mut lines = said.reports::<Value>();
    let summary = lines.pop().unwrap_or_else(|| panic!("{}", said.all()));
    (lines, summary["summary"].clone())
}

/// A run that is killed in the middle of a cycle goes on at that cycle.
#[test]
#[ignore = "make test-full: three cycles more than those of the quick gate, beside a load"]
fn cycles_under_load_resume_and_a_killed_run_goes_on() {
    let folder = machine_folder("stress");
    let words = ["--cycles", "3", "--seed", "3"];
    let mut killed = Command::new(dormouse_path())
        .args(["lab", "stress", "--json", "--machine"])
        .arg(&folder)
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("dormouse can be started");
    let mut first = String::new();
    BufReader::new(killed.stdout.take().expect("stdout is piped"))
        .read_line(&mut first)
        .expect("the first cycle ends");
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    let first: Value = serde_json::from_str(&first).expect("a cycle");
    assert_eq!((&first["cycle"], &first["ok"]), (&1.into(), &true.into()));
    // On a busy machine more cycles may have ended before the kill: the journal says which.
    let journal = std::fs::read_to_string(folder.join("stress.jsonl")).expect("a journal");
    let ended: Vec<u64> = journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["cycle"].as_u64())
        .collect();
    let left: Vec<u64> = (1..=3).filter(|cycle| !ended.contains(cycle)).collect();

    let said = stress(&folder, &words);
    assert_eq!(said.code, 0, "{}", said.all());
    let (lines, summary) = parsed(&said);
    let cycles: Vec<u64> = lines
        .iter()
        .filter_map(|line| line["cycle"].as_u64())
        .collect();
    assert_eq!(cycles, left, "{}", said.all());
    for line in &lines {
        assert_eq!(line["outcome"], "resumed", "{}", said.all());
        assert_eq!(line["verified"], true, "{}", said.all());
    }
    assert_eq!((&summary["cycles"], &summary["ok"]), (&3.into(), &3.into()));
    assert_eq!(summary["bound"]["high"], 1.0, "three over three");
}

#[test]
#[ignore = "make test-full: six cycles at random instants; the points of power_cuts are in the quick gate"]
fn after_a_power_cut_at_any_instant_it_resumes_or_boots_with_all_that_was_durable() {
    cut_at_any_instant("stress-cuts", &[]);
}

#[test]
#[ignore = "make test-full: six cycles at random instants; the points of power_cuts are in the quick gate"]
fn under_bios_a_power_cut_at_any_instant_ends_as_under_our_firmware() {
    cut_at_any_instant("stress-stock-cuts", &["--firmware", "seabios"]);
}

fn cut_at_any_instant(name: &str, words: &[&str]) {
    let folder = machine_folder(name);
    // Cycles 1 and 2 are left undisturbed, to know how long a cycle takes.
    let all = [&["--cycles", "6", "--seed", "5", "--power-cuts"], words].concat();
    let said = stress(&folder, &all);
    assert_eq!(said.code, 0, "{}", said.all());
    let (lines, summary) = parsed(&said);
    let cut = lines.iter().filter(|line| !line["cut_phase"].is_null());
    assert_eq!(cut.count(), 4, "{}", said.all());
    for line in &lines {
        assert_eq!(line["verified"], true, "{}", said.all());
        let reasoned = line["outcome"] != "cold-boot" || line["reason"] != "";
        assert!(reasoned, "{}", said.all());
    }
    assert_eq!(summary["failed"], 0, "{}", said.all());
}

/// What is wrong after waking is found, named, kept, and has its exit code.
#[test]
#[ignore = "make test-full: four faults in four machines: it tests the stress test itself"]
fn injected_faults_are_found_named_and_kept() {
    let folder = machine_folder("stress-faults");
    let faults = "memory,redis,file,panic";
    let said = stress(&folder, &["--cycles", "4", "--inject", faults]);
    assert_eq!(said.code, 4, "{}", said.all());
    let (lines, summary) = parsed(&said);
    let classes: Vec<&str> = lines
        .iter()
        .map(|line| line["class"].as_str().unwrap_or_default())
        .collect();
    let expected = [
        "data-differs",
        "redis-lost-keys",
        "files-differ",
        "kernel-panic",
    ];
    assert_eq!(classes, expected, "{}", said.all());
    assert_eq!(summary["failed"], 4, "{}", said.all());
    let kept = Path::new(lines[0]["folder"].as_str().expect("a folder"));
    for name in ["console-002.log", "events.jsonl", "cycle.json", "cxl.mem"] {
        assert!(kept.join(name).exists(), "{name} is kept\n{}", said.all());
    }
    let again = summary["failures"][0]["repeat"]
        .as_str()
        .expect("a command");
    assert!(again.contains("lab stress --only 1"), "{again}");
}
