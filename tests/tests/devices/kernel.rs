//! Graph-ordered suspend and resume in the real kernel: random device graphs in the lab's machine.
//!
//! The kernel is built first if it is not in the cache, which takes some minutes.

use dormouse_tests::{Said, dormouse};
use serde_json::Value;

/// Every run has a machine of its own; its graphs are a function of the random seed.
fn check(seed: &str, numbers: [&str; 3]) -> (Said, Value) {
    check_form(&["--form", "series"], seed, numbers)
}

fn check_form(form: &[&str], seed: &str, numbers: [&str; 3]) -> (Said, Value) {
    let [graphs, injections, hangs] = numbers;
    let machine = tempfile::tempdir().expect("a folder");
    let mut arguments = vec![
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
    ];
    arguments.extend(form);
    let said = dormouse(&arguments);
    let report = said.report();
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
    // And that of the head start, in list order once and in graph order eight times; and that of devices
    // that go and come, in graph order 24 times more.
    assert_eq!(report["graphs"], 14);
    for (mode, count) in [
        ("list", 14),
        ("async", 13),
        ("threshold", 13),
        ("graph", 45),
    ] {
        assert_eq!(report["by_mode"][mode], count, "{mode}");
    }
    assert!(report["head_starts"].as_u64() >= Some(1), "{}", said.all());
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

#[test]
fn the_module_refuses_a_kernel_with_other_functions_keeps_every_order_and_gives_the_stock_order_back()
 {
    let (said, report) = check_form(&["--form", "module"], "21", ["3", "5", "0"]);
    is_clean(&said, &report);
    let count = |key: &str| report[key].as_u64().unwrap_or_default();
    assert_eq!(count("failures") + count("wakeups"), 5, "{}", said.all());
    assert_eq!((count("refusals"), count("unloads")), (3, 1));
}

#[test]
fn devices_that_go_and_come_in_each_phase_change_nothing_for_the_others() {
    let (said, report) = check_form(&["--form", "module"], "23", ["1", "0", "0"]);
    is_clean(&said, &report);
    // One of each in each phase.
    assert_eq!(report["changes"], 12, "{}", said.all());
}

#[test]
#[ignore = "make test-full: 200 transitions and a boot for each phase take minutes"]
fn two_hundred_transitions_by_the_module_in_a_stock_kernel_break_no_order_and_end_no_machine() {
    let (said, report) = check_form(&["--form", "module"], "22", ["20", "50", "6"]);
    is_clean(&said, &report);
    let count = |key: &str| report[key].as_u64().unwrap_or_default();
    assert!(count("transitions") >= 200, "{}", said.all());
    assert_eq!((count("hangs"), count("unloads")), (6, 7));
}

/// Milliseconds of suspend and resume in each mode; the machine's clock counts instructions.
fn times(shape: &str, form: &[&str]) -> impl Fn(&str) -> f64 {
    let machine = tempfile::tempdir().expect("a folder");
    let folder = machine.path().to_str().expect("a UTF-8 path");
    let words = ["lab", "devices", "time", "--json", "--machine", folder];
    let modes = ["--modes", "list,async,graph", "--rounds", "1"];
    let said = dormouse(&[&words[..], &modes, &["--shape", shape], form].concat());
    assert_eq!(said.code, 0, "{}", said.all());
    let report = said.report();
    move |mode| {
        let modes = report["modes"].as_array().expect("modes");
        let found = modes.iter().find(|times| times["mode"] == mode);
        found.expect("the mode")["sum_median_ms"]
            .as_f64()
            .expect("milliseconds")
    }
}

/// Most of the laptop's devices wait, and few for each other: one after the other they take three times as long.
fn each_mode_takes_effect(form: &[&str]) {
    let ms = times("laptop", form);
    for mode in ["async", "graph"] {
        assert!(ms(mode) < ms("list") / 2.0, "{mode}");
    }
}

#[test]
#[ignore = "make test-full: it measures each mode; make bench-devices compares them"]
fn each_mode_of_a_timed_kernel_takes_effect() {
    each_mode_takes_effect(&["--form", "series"]);
}

#[test]
#[ignore = "make test-full: the packages of the newest kernel are found and fetched"]
fn each_mode_takes_effect_on_the_newest_kernel_without_power_async_files() {
    each_mode_takes_effect(&["--form", "module", "--kernel", "newest"]);
}
