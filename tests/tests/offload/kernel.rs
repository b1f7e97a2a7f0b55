//! A whole kernel's own device suspend and resume in the virtual executor. The first time it builds
//! that kernel, which takes some minutes.

use dormouse_tests::{Said, dormouse};
use serde_json::{Value, json};

/// Dummy platform devices of `offload/kernel/dormouse_dummy.c`.
const DEVICES: u64 = 24;
const PHASES: [&str; 8] = [
    "dpm_prepare",
    "dpm_suspend",
    "dpm_suspend_late",
    "dpm_suspend_noirq",
    "dpm_resume_noirq",
    "dpm_resume_early",
    "dpm_resume",
    "dpm_complete",
];

#[test]
fn a_kernels_own_device_suspend_leaves_the_memory_that_it_leaves_on_the_big_core() {
    leaves_the_same_memory(&[&[][..], &["--t32", "--prune"]]);
}

#[test]
#[ignore = "make test-full: the quick gate has the two other modes"]
fn a_kernels_own_device_suspend_leaves_the_same_memory_in_the_other_modes() {
    leaves_the_same_memory(&[&["--prune"][..], &["--t32"]]);
}

fn leaves_the_same_memory(modes: &[&[&str]]) {
    for words in modes {
        let said = dormouse(&[&["offload", "suspend", "--compare", "--json"][..], words].concat());
        assert_eq!(said.code, 0, "{}", said.all());
        let calls: Vec<Value> = said.reports();
        let phases: Vec<&str> = calls
            .iter()
            .filter_map(|call| call["function"].as_str())
            .collect();
        assert_eq!(phases, PHASES, "{}", said.all());
        for (call, events) in calls.iter().zip((1..).map(|phase| phase * DEVICES)) {
            assert_eq!(call["stop"], "returned", "{}", said.all());
            // What returns nothing has no results.
            assert!(
                call["results"].is_null() || call["results"] == json!([0, 0]),
                "{}",
                said.all()
            );
            assert_eq!(call["different"], 0, "{}", said.all());
            assert_eq!(call["device_events"], events, "{}", said.all());
            // Each device is written to; it has 32 registers that go away or come back.
            let words = match call["function"].as_str() {
                Some("dpm_suspend" | "dpm_resume") => 32 * DEVICES,
                _ => DEVICES,
            };
            assert!(call["changed"].as_u64() > Some(words), "{}", said.all());
            // The scheduler's clocks, where a thread is woken.
            let times = if call["function"] == "dpm_complete" {
                40
            } else {
                0
            };
            assert!(call["times"].as_u64() <= Some(times), "{}", said.all());
        }
    }
}

/// What so many suspends reported: each phase, and the summary.
pub fn reports_of(words: &[&str], cycles: u64) -> (Said, Vec<Value>, Value) {
    let cycles = cycles.to_string();
    let command = ["offload", "suspend", "--json", "--cycles", &cycles];
    let said = dormouse(&[&command, words].concat());
    let mut phases: Vec<Value> = said.reports();
    let summary = phases.pop().expect("a summary");
    (said, phases, summary)
}

/// Suspends so often; the big core goes on from what the executor left, each time, and these counts of the summary
/// are the number of cycles.
pub fn suspends(words: &[&str], cycles: u64, counts: &[&str]) -> (Vec<Value>, Value) {
    let (said, phases, summary) = reports_of(words, cycles);
    assert_eq!(said.code, 0, "{words:?}: {}", said.all());
    for name in counts {
        assert_eq!(summary[name], cycles, "{words:?}: {}", said.all());
    }
    assert_eq!(summary["complaints"], json!([]), "{}", said.all());
    assert_eq!(phases.len() as u64, cycles * 8, "{}", said.all());
    (phases, summary)
}

const COUNTS: [&str; 2] = ["suspend_exits", "checked"];

/// Instructions of the kernel that were translated in a cycle.
fn translated(phases: &[Value], cycle: u64) -> u64 {
    let of_cycle = phases.iter().filter(|phase| phase["cycle"] == cycle);
    of_cycle
        .filter_map(|phase| phase["counters"]["translated"].as_u64())
        .sum()
}

#[test]
fn the_big_core_goes_on_from_what_the_executor_left_up_to_its_programs() {
    for words in [&[][..], &["--t32", "--prune"]] {
        let phases = suspends(words, 2, &COUNTS).0;
        for phase in &phases {
            assert_eq!(phase["stop"], "returned", "{words:?}: {phase}");
        }
        // The second suspend finds the code of the first.
        let [first, second] = [1, 2].map(|cycle| translated(&phases, cycle));
        assert!(first > 1000 && second < first / 10, "{first}, {second}");
    }
}

#[test]
#[ignore = "make test-full: the first phase of every suspend begins with one"]
fn each_phase_can_begin_with_an_empty_code_cache() {
    let phases = suspends(&["--cold"], 2, &COUNTS).0;
    let [first, second] = [1, 2].map(|cycle| translated(&phases, cycle));
    assert!(second > first / 2, "{first}, {second}");
}

#[test]
#[ignore = "make test-full: the hand-over at a refused access and at waits is in the quick gate"]
fn the_big_core_finishes_a_phase_from_the_middle() {
    // Called with a lock of the device or of the list held, in some phases or in all.
    for function in ["mutex_unlock", "dummy_tell"] {
        let phases = suspends(&["--hand-back", function], 1, &COUNTS).0;
        assert!(
            phases.iter().any(|phase| phase["stop"] == "fallback"),
            "{function}: {phases:?}"
        );
    }
}

#[test]
#[ignore = "make test-full: 400 cycles of eight phases each"]
fn a_hundred_suspends_in_each_mode_come_back() {
    for words in [&[][..], &["--prune"], &["--t32"], &["--t32", "--prune"]] {
        suspends(words, 100, &COUNTS);
    }
}
