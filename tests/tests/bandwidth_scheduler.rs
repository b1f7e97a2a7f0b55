//! The daemon under distribution kernels, in an emulated machine with a memory device that counts
//! and saturates: our sched_ext scheduler, and quotas once the kernel has ended it.

use dormouse_tests::dormouse;
use serde_json::Value;

fn lab(words: &[&str]) -> Value {
    let words = [&["lab", "bandwidth", "--json"], words].concat();
    let said = dormouse(&words);
    assert_eq!(said.code, 0, "{}", said.all());
    serde_json::from_str(&said.stdout).expect("JSON")
}

fn phase<'a>(report: &'a Value, name: &str) -> &'a Value {
    let phases = report["phases"].as_array().expect("phases");
    let found = phases.iter().find(|phase| phase["name"] == name);
    found.unwrap_or_else(|| panic!("no phase {name:?}: {report}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn user(report: &Value, name: &str, group: &str, what: &str) -> f64 {
    number(&phase(report, name)["users"][group][what])
}

/// The device counts what programs say that they moved, and what it counts is charged to users.
fn judge_counts(report: &Value) {
    for name in ["free", "limited"] {
        let phase = phase(report, name);
        let (counted, truth) = (number(&phase["total_mib_s"]), number(&phase["truth_mib_s"]));
        // The kernel's own accesses and lines that are still to be written are not the programs'.
        assert!((counted / truth - 1.0).abs() < 0.15, "{name}: {report}");
        let users = phase["users"].as_object().expect("users");
        let charged = users
            .values()
            .filter_map(|user| user["charged_mib_s"].as_f64());
        let charged: f64 = charged.sum();
        assert!((charged / counted - 1.0).abs() < 0.15, "{name}: {report}");
    }
}

/// On the idle machine the heavy user gets less than without a daemon, and nobody is limited any more
/// when it was killed. (Beside computing programs a busy host may keep it below the threshold.)
fn judge_limits(report: &Value) {
    let heavy = |name| user(report, name, "users/heavy", "cpus");
    let free = heavy("daemon killed");
    assert!(heavy("limited, idle machine") < 0.8 * free, "{report}");
    let limit = report["limit_after_kill"].as_str().unwrap_or_default();
    assert!(limit.starts_with("max "), "{report}");
}

#[test]
#[ignore = "fetches another suite's kernel, and measures: make test-bandwidth-scheduler"]
fn the_scheduler_holds_limits_and_nobody_stays_limited_when_it_ends() {
    let report = lab(&["--enforce", "sched-ext", "--machine", "bandwidth-scheduler"]);
    assert_eq!(report["scheduler"], "dormouse", "{report}");
    judge_counts(&report);
    judge_limits(&report);
    // The daemon says why the kernel ended the scheduler, and goes on with quotas.
    let ejected = report["ejected"].as_str().unwrap_or_default();
    assert!(ejected.contains("sysrq"), "{report}");
    // After it was killed nothing of it is left.
    assert_eq!(report["state_after_kill"], "disabled", "{report}");
}
