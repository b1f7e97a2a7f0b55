//! What cannot sleep is told why, and goes on running.

use dormouse_tests::{dormouse, lab_cycle, machine_folder};

#[test]
fn a_cxl_device_that_is_too_small_is_refused_with_both_sizes_and_the_machine_goes_on() {
    let said = lab_cycle(
        "too-small",
        &["--dram", "1G", "--cxl", "256M", "--fill", "512M"],
    );
    let cycle = said.cycle();
    assert_eq!(cycle.outcome, "refused", "{}", said.all());
    assert!(cycle.reason.contains("no-space"), "{}", said.all());
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
    // The system goes on running with all its data.
    assert!(cycle.verified, "{}", said.all());
}

/// What each lie must be answered with.
const LIES: [(&str, &str); 0] = [];

#[test]
fn a_header_that_lies_is_refused_by_the_firmware() {
    for (case, reason) in LIES {
        let folder = machine_folder(&format!("lie-{case}"));
        let line = format!("dormouse-guest smi-test {case}");
        let said = dormouse(&[
            "lab",
            "boot",
            "--json",
            "--machine",
            folder.to_str().unwrap(),
            "--command",
            &line,
        ]);
        assert!(said.stdout.contains(reason), "{case}: {}", said.all());
    }
}
