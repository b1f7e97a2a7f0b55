//! A refused sleep gives its reason, and the machine keeps running.

use dormouse_lab::Outcome;
use dormouse_tests::{assert_outcome, guest, lab_cycle, words};
use serde_json::Value;

#[test]
fn a_cxl_device_that_is_too_small_is_refused_with_both_sizes_and_the_machine_goes_on() {
    let said = lab_cycle("too-small", &words("--dram 1G --cxl 256M --fill 512M"));
    let cycle = assert_outcome(&said, Outcome::Refused, &["no-space"]);
    // Both numbers: what is needed and what is there.
    let sizes = cycle
        .reason
        .split(|c: char| !c.is_ascii_digit())
        .filter(|word| !word.is_empty());
    assert!(
        sizes.count() >= 2,
        "needed and available bytes: {}",
        said.all()
    );
    // The system continues to run with all its data.
    assert!(cycle.verified, "{}", said.all());
}

/// Each case writes such a header from inside the machine, raises the SMI and compares what it
/// wrote with what is there afterwards. If firmware believed it, the machine would be off.
#[test]
fn a_forged_header_is_refused_by_the_firmware_and_nothing_is_changed() {
    let said = guest(
        "forged-headers",
        &["--dram", "512M", "--cxl", "1G"],
        "for case in $(dormouse-guest smi-test list | cut -d' ' -f1); do \
             dormouse-guest smi-test $case || echo \"$case failed\"; \
         done; cat /sys/power/dormouse/state",
    );
    let (reports, rest): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| line.starts_with('{'));
    let reports: Vec<Value> = reports
        .iter()
        .map(|line| serde_json::from_str(line).expect("one JSON object"))
        .collect();
    for report in &reports {
        assert_eq!(report["as_expected"], true, "{report}");
        assert_eq!(report["unchanged"], true, "{report}");
    }
    for case in [
        "smram",
        "firmware-memory",
        "beyond-ram",
        "bitmaps-overlap",
        "bitmap-outside",
    ] {
        let report = reports.iter().find(|report| report["case"] == case);
        assert_eq!(report.expect(case)["answer"], "refused", "{case}");
    }
    assert_eq!(
        rest,
        ["empty"],
        "all cases ran, and the machine continues to run: {said}"
    );
}
