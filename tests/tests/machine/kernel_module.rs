//! The module loads on the distribution's kernels, and refuses clearly what it should.

use dormouse_tests::{assert_resumed, guest, lab_cycle};

const LOAD: &str = "insmod /run/dormouse/modules/dormouse.ko";

#[test]
fn the_generic_kernel_sleeps_and_wakes_too() {
    let said = lab_cycle("generic", &["--flavour", "generic", "--fill", "128M"]);
    assert_resumed(&said.cycle(), &said);
}

#[test]
#[ignore = "make test-full: a module that is not inserted changes nothing; the kernels of make test-kernels have every symbol"]
fn a_kernel_without_a_needed_symbol_is_refused_by_name() {
    let said = guest(
        "no-symbol",
        &[],
        &format!(
            "rmmod dormouse; {LOAD} hook_symbol=no_such_name && echo wrongly accepted; \
             dmesg | grep 'dormouse:' | tail -n 1; ls /sys/power/dormouse 2>/dev/null; \
             {LOAD} && cat /sys/power/dormouse/state"
        ),
    );
    assert!(!said.contains("wrongly accepted"), "{said}");
    assert!(
        said.contains("no_such_name"),
        "the missing name is logged: {said}"
    );
    assert!(
        said.trim_end().ends_with("empty"),
        "with the right name it loads again: {said}"
    );
}

/// Firmware that does not answer: the module says so, and suspend is what it was.
#[test]
fn under_plain_seabios_the_module_is_refused_and_suspend_works_as_on_any_machine() {
    refused_under_seabios("cloud");
}

#[test]
#[ignore = "make test-full: the quick gate does it with the cloud kernel"]
fn under_plain_seabios_the_generic_kernel_refuses_the_module_and_suspends_too() {
    refused_under_seabios("generic");
}

fn refused_under_seabios(flavour: &str) {
    let said = guest(
        &format!("seabios-{flavour}"),
        &[
            "--firmware",
            "seabios",
            "--flavour",
            flavour,
            "--dram",
            "512M",
            "--cxl",
            "256M",
        ],
        &format!(
            "{LOAD} && echo wrongly accepted; ls -d /sys/power/dormouse 2>/dev/null; \
                 dmesg | grep 'dormouse:' | tail -n 1; \
                 echo mem >/sys/power/state && dmesg | grep -c 'PM: suspend exit'"
        ),
    );
    assert!(!said.contains("wrongly accepted"), "{flavour}: {said}");
    assert!(!said.contains("/sys/power/dormouse\n"), "{flavour}: {said}");
    assert!(
        said.contains("firmware does not offer Suspend-to-CXL"),
        "{flavour}: {said}"
    );
    assert!(
        said.trim_end().ends_with('1'),
        "{flavour}: one suspend, one resume: {said}"
    );
}

/// A second process can neither take the pass from a sleep under way nor end it; one whose owner is
/// gone is anybody's.
#[test]
fn the_guard_over_cxl_memory_is_passed_by_one_living_process_at_a_time() {
    let said = guest(
        "cxl-guard",
        &["--firmware", "seabios", "--dram", "512M", "--cxl", "256M"],
        "guard=/sys/module/dormouse_snapshot/parameters/cxl_guard; export guard; \
         [ -e $guard ] || insmod /run/dormouse/modules/dormouse_snapshot.ko; cat $guard; \
         echo pass >$guard; cat $guard; \
         for word in pass hold; do sh -c \"echo $word >$guard\" 2>/dev/null || echo refused; done; \
         cat $guard; echo hold >$guard; cat $guard; \
         sh -c 'echo pass >$guard'; echo pass >$guard && echo taken over; echo hold >$guard; cat $guard",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "hold",
            "pass",
            "refused",
            "refused",
            "pass",
            "hold",
            "taken over",
            "hold"
        ]
    );
}
