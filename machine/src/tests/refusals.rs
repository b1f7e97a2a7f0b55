//! Sleeps that are refused or interrupted, and what is undone then.

use std::fs;

use dormouse_report::Kind;

use super::machine::{FakeMachine, Habit, MIB, MODULE, REDIS, names};
use crate::options::{MigrateBackMode, SleepOptions, VerifyUserPages};
use crate::owner::MemoryKind;
use crate::sleep;

#[test]
fn what_does_not_fit_after_migration_is_refused_with_the_owners_of_what_stayed() {
    let fake = FakeMachine::new(Habit::NoSpaceAtTheEnd);
    let meminfo = "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 524288 kB\n\
                   Node 0 AnonPages: 102400 kB\nNode 0 Mapped: 0 kB\n";
    let path = "sys/devices/system/node/node0";
    fake.put(&format!("{path}/meminfo"), meminfo);
    let pool = format!("{path}/hugepages/hugepages-2048kB/free_hugepages");
    fake.put(&pool, "40\n");
    let error = fake.refusal();
    assert_eq!(error.reason(), "no-space");
    let owners: Vec<(MemoryKind, u64)> = error.owners().iter().map(|o| (o.kind, o.bytes)).collect();
    assert_eq!(owners, [(MemoryKind::HugetlbPool, 80 * MIB)]);
    assert!(
        error.to_string().contains("free huge pages 80.0 MiB"),
        "{error}"
    );
}

#[test]
fn a_refusal_by_firmware_is_named_and_undone() {
    let fake = FakeMachine::new(Habit::FirmwareRefuses);
    let (result, events) = fake.sleep(MigrateBackMode::Never);
    let error = result.unwrap_err();
    assert_eq!(error.reason(), "memory-map");
    assert!(error.to_string().contains("0x42"));
    fake.assert_as_before();
    assert!(names(&events, Kind::End).contains(&"node-offline"));
}

#[test]
fn a_device_that_refuses_to_suspend_is_undone() {
    let fake = FakeMachine::new(Habit::LinuxRefuses);
    fake.put("sys/power/suspend_stats/last_failed_dev", "0000:00:1f.2\n");
    let error = fake.refusal();
    assert_eq!(error.reason(), "not-entered");
    assert!(error.to_string().contains("0000:00:1f.2"), "{error}");
    fake.assert_as_before();
}

#[test]
fn user_space_that_does_not_stop_is_named_and_let_go() {
    let fake = FakeMachine::new(Habit::NeverFreezes);
    // mem_sleep was not touched yet.
    fake.put("sys/power/mem_sleep", "s2idle deep\n");
    let error = fake.refusal();
    assert_eq!(error.reason(), "freeze-timeout");
    assert!(error.to_string().contains("/redis") && error.to_string().contains("redis 200"));
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
    assert_eq!(fake.position_of_write("sys/power/state"), None);
}

#[test]
fn a_signal_on_the_way_down_undoes_everything() {
    let fake = FakeMachine::new(Habit::SignalOnTheWay);
    let error = fake.refusal();
    assert_eq!(error.reason(), "interrupted");
    assert_eq!(fake.pages.count_on(1), 0);
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
    assert_eq!(fake.position_of_write("sys/power/state"), None);
}

#[test]
fn too_small_a_cxl_device_is_refused_before_anything_changes() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.put("sys/bus/dax/devices/dax0.0/size", "0\n");
    assert_eq!(fake.refusal().reason(), "no-node");
    // One block of 128 MiB for 100 MiB of users' pages and 50 MiB of the kernel's.
    fake.put("sys/bus/dax/devices/dax0.0/size", "134217728\n");
    let estimate = format!("save_bytes {}\nfree_bytes 1048576\n", 200 * MIB);
    fake.put_module("estimate", &estimate);
    let maps = "7f0000000000 default anon=5000 N0=5000 kernelpagesize_kB=4\n";
    fake.put("proc/200/numa_maps", maps);
    let (result, events) = fake.sleep(MigrateBackMode::Never);
    let error = result.unwrap_err();
    assert_eq!((error.reason(), error.exit_code()), ("no-space", 1));
    let owners: Vec<&str> = error.owners().iter().map(|o| o.name.as_str()).collect();
    assert_eq!(owners, ["kernel", "redis"], "{error}");
    let (needed, available) = error.space_bytes().unwrap();
    assert_eq!(needed, 150 * MIB);
    assert!(available < 129 * MIB);
    assert_eq!(events.last().unwrap().detail["refused"], "no-space");
    fake.assert_nothing_changed();
}

#[test]
fn what_does_not_fit_after_migration_is_refused_and_migrated_back() {
    let fake = FakeMachine::new(Habit::NoSpaceAtTheEnd);
    let error = fake.refusal();
    assert_eq!(error.space_bytes(), Some((200_000_000, 100_000_000)));
    assert_eq!(fake.pages.count_on(1), 0);
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
}

#[test]
fn a_machine_without_the_module_or_with_an_image_is_refused() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.put_module("state", "suspended\n");
    assert_eq!(fake.refusal().reason(), "image-exists");
    fake.put_module("state", "empty\n");
    fake.put_module("enabled", "0\n");
    assert_eq!(fake.refusal().reason(), "disabled");
    fs::remove_dir_all(fake.root.path(MODULE)).unwrap();
    let error = fake.refusal();
    assert_eq!((error.reason(), error.exit_code()), ("no-module", 3));
}

#[test]
fn a_sleep_that_is_refused_leaves_a_way_home_alone() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.put_module("enabled", "0\n");
    let _home = crate::system::lock::take(&fake.root, "migrate-back", false).unwrap();
    // Taking the lock would send SIGTERM to its holder: this process.
    assert_eq!(fake.refusal().reason(), "disabled");
}

#[test]
fn a_device_that_may_forget_is_refused_before_anything_changes_unless_the_risk_is_accepted() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.put_module("global_persistent_flush", "absent\n");
    fake.put_module("persistence", "unknown\n");
    let error = fake.refusal();
    assert_eq!((error.reason(), error.exit_code()), ("volatile", 3));
    assert!(error.is_refusal());
    let text = error.to_string();
    assert!(text.contains("no Global Persistent Flush"), "{text}");
    assert!(text.contains("--accept-volatile"), "{text}");
    assert!(fake.writes.lock().unwrap().is_empty());

    let options = SleepOptions {
        accept_volatile: true,
        verify_user_pages: VerifyUserPages::All,
        ..fake.options(MigrateBackMode::Never)
    };
    let report = sleep::run(&fake.machine(), &options, &mut |_| ()).unwrap();
    assert_eq!(report.persistence, "accepted");
    // The module had the setting before the sleep, and has its own settings again.
    let slept = fake.position_of_write("sys/power/state");
    let slept = slept.expect("it slept");
    let writes = fake.writes.lock().unwrap();
    let position = |write: &str| {
        let found = writes.iter().position(|one| one == write);
        found.unwrap_or_else(|| panic!("no {write} in {writes:?}"))
    };
    for (name, during, after) in [
        ("persistence", "accepted", "unknown"),
        ("verify_user_pages", "all", "sample"),
    ] {
        assert!(position(&format!("{MODULE}/{name}={during}")) < slept);
        assert!(position(&format!("{MODULE}/{name}={after}")) > slept);
    }
}
