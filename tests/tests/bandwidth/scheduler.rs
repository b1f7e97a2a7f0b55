//! The daemon under a kernel with sched_ext, in an emulated machine with a memory device that counts
//! and saturates: our scheduler, and quotas once the kernel has ended it.

use dormouse_tests::bandwidth_lab::{
    judge_compute, judge_counts, judge_killed, judge_limited, run,
};

#[test]
#[ignore = "fetches another suite's kernel: make test-bandwidth-scheduler"]
fn the_scheduler_holds_the_threshold_and_nobody_stays_limited_when_it_ends() {
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
    // The daemon says why the kernel ended the scheduler, and goes on with quotas.
    let ejected = report["ejected"].as_str().unwrap_or_default();
    assert!(ejected.contains("sysrq"), "{report}");
    // After it was killed nothing of it is left.
    assert_eq!(report["state_after_kill"], "disabled", "{report}");
    judge_killed(&report);
}
