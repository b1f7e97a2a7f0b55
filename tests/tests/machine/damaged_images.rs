//! A sleeping machine's CXL device is damaged or exchanged: it boots afresh and says why.

use std::fs;

use dormouse_lab::Outcome;
use dormouse_tests::{assert_cold_boot, dormouse, lab_cycle, listed, test_folder};

/// Ways of `--tamper list` and the reasons that may be given. A header with a flipped bit falls
/// back to its older copy, which says that the save was under way.
const WAYS: [(&str, &[&str]); 10] = [
    ("header", &["incomplete", "header-digest"]),
    ("bitmap", &["bitmap-digest"]),
    ("page", &["saved-digest"]),
    ("user-page", &["user-digest"]),
    ("user-pages", &["user-digest"]),
    ("version", &["version"]),
    ("truncate", &["cxl-size"]),
    ("foreign", &["magic"]),
    ("serial", &["device"]),
    ("dirty-shutdown", &["dirty-shutdown"]),
];

fn damage(words: &[&str], name: &str, reasons: &[&str]) {
    let mut all = vec!["--fill", "128M"];
    all.extend_from_slice(words);
    let said = lab_cycle(name, &all);
    assert_cold_boot(&said, reasons);
}

fn tamper(way: &str) {
    let (_, reasons) = WAYS.iter().find(|(name, _)| *name == way).unwrap();
    damage(&["--tamper", way], &format!("tamper-{way}"), reasons);
}

#[test]
fn every_listed_way_has_a_test() {
    let all: Vec<&str> = WAYS
        .iter()
        .map(|(name, _)| *name)
        .chain(super::sealed_images::WAYS)
        .collect();
    assert_eq!(listed("--tamper"), all);
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal of a header on the host"]
fn one_flipped_bit_in_the_header_is_a_cold_boot() {
    tamper("header");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal on the host"]
fn one_flipped_bit_in_a_bitmap_is_a_cold_boot() {
    tamper("bitmap");
}

#[test]
#[ignore = "make test-full: the test of the reason's places damages such a page, too"]
fn one_flipped_bit_in_a_saved_page_is_a_cold_boot() {
    tamper("page");
}

/// Without the option this one is not found: the machine runs on with the page as it is now.
#[test]
fn one_flipped_bit_in_a_program_s_page_is_a_cold_boot_if_all_are_verified() {
    let (_, reasons) = WAYS.iter().find(|(name, _)| *name == "user-page").unwrap();
    let all = ["--sleep-argument", "--verify-user-pages=all"];
    damage(
        &[&["--tamper", "user-page"], all.as_slice()].concat(),
        "tamper-user-page",
        reasons,
    );
}

#[test]
#[ignore = "make test-full: machine/image tests the sample on the host; one page of many is in the quick gate"]
fn a_device_that_somebody_else_wrote_to_is_a_cold_boot_by_the_sample_alone() {
    tamper("user-pages");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal of a header on the host"]
fn an_image_of_another_version_is_a_cold_boot() {
    tamper("version");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal on the host"]
fn a_truncated_device_is_a_cold_boot() {
    tamper("truncate");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal of a header on the host"]
fn a_foreign_device_is_a_cold_boot() {
    tamper("foreign");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal of a header on the host"]
fn the_same_image_on_another_device_is_a_cold_boot() {
    tamper("serial");
}

#[test]
#[ignore = "make test-full: the same reason as that of a failed flush, which is in the quick gate"]
fn a_device_that_lost_writes_is_a_cold_boot() {
    tamper("dirty-shutdown");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal on the host"]
fn dram_that_shrank_while_asleep_is_a_cold_boot() {
    damage(
        &["--dram", "1G", "--dram-after", "768M"],
        "dram-shrank",
        &["dram-size"],
    );
}

#[test]
fn image_inspect_and_sysfs_show_the_reason_of_a_cold_boot() {
    let name = "inspect-reason";
    let said = lab_cycle(name, &["--fill", "64M", "--tamper", "page", "--keep"]);
    assert_eq!(said.cycle().outcome, Outcome::ColdBoot, "{}", said.all());

    let folder = test_folder(name);
    let device = folder.join("cxl.mem");
    let said = dormouse(&["image", "inspect", device.to_str().unwrap()]);
    assert!(said.stdout.contains("saved-digest"), "{}", said.all());
    let json = dormouse(&["image", "inspect", "--json", device.to_str().unwrap()]);
    serde_json::from_str::<serde_json::Value>(&json.stdout).expect("one JSON object");

    let said = dormouse(&[
        "lab",
        "boot",
        "--json",
        "--keep",
        "--machine",
        folder.to_str().unwrap(),
        "--command",
        "cat /sys/power/dormouse/last_outcome /sys/power/dormouse/last_reason",
    ]);
    assert!(
        said.stdout.contains(r"cold-boot\nsaved-digest"),
        "{}",
        said.all()
    );

    // Nothing to wake from is a verdict, not a crash; and no file is too odd to be looked at.
    let said = dormouse(&["image", "verify", device.to_str().unwrap()]);
    assert_ne!(said.code, 0, "{}", said.all());
    let odd = folder.join("odd");
    fs::write(&odd, b"short").unwrap();
    let said = dormouse(&["image", "inspect", odd.to_str().unwrap()]);
    assert!(said.stdout.contains("not a sleep image"), "{}", said.all());
    let said = dormouse(&["image", "verify", odd.to_str().unwrap()]);
    assert_eq!(said.code, 4, "{}", said.all());
}
