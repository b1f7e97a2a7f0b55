//! Hibernation, the peer: it really resumes, or the output says that it did not.

use dormouse_lab::Outcome;
use dormouse_tests::{Said, assert_resumed, lab_cycle, listed_of, words};

fn hibernate(name: &str, words: &[&str]) -> Said {
    let mut all = vec!["--dram", "512M", "--cxl", "1G", "--fill", "64M"];
    all.extend_from_slice(words);
    lab_cycle(name, &all)
}

/// Also with contents that were changed after the first resume: an old image would be found out.
#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn a_hibernated_machine_resumes_with_every_page_compared_twice_in_one_life() {
    let said = hibernate("hibernate", &["--mode", "hibernate", "--cycles", "2"]);
    assert_eq!(said.code, 0, "{}", said.all());
    let cycles = said.cycles();
    assert_eq!(cycles.len(), 2, "{}", said.all());
    for cycle in &cycles {
        assert_resumed(cycle, &said);
        assert_eq!(cycle.mode, "hibernate");
        assert_eq!(cycle.compressor.as_deref(), Some("lzo"));
        // All that users filled is in the image, and nothing is left on the disk.
        assert!(cycle.saved_bytes > cycle.user_bytes, "{}", said.all());
        assert_eq!(cycle.home_bytes, 0, "{}", said.all());
        for seconds in [
            cycle.suspend_s.total,
            cycle.suspend_s.shrink,
            cycle.suspend_s.devices,
            cycle.suspend_s.copy,
            cycle.suspend_s.write,
            cycle.suspend_s.off,
            cycle.resume_s.total,
            cycle.resume_s.firmware,
            cycle.resume_s.boot,
            cycle.resume_s.load,
            cycle.resume_s.kernel,
        ] {
            assert!(
                seconds.is_some_and(|seconds| seconds > 0.0),
                "{}",
                said.all()
            );
        }
    }
}

#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn a_machine_hibernated_to_the_persistent_memory_of_a_sleep_resumes() {
    let said = hibernate(
        "hibernate-pmem",
        &words("--firmware ovmf --mode hibernate --compressor none --swap-on pmem"),
    );
    assert_eq!(said.code, 0, "{}", said.all());
    let cycle = said.cycle();
    assert_resumed(&cycle, &said);
    // All that users filled went through the device.
    assert!(cycle.saved_bytes > cycle.user_bytes, "{}", said.all());
    assert_eq!(cycle.resume_s.boot, None, "{}", said.all());
}

#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn pages_that_were_swapped_out_before_hibernating_are_compared_too() {
    let said = hibernate(
        "hibernate-swap",
        &words("--mode hibernate-swap --compressor none --image-size 64M"),
    );
    let cycle = said.cycle();
    assert_resumed(&cycle, &said);
    assert_eq!(cycle.mode, "hibernate-swap");
    assert!(
        cycle.home_bytes > 0,
        "something was swapped: {}",
        said.all()
    );
    assert_eq!(cycle.compressor.as_deref(), Some("none"));
}

#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn an_image_whose_signature_is_gone_is_a_cold_boot_and_not_a_resume() {
    let name = "hibernate-signature";
    assert_eq!(
        listed_of("--tamper", &["--mode", "hibernate"]),
        ["swap-signature"]
    );
    let said = hibernate(name, &["--mode", "hibernate", "--tamper", "swap-signature"]);
    let cycle = said.cycle();
    assert!(cycle.ok, "{}", said.all());
    assert_eq!(cycle.outcome, Outcome::ColdBoot, "{}", said.all());
    assert!(!cycle.verified, "{}", said.all());
    assert!(cycle.reason.contains("signature"), "{}", said.all());
}

#[test]
#[ignore = "make test-full: hibernation is the peer of a benchmark"]
fn a_compressor_that_the_kernel_does_not_have_is_said_with_exit_code_3() {
    let said = hibernate(
        "hibernate-compressor",
        &["--mode", "hibernate", "--compressor", "nonesuch"],
    );
    assert_eq!(said.code, 3, "{}", said.all());
    assert!(said.stderr.contains("no nonesuch"), "{}", said.all());
}
