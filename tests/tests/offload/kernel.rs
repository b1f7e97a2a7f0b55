//! A whole kernel's own device suspend and resume in the virtual executor. The first time it builds
//! that kernel, which takes some minutes.

use dormouse_tests::dormouse;
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
    for words in [
        &["offload", "suspend", "--json"][..],
        &["offload", "suspend", "--json", "--prune"],
        &["offload", "suspend", "--json", "--t32"],
        &["offload", "suspend", "--json", "--t32", "--prune"],
    ] {
        let said = dormouse(words);
        assert_eq!(said.code, 0, "{}", said.all());
        let calls: Vec<Value> = said
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
            .collect();
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
