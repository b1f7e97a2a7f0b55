//! Our sched_ext scheduler under a distribution kernel, in the emulated machine.

use dormouse_tests::dormouse;
use serde_json::Value;

#[test]
#[ignore = "fetches another suite's kernel, which changes: make test-bandwidth-scheduler"]
fn the_scheduler_holds_limits_and_nobody_stays_limited_when_it_ends() {
    let said = dormouse(&["lab", "bandwidth", "--enforce", "sched-ext", "--json"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let report: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let cpus = |when: &str, group: &str| {
        let cpus = report[when][group].as_f64();
        cpus.unwrap_or_else(|| panic!("{when} {group}: {report}"))
    };
    assert_eq!(report["scheduler"], "dormouse", "{report}");
    // The heavy user gets less, the light one what it had, as far as a busy host allows to tell.
    let (free, limited) = (cpus("free", "users/heavy"), cpus("limited", "users/heavy"));
    assert!(limited < 0.8 * free, "{report}");
    let (free, limited) = (cpus("free", "users/light"), cpus("limited", "users/light"));
    assert!(limited > 0.5 * free, "{report}");
    // The daemon says why the kernel ended the scheduler, and goes on with quotas.
    let ejected = report["ejected"].as_str().unwrap_or_default();
    assert!(ejected.contains("sysrq"), "{report}");
    // After it was killed nothing of it is left.
    assert_eq!(report["state_after_kill"], "disabled", "{report}");
    let limit = report["limit_after_kill"].as_str().unwrap_or_default();
    assert!(limit.starts_with("max "), "{report}");
}
