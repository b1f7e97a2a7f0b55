//! Sealed sleep images on stock firmware: each key resumes, and whatever is changed, exchanged or taken
//! away is a cold boot with its reason.

use dormouse_lab::Outcome;
use dormouse_tests::{Said, assert_resumed, lab_cycle};

/// The ways of `--tamper list` that are about sealed images; each is in a test below.
pub const WAYS: [&str; 6] = ["forged", "tag", "unsealed", "wrong-key", "no-tpm", "replay"];

const SMALL: [&str; 8] = [
    "--firmware",
    "seabios",
    "--fill",
    "64M",
    "--cxl",
    "512M",
    "--redis-keys",
    "1000",
];

fn sealed(name: &str, seal: &str, words: &[&str]) -> Said {
    let mut all = SMALL.to_vec();
    if seal == "tpm" {
        // SeaBIOS has no room for the tables of both.
        all[1] = "ovmf";
    }
    all.extend(["--seal", seal]);
    all.extend(words);
    lab_cycle(name, &all)
}

fn resumes(seal: &str) {
    let said = sealed(&format!("sealed-{seal}"), seal, &[]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert_resumed(&said.cycle(), &said);
}

fn refused(seal: &str, tamper: &str, reasons: &[&str]) {
    let name = format!("sealed-{seal}-{tamper}");
    let said = sealed(&name, seal, &["--tamper", tamper]);
    let cycle = said.cycle();
    assert!(cycle.ok, "{}", said.all());
    assert_eq!(cycle.outcome, Outcome::ColdBoot, "{}", said.all());
    let (name, _) = cycle.reason.split_once(": ").unwrap_or_default();
    assert!(
        reasons.contains(&name),
        "{reasons:?}, not {:?}\n{}",
        cycle.reason,
        said.all()
    );
}

#[test]
#[ignore = "make test-full: the quick gate seals with a key file; the TPM's part is tested on the host"]
fn an_image_sealed_with_the_tpm_resumes() {
    resumes("tpm");
}

#[test]
#[ignore = "make test-full: two cycles under UEFI; machine/seal tests the counter's refusal on the host"]
fn an_older_image_that_is_put_back_is_a_cold_boot() {
    let words = ["--cycles", "2", "--tamper", "replay"];
    let said = sealed("sealed-replay", "tpm", &words);
    let cycles = said.cycles();
    assert_eq!(cycles.len(), 2, "{}", said.all());
    assert_resumed(&cycles[0], &said);
    assert_eq!(cycles[1].outcome, Outcome::ColdBoot, "{}", said.all());
    assert!(cycles[1].reason.starts_with("older: "), "{}", said.all());
    assert_eq!(said.code, 0, "{}", said.all());
}

#[test]
fn an_image_sealed_with_a_key_file_resumes() {
    resumes("key-file");
}

#[test]
#[ignore = "make test-full: the quick gate seals with a key file; what a passphrase adds is tested on the host"]
fn an_image_sealed_with_a_passphrase_resumes() {
    resumes("passphrase");
}

#[test]
#[ignore = "make test-full: machine/seal tests each refusal on the host"]
fn a_wrong_key_is_a_cold_boot() {
    refused("key-file", "wrong-key", &["wrong-key"]);
    refused("passphrase", "wrong-key", &["wrong-key"]);
}

#[test]
#[ignore = "make test-full: machine/seal tests each refusal on the host"]
fn a_missing_tpm_is_a_cold_boot() {
    // UEFI reserves memory for the TPM's log: without a TPM, the amount of DRAM is compared first.
    refused("tpm", "no-tpm", &["key", "dram-size", "memory-map"]);
}

#[test]
#[ignore = "make test-full: machine/seal tests each refusal on the host"]
fn a_changed_page_tag_or_bitmap_of_a_sealed_image_is_a_cold_boot() {
    for tamper in ["page", "tag", "forged"] {
        refused("key-file", tamper, &["seal"]);
    }
}

#[test]
#[ignore = "make test-full: machine/seal tests each refusal on the host"]
fn an_image_in_plain_text_is_a_cold_boot_where_images_are_sealed() {
    refused("key-file", "unsealed", &["not-sealed"]);
}

#[test]
#[ignore = "make test-full: the order of the steps is tested at the same points without a key"]
fn power_lost_around_the_commit_of_a_sealed_image_ends_as_without_a_key() {
    for (fault, outcome) in [
        ("before-commit", Outcome::ColdBoot),
        ("after-commit", Outcome::Resumed),
        ("restoring", Outcome::Resumed),
        ("after-consume", Outcome::ColdBoot),
    ] {
        let said = sealed(&format!("sealed-{fault}"), "key-file", &["--fault", fault]);
        assert_eq!(said.code, 0, "{}", said.all());
        assert_eq!(said.cycle().outcome, outcome, "{}", said.all());
    }
}
