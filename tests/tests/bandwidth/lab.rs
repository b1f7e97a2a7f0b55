//! The daemon with an emulated memory device with traffic counters and a bandwidth limit, on
//! Debian's kernel: one heavy user, lighter ones, and programs that only compute.

use dormouse_tests::bandwidth_lab::{
    judge_compute, judge_counts, judge_killed, judge_latency, judge_limited, run,
};

#[test]
#[ignore = "measures, and a busy host disturbs it: make test-bandwidth-scheduler"]
fn the_device_stays_at_its_threshold_the_light_user_is_unharmed_and_computing_programs_gain() {
    let words = "--enforce quota --kernel stock --brief --seconds 6 --machine bandwidth-quota";
    let report = run(&words.split(' ').collect::<Vec<_>>());
    judge_counts(&report, "limited");
    judge_limited(&report, "limited");
    judge_compute(&report);
    judge_killed(&report);
}

#[test]
#[ignore = "measures, and a busy host disturbs it: make test-bandwidth-scheduler"]
fn limiting_readers_lowers_the_latency_of_a_device_that_one_of_them_cannot_saturate() {
    let words = "--latency --enforce quota --kernel stock --machine bandwidth-latency";
    judge_latency(&run(&words.split(' ').collect::<Vec<_>>()));
}
