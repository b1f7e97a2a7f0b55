//! What a run of `dormouse lab bandwidth` has to show, whatever holds the limits.
//!
//! Judged are ratios of counts. A host that is asked for much more than it has leaves the emulated
//! machine so little time that the daemon's passes come late and programs do not reach the
//! threshold; such a phase says nothing, and is not judged. The table in `docs/evaluation/bandwidth.md`,
//! measured on a quiet host, is narrower.

use serde_json::Value;

use crate::dormouse;

/// The total, over the threshold: at most this, and as much less while the heavy user is held back.
const BAND: f64 = 0.15;
/// So many passes in which it was are enough to say so.
const ENOUGH_PASSES: f64 = 40.0;
/// The part of the time in which passes may be late.
const LATE: f64 = 0.2;
/// The part of what it moves when nobody is limited that the light user keeps at least.
const LIGHT_KEEPS: f64 = 0.8;
/// Unless its limit held it back before so small a part of the passes.
const LIGHT_HELD_BACK: f64 = 0.05;

/// Runs it, with these words, and parses its report.
pub fn run(words: &[&str]) -> Value {
    let words = [&["lab", "bandwidth", "--json"], words].concat();
    let said = dormouse(&words);
    assert_eq!(said.code, 0, "{}", said.all());
    serde_json::from_str(&said.stdout).expect("JSON")
}

/// A phase of the report.
pub fn phase<'a>(report: &'a Value, name: &str) -> &'a Value {
    let phases = report["phases"].as_array().expect("phases");
    let found = phases.iter().find(|phase| phase["name"] == name);
    found.unwrap_or_else(|| panic!("no phase {name:?}: {report}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn user(phase: &Value, group: &str, what: &str) -> f64 {
    number(&phase["users"][group][what])
}

/// Whether the host gave the machine enough time for a phase to say something.
fn kept_up(phase: &Value) -> bool {
    let late = number(&phase["held"]["late"]);
    if late > LATE {
        let name = &phase["name"];
        eprintln!("{name}: not judged: the host is too busy ({late:.2} of the time late)");
    }
    late <= LATE
}

/// The device counts what programs say that they moved, and what it counts is charged to users.
pub fn judge_counts(report: &Value, name: &str) {
    let phase = phase(report, name);
    if !kept_up(phase) {
        return;
    }
    let (counted, truth) = (number(&phase["total_mib_s"]), number(&phase["truth_mib_s"]));
    // The kernel's own accesses and lines that are still to be written are not the programs'.
    assert!((counted / truth - 1.0).abs() < 0.25, "{name}: {report}");
    let users = phase["users"].as_object().expect("users");
    let charged = users
        .values()
        .filter_map(|user| user["charged_mib_s"].as_f64());
    let charged: f64 = charged.sum();
    assert!((charged / counted - 1.0).abs() < 0.15, "{name}: {report}");
}

/// The total is at the threshold as far as the heavy user asks for more, and never above it; the
/// light one moves what it did, or nearly.
pub fn judge_limited(report: &Value, name: &str) {
    let threshold = number(&report["threshold_mib_s"]);
    let phase = phase(report, name);
    if !kept_up(phase) {
        return;
    }
    let total = number(&phase["total_mib_s"]);
    assert!(total < threshold * (1.0 + BAND), "{name}: {report}");
    let light = |phase| user(phase, "users/light", "truth_mib_s");
    let free = self::phase(report, "free");
    // What it loses without being held back it loses to programs that compute.
    let held_back = user(phase, "users/light", "held_back") > LIGHT_HELD_BACK;
    if kept_up(free) && held_back {
        assert!(
            light(phase) >= LIGHT_KEEPS * light(free),
            "{name}: {report}"
        );
    }
    if number(&phase["held"]["passes"]) >= ENOUGH_PASSES {
        // Passes are more often those in which others move much, too: there is no upper bound.
        let held = number(&phase["held"]["mib_s"]);
        assert!(held > threshold * (1.0 - BAND), "{name}: {held}: {report}");
    } else {
        eprintln!("{name}: the heavy user was held back too seldom to reach the threshold");
    }
}

/// Of what the heavy user and those that compute have of the processors, the latter have more.
pub fn judge_compute(report: &Value) {
    let [free, limited] = ["free", "limited"].map(|name| phase(report, name));
    if !kept_up(free) || !kept_up(limited) {
        return;
    }
    let part = |phase: &Value| {
        let compute = user(phase, "compute", "cpus");
        compute / (compute + user(phase, "users/heavy", "cpus"))
    };
    assert!(part(limited) > part(free), "{report}");
}

/// The daemon was killed: nobody is limited any more.
pub fn judge_killed(report: &Value) {
    let limit = report["limit_after_kill"].as_str().unwrap_or_default();
    assert!(limit.starts_with("max "), "{report}");
}
