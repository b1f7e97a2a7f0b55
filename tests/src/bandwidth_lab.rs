//! Checks of a run of `dormouse lab bandwidth`, for every mechanism that enforces limits.
//!
//! The checks compare ratios of counts. On an overloaded host the emulated machine has so little
//! time that the daemon's passes are late and programs do not reach the threshold; such a phase
//! proves nothing and is skipped. The table in `docs/evaluation/bandwidth.md`, measured on an idle
//! host, has narrower tolerances.

use serde_json::Value;

use crate::dormouse;

/// Tolerance of the total above the threshold, and below it while the heavy user is held back.
const BAND: f64 = 0.15;
/// The minimum number of such passes for a check.
const ENOUGH_PASSES: f64 = 40.0;
/// The maximum fraction of the time in which passes may be late.
const LATE: f64 = 0.2;
/// The minimum fraction of its unlimited traffic that the light user keeps,
const LIGHT_KEEPS: f64 = 0.8;
/// unless its limit held it back before less than this fraction of the passes.
const LIGHT_HELD_BACK: f64 = 0.05;

/// Runs the verb with these arguments, and parses its report.
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

/// Whether the host gave the machine enough time in a phase.
fn kept_up(phase: &Value) -> bool {
    let late = number(&phase["held"]["late"]);
    if late > LATE {
        let name = &phase["name"];
        eprintln!("{name}: not judged: the host is too busy ({late:.2} of the time late)");
    }
    late <= LATE
}

/// Compares the device's counts with the programs' own counts, and the attributed traffic with the
/// device's.
pub fn judge_counts(report: &Value, name: &str) {
    let phase = phase(report, name);
    if !kept_up(phase) {
        return;
    }
    let (counted, truth) = (number(&phase["total_mib_s"]), number(&phase["truth_mib_s"]));
    // Accesses of the kernel and lines that are not written back yet are not the programs'.
    assert!((counted / truth - 1.0).abs() < 0.25, "{name}: {report}");
    let users = phase["users"].as_object().expect("users");
    let charged = users
        .values()
        .filter_map(|user| user["charged_mib_s"].as_f64());
    let charged: f64 = charged.sum();
    assert!((charged / counted - 1.0).abs() < 0.15, "{name}: {report}");
}

/// Checks that the total is at the threshold as far as the heavy user demands more, and never
/// above it, and that the light user keeps its traffic.
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
    // Traffic that it loses without being held back goes to computing programs.
    let held_back = user(phase, "users/light", "held_back") > LIGHT_HELD_BACK;
    if kept_up(free) && held_back {
        assert!(
            light(phase) >= LIGHT_KEEPS * light(free),
            "{name}: {report}"
        );
    }
    if number(&phase["held"]["passes"]) >= ENOUGH_PASSES {
        // Such passes are more often those in which others move much, too: there is no upper
        // bound.
        let held = number(&phase["held"]["mib_s"]);
        assert!(held > threshold * (1.0 - BAND), "{name}: {held}: {report}");
    } else {
        eprintln!("{name}: the heavy user was held back too seldom to reach the threshold");
    }
}

/// Checks that computing programs have a larger share of the processors beside the heavy user.
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

/// Checks that one reader cannot saturate the device, that four do, and that limiting them lowers the
/// latency of a read: of the part above that of an idle device, a third or more.
pub fn judge_latency(report: &Value) {
    let [one, free, limited] = ["one reader", "free", "limited"].map(|name| phase(report, name));
    if ![one, free, limited].into_iter().all(kept_up) {
        return;
    }
    let capacity = number(&report["capacity_mib_s"]);
    let part = |phase: &Value| number(&phase["total_mib_s"]) / capacity;
    assert!(part(one) < 0.5, "one reader: {report}");
    assert!(part(free) > 0.8, "four readers: {report}");
    let of = |name: &str| number(&report["device"][name]);
    let idle_ns = of("latency_ns") + of("service_ns");
    let waits_ns = |phase: &Value| number(&phase["latency_ns"]) - idle_ns;
    assert!(waits_ns(one) < waits_ns(free) / 4.0, "one reader: {report}");
    assert!(
        waits_ns(limited) < waits_ns(free) * 2.0 / 3.0,
        "limited: {report}"
    );
}

/// Checks that no limit remains after the daemon was killed.
pub fn judge_killed(report: &Value) {
    let limit = report["limit_after_kill"].as_str().unwrap_or_default();
    assert!(limit.starts_with("max "), "{report}");
}
