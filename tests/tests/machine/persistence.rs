//! A sleep needs a device that is known to keep its contents; a device that lost them is detected.

use dormouse_lab::Outcome;
use dormouse_tests::{
    assert_cold_boot, assert_outcome, assert_resumed, dormouse, guest, lab_cycle, test_folder,
    words,
};

#[test]
fn without_global_persistent_flush_the_sleep_is_refused_with_the_reason_and_the_machine_goes_on() {
    let said = lab_cycle("gpf-absent", &["--fill", "64M", "--gpf", "absent"]);
    let cycle = said.cycle();
    assert_eq!(cycle.outcome, Outcome::Refused, "{}", said.all());
    assert!(cycle.reason.starts_with("volatile"), "{}", said.all());
    for word in ["no Global Persistent Flush", "--accept-volatile"] {
        assert!(cycle.reason.contains(word), "{word}: {}", said.all());
    }
    assert!(cycle.verified && cycle.ok, "{}", said.all());
}

#[test]
#[ignore = "make test-full: the refusal without the option is in the quick gate"]
fn an_accepted_risk_sleeps_and_is_recorded_in_the_image() {
    let name = "gpf-accepted";
    let said = lab_cycle(
        name,
        &words("--fill 64M --gpf absent --sleep-argument --accept-volatile --keep"),
    );
    assert_resumed(&said.cycle(), &said);
    let device = test_folder(name).join("cxl.mem");
    let device = device.to_str().unwrap();
    let said = dormouse(&["image", "inspect", device]);
    assert!(
        said.stdout.contains("--accept-volatile was given"),
        "{}",
        said.all()
    );
    let said = dormouse(&["image", "inspect", "--json", device]);
    assert!(
        said.stdout.contains(r#""persistence":"accepted""#),
        "{}",
        said.all()
    );
}

/// The device says that it can flush; when the power goes it cannot, loses pages, and counts that.
#[test]
fn a_flush_that_failed_while_asleep_is_a_cold_boot() {
    let name = "gpf-fails";
    let said = lab_cycle(name, &["--fill", "64M", "--gpf", "fails", "--keep"]);
    assert_cold_boot(&said, &["dirty-shutdown"]);
    let machine = std::fs::read_to_string(test_folder(name).join("machine.json")).unwrap();
    let machine: serde_json::Value = serde_json::from_str(&machine).unwrap();
    assert!(
        machine["dirty_shutdown_count"].as_u64().unwrap() >= 1,
        "{machine}"
    );
}

#[test]
#[ignore = "make test-full: a flush that fails while asleep is in the quick gate"]
fn a_power_cut_whose_flush_fails_is_a_cold_boot_even_after_the_commit() {
    let said = lab_cycle(
        "gpf-fails-cut",
        &words("--fill 64M --gpf fails --fault after-commit"),
    );
    assert_outcome(&said, Outcome::ColdBoot, &["dirty-shutdown"]);
}

/// The module's own check, for whoever suspends without asking `dormouse sleep`; and doctor's.
#[test]
fn the_kernel_refuses_a_suspend_that_nobody_vouches_for_and_doctor_says_why() {
    let said = guest(
        "gpf-kernel",
        &["--dram", "512M", "--cxl", "1G", "--gpf", "absent"],
        "cd /sys/power/dormouse; cat global_persistent_flush dirty_shutdowns_counted persistence; \
         echo mem > /sys/power/state; cat last_outcome last_reason; \
         echo firmware > persistence && echo wrongly taken; \
         dormouse doctor sleep | grep persistence; cat state",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..5],
        ["absent", "0", "unknown", "refused", "volatile"],
        "{said}"
    );
    assert!(!said.contains("wrongly taken"), "{said}");
    assert!(said.contains("no Global Persistent Flush"), "{said}");
    assert!(said.trim_end().ends_with("empty"), "{said}");
}

/// Twice, because a second sleep digests pages that migrated back and moved again.
#[test]
#[ignore = "make test-full: the quick gate verifies all user pages of an image with a damaged one"]
fn with_all_user_pages_verified_the_machine_wakes_with_its_data() {
    let name = "verify-all";
    let said = lab_cycle(
        name,
        &[
            "--cycles",
            "2",
            "--fill",
            "128M",
            "--sleep-argument",
            "--verify-user-pages=all",
            "--keep",
        ],
    );
    for cycle in said.cycles() {
        assert_resumed(&cycle, &said);
    }
    let device = test_folder(name).join("cxl.mem");
    let said = dormouse(&["image", "inspect", "--json", device.to_str().unwrap()]);
    let image = said.report();
    assert_eq!(image["header"]["user_check"], "all", "{}", said.all());
    let pages = image["header"]["user_pages"].as_u64().unwrap();
    assert!(
        pages * 4096 >= 128 << 20,
        "all of the workload: {}",
        said.all()
    );
}
