//! Graph-ordered suspend and resume in the real kernel: random device graphs in the lab's machine.
//!
//! The kernel is built first if it is not in the cache, which takes some minutes.

use dormouse_tests::{Said, dormouse};
use serde_json::Value;

/// Every run has a machine of its own; its graphs are a function of the random seed.
fn check(seed: &str, numbers: [&str; 3]) -> (Said, Value) {
    let [graphs, injections, hangs] = numbers;
    let machine = tempfile::tempdir().expect("a folder");
    let said = dormouse(&[
        "lab",
        "devices",
        "check",
        "--json",
        "--machine",
        machine.path().to_str().expect("a UTF-8 path"),
        "--seed",
        seed,
        "--graphs",
        graphs,
        "--injections",
        injections,
        "--hangs",
        hangs,
    ]);
    let report = serde_json::from_str(&said.stdout)
        .unwrap_or_else(|error| panic!("no report: {error}\n{}", said.all()));
    (said, report)
}

/// Clean, and all of it was done: a check that did nothing finds nothing.
fn is_clean(said: &Said, report: &Value) {
    assert_eq!(said.code, 0, "{}", said.all());
    for list in ["breaches", "kernel_reports"] {
        assert_eq!(report[list].as_array().map(Vec::len), Some(0), "{list}");
    }
}

#[test]
fn no_device_suspends_before_its_children_and_consumers_nor_resumes_before_its_parent_and_suppliers()
 {
    let (said, report) = check("11", ["12", "0", "0"]);
    is_clean(&said, &report);
    assert_eq!(report["graphs"], 12);
    for mode in ["list", "async", "threshold", "graph"] {
        assert_eq!(report["by_mode"][mode], 12, "{mode}");
    }
}

#[test]
fn after_a_failure_a_wakeup_or_a_hang_all_is_resumed_the_device_is_named_and_the_next_suspend_works()
 {
    let (said, report) = check("12", ["0", "20", "6"]);
    is_clean(&said, &report);
    let count = |key: &str| report[key].as_u64().unwrap_or_default();
    assert_eq!(count("failures") + count("wakeups"), 20, "{}", said.all());
    assert!(count("failures") > 0 && count("wakeups") > 0);
    // One in each phase, down and up.
    assert_eq!(count("hangs"), 6);
}
