//! Graph order under a distribution's generic kernel and its drivers: a machine full of devices, each
//! of which is used after each transition.

use dormouse_tests::{Said, dormouse};
use serde_json::Value;

fn real(options: &[(&str, &str)]) -> (Said, Value) {
    real_with(&[], options)
}

fn real_with(flags: &[&str], options: &[(&str, &str)]) -> (Said, Value) {
    let machine = tempfile::tempdir().expect("a folder");
    let machine = machine.path().to_str().expect("a UTF-8 path");
    let mut arguments = vec!["lab", "devices", "real", "--json", "--machine", machine];
    arguments.extend(flags);
    for &(option, value) in options {
        arguments.extend([option, value]);
    }
    let said = dormouse(&arguments);
    let report = said.report();
    (said, report)
}

/// Clean, and of a machine that is what the page says.
fn is_clean(said: &Said, report: &Value) {
    assert_eq!(said.code, 0, "{}", said.all());
    let count = |key: &str| report[key].as_u64().unwrap_or_default();
    assert!(count("devices") >= 60, "{}", said.all());
    let buses = report["by_bus"].as_object().expect("buses");
    for bus in ["pci", "usb", "scsi", "virtio", "mmc", "pnp", "serio"] {
        assert!(buses.contains_key(bus), "{bus}: {}", said.all());
    }
    assert!(count("uses") >= count("transitions") * 15, "{}", said.all());
}

/// A few whole sleeps, two failures, and a device that is taken out; besides, what `more` says.
fn works(more: &[(&str, &str)]) {
    let options = [
        ("--rounds", "0"),
        ("--injections", "2"),
        ("--removals", "1"),
    ];
    let (said, report) = real(&[&options, more].concat());
    is_clean(&said, &report);
    assert_eq!(report["failures"], 2, "{}", said.all());
    assert_eq!(report["removals"], 1);
}

#[test]
#[ignore = "make test-full: it takes two minutes; failures, wake-ups and hangs of generated devices are in the quick gate"]
fn every_device_works_after_sleeps_in_graph_order_failures_wakeups_and_removals() {
    works(&[("--whole", "2")]);
}

#[test]
#[ignore = "make test-full: it takes three minutes, and the packages of the newest kernel are found and fetched"]
fn on_the_newest_kernel_every_device_works_after_sleeps_to_idle_and_to_ram_in_graph_order() {
    works(&[("--kernel", "newest"), ("--whole", "4")]);
}

/// Whole sleeps by the lab's firmware: the emulator ends, and another one wakes the machine.
#[test]
#[ignore = "make test-full: it takes three minutes; a sleep of the generic kernel without these devices is in the quick gate"]
fn every_device_works_after_its_power_was_gone_in_suspend_to_cxl() {
    let options = [
        ("--sleep", "cxl"),
        ("--modes", "graph"),
        ("--rounds", "0"),
        ("--whole", "4"),
        ("--injections", "2"),
        ("--removals", "1"),
    ];
    let (said, report) = real(&options);
    is_clean(&said, &report);
    // Two of the four, one while the kernel learns, and one when the module is gone.
    assert_eq!(report["by_way"]["cxl"], 4, "{}", said.all());
    assert_eq!(
        (&report["failures"], &report["removals"]),
        (&2.into(), &1.into())
    );
}

#[test]
#[ignore = "make test-full: a hundred whole sleeps of a machine full of devices take a quarter of an hour"]
fn every_device_works_after_each_of_a_hundred_whole_sleeps_in_graph_order() {
    let options = [
        ("--whole", "100"),
        ("--rounds", "1"),
        ("--injections", "12"),
        ("--removals", "3"),
    ];
    let (said, report) = real(&options);
    is_clean(&said, &report);
    let graph = report["by_mode"]["graph"].as_u64();
    assert!(graph >= Some(100), "{}", said.all());
    // Every second one, and those of the rounds.
    let to_ram = report["sleeps_to_ram"].as_u64();
    assert!(to_ram >= Some(50), "{}", said.all());
    assert_eq!(
        (&report["failures"], &report["wakeups"]),
        (&6.into(), &6.into())
    );
}

#[test]
#[ignore = "make test-full: it takes three minutes"]
fn a_device_goes_comes_and_changes_while_the_machine_sleeps_and_a_driver_that_hangs_is_given_up() {
    let options = [
        ("--modes", "graph"),
        ("--rounds", "0"),
        ("--whole", "0"),
        ("--injections", "0"),
        ("--removals", "0"),
        ("--hang", "suspend"),
    ];
    let (said, report) = real_with(&["--exchange"], &options);
    is_clean(&said, &report);
    assert_eq!(
        (&report["exchanges"], &report["hangs"]),
        (&3.into(), &1.into())
    );
}
