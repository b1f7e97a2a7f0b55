//! The daemon on a kernel with sched_ext, with an emulated memory device with traffic counters and
//! a bandwidth limit: the sched_ext scheduler, and quotas after the kernel has ended it.

use dormouse_tests::bandwidth_lab::{
    judge_compute, judge_counts, judge_killed, judge_limited, run,
};

#[test]
#[ignore = "fetches another suite's kernel: make test-bandwidth-scheduler"]
fn the_scheduler_holds_the_threshold_and_no_limit_remains_when_it_ends() {
    let report = run(&["--enforce", "sched-ext", "--machine", "bandwidth-scheduler"]);
    assert_eq!(report["scheduler"], "dormouse", "{report}");
    judge_counts(&report, "limited");
    for phase in [
        "limited",
        "limited, idle machine",
        "the kernel has ended the scheduler",
    ] {
        judge_limited(&report, phase);
    }
    judge_compute(&report);
    // The daemon reports why the kernel ended the scheduler, and continues with quotas.
    let ejected = report["ejected"].as_str().unwrap_or_default();
    assert!(ejected.contains("sysrq"), "{report}");
    // Nothing of it is left after it was killed.
    assert_eq!(report["state_after_kill"], "disabled", "{report}");
    judge_killed(&report);
}
