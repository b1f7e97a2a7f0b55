//! Sleep on the distribution's unmodified firmware, by the kernel's own snapshot.

use dormouse_tests::{MIB, assert_cold_boot, assert_resumed, lab_cycle};

fn five_cycles(firmware: &str) {
    let name = format!("stock-five-{firmware}");
    let said = lab_cycle(
        &name,
        &["--firmware", firmware, "--cycles", "5", "--fill", "512M"],
    );
    assert_eq!(said.code, 0, "{}", said.all());
    let cycles = said.cycles();
    assert_eq!(cycles.len(), 5, "{}", said.all());
    for cycle in &cycles {
        assert_resumed(cycle, &said);
        assert_eq!(cycle.user_bytes, 512 * MIB);
        assert!(cycle.saved_bytes > 0 && cycle.saved_bytes == cycle.restored_bytes);
    }
}

fn damaged(firmware: &str, tamper: &str, words: &[&str], reasons: &[&str]) {
    let mut all = vec!["--firmware", firmware, "--fill", "64M"];
    if tamper != "none" {
        all.extend(["--tamper", tamper]);
    }
    all.extend(words);
    let said = lab_cycle(&format!("stock-{tamper}"), &all);
    assert_cold_boot(&said, reasons);
}

#[test]
#[ignore = "make test-full: the sealed image of the quick gate is under BIOS"]
fn under_bios_a_machine_resumes_with_every_page_compared() {
    let said = lab_cycle("stock-seabios", &["--firmware", "seabios", "--fill", "64M"]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert_resumed(&said.cycle(), &said);
}

#[test]
fn under_uefi_a_machine_resumes_with_every_page_compared() {
    let said = lab_cycle("stock-ovmf", &["--firmware", "ovmf", "--fill", "64M"]);
    assert_eq!(said.code, 0, "{}", said.all());
    assert_resumed(&said.cycle(), &said);
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal on the host"]
fn a_flipped_bit_in_the_snapshot_is_a_cold_boot() {
    damaged("seabios", "page", &[], &["saved-digest", "restore"]);
}

#[test]
#[ignore = "make test-full: five cycles find what one of the quick gate finds nearly always"]
fn under_bios_five_cycles_resume() {
    five_cycles("seabios");
}

#[test]
#[ignore = "make test-full: five cycles find what one of the quick gate finds nearly always"]
fn under_uefi_five_cycles_resume() {
    five_cycles("ovmf");
}

#[test]
#[ignore = "make test-full: machine/image tests each refusal of a header on the host"]
fn each_damage_of_a_snapshot_is_a_cold_boot_with_its_reason() {
    for (tamper, words, reasons) in [
        ("header", &[][..], &["incomplete", "header-digest"][..]),
        ("bitmap", &[], &["bitmap-digest"]),
        (
            "user-page",
            &[
                "--sleep-argument=--verify-user-pages",
                "--sleep-argument=all",
            ],
            &["user-digest"],
        ),
        ("user-pages", &[], &["user-digest"]),
        ("version", &[], &["version", "no-image"]),
        ("truncate", &[], &["cxl-size"]),
        ("foreign", &[], &["no-image"]),
        ("serial", &[], &["device"]),
        (
            "none",
            &["--dram-after", "1152M"],
            &["dram-size", "memory-map", "cxl-size"],
        ),
    ] {
        damaged("seabios", tamper, words, reasons);
    }
}

#[test]
#[ignore = "make test-full: machine/image tests the refusal on the host; this one needs a second kernel"]
fn another_kernel_in_the_boot_entry_is_a_cold_boot() {
    let words = ["--flavour-after", "generic"];
    damaged("seabios", "none", &words, &["kernel: "]);
}

/// A sleep that is refused, and exit code 3, then the kernel's own hibernation.
fn hibernates_after(name: &str, before: &str) {
    let line = format!("{before}; dormouse sleep --json; test $? = 3");
    let said = lab_cycle(
        name,
        &[
            "--firmware",
            "seabios",
            "--mode",
            "hibernate",
            "--dram",
            "512M",
            "--cxl",
            "1G",
            "--fill",
            "64M",
            "--before",
            &line,
        ],
    );
    assert_eq!(said.code, 0, "{}", said.all());
    assert_resumed(&said.cycle(), &said);
}

#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn an_ordinary_hibernation_works_after_a_sleep_was_refused() {
    // Nobody would wake it.
    hibernates_after("stock-hibernates", "rm /run/dormouse/wake");
}

#[test]
#[ignore = "make test-full: as the test above, with another refusal"]
fn an_ordinary_hibernation_works_without_the_module() {
    hibernates_after("stock-no-module", "rmmod dormouse_snapshot");
}
