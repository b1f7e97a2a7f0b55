use super::*;
use crate::doctor::Status;
use std::fs;

fn empty_machine() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    (directory, root)
}

/// A machine that can sleep.
fn good_machine() -> (tempfile::TempDir, Root) {
    let (directory, root) = empty_machine();
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "6.12.57+deb12-cloud-amd64\n"),
        ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
        ("sys/power/mem_sleep", "s2idle [deep]\n"),
        ("sys/bus/acpi/devices/DORM0001:00/status", "15\n"),
        ("sys/module/dormouse/refcnt", "0\n"),
        ("sys/power/dormouse/enabled", "1\n"),
        ("sys/power/dormouse/state", "consumed\n"),
        ("sys/power/dormouse/last_outcome", "resumed\n"),
        ("sys/power/dormouse/cxl_base", "0x100000000\n"),
        ("sys/power/dormouse/cxl_bytes", "2147483648\n"),
        ("sys/power/dormouse/dirty_shutdown_count", "0\n"),
        ("sys/power/dormouse/global_persistent_flush", "armed\n"),
        ("sys/power/dormouse/dirty_shutdowns_counted", "1\n"),
        ("sys/bus/dax/devices/dax0.0/target_node", "1\n"),
        ("sys/bus/dax/devices/dax0.0/resource", "0x108000000\n"),
        ("sys/bus/dax/devices/dax0.0/size", "2013265920\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ("sys/devices/system/memory/auto_online_blocks", "offline\n"),
        ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
        (
            "sys/kernel/tracing/events/damon/damon_aggregated/id",
            "734\n",
        ),
        (
            "sys/kernel/tracing/events/damon/damon_aggregated/format",
            "x\n",
        ),
    ] {
        root.create(path, text).unwrap();
    }
    (directory, root)
}

fn all(root: &Root) -> Vec<Check> {
    checks(&Facts::probe(root))
}

fn status(root: &Root, id: &str) -> Status {
    all(root)
        .into_iter()
        .find(|check| check.id == id)
        .unwrap()
        .status
}

#[test]
fn a_machine_that_can_sleep_has_nothing_to_do() {
    let (_directory, root) = good_machine();
    for check in all(&root) {
        assert_eq!(check.status, Status::Ok, "{check:?}");
    }
}

#[test]
fn an_empty_tree_lacks_everything_and_says_what_to_do() {
    let (_directory, root) = empty_machine();
    for check in all(&root) {
        let needs_todo = matches!(check.status, Status::Missing | Status::Warn);
        assert_eq!(!check.todo.is_empty(), needs_todo, "{check:?}");
    }
    for id in [
        "kernel",
        "mem-sleep",
        "firmware",
        "module",
        "cxl-node",
        "cgroup",
    ] {
        assert_eq!(status(&root, id), Status::Missing, "{id}");
    }
    assert_eq!(status(&root, "enabled"), Status::NotApplicable);
}

#[test]
fn cxl_memory_that_keeps_the_kernel_from_s3_is_named() {
    let (_directory, root) = good_machine();
    root.create("sys/power/mem_sleep", "[s2idle]\n").unwrap();
    root.create("sys/bus/cxl/drivers/cxl_mem/mem0/serial", "1\n")
        .unwrap();
    let all = all(&root);
    let found = all.iter().find(|check| check.id == "mem-sleep").unwrap();
    assert_eq!(found.status, Status::Missing);
    assert!(found.found.contains("mem0"), "{found:?}");
    assert!(found.todo.contains("cxl_mem"), "{found:?}");
}

#[test]
fn each_lack_is_found_by_itself() {
    use Status::{Missing, Warn};
    let changes = [
        (
            "kernel",
            Missing,
            "proc/sys/kernel/osrelease",
            "6.1.0-40-amd64\n",
        ),
        ("mem-sleep", Missing, "sys/power/mem_sleep", "[s2idle]\n"),
        ("enabled", Missing, "sys/power/dormouse/enabled", "0\n"),
        ("image", Missing, "sys/power/dormouse/state", "suspended\n"),
        (
            "cxl-node",
            Missing,
            "sys/bus/dax/devices/dax0.0/resource",
            "0x9000000000\n",
        ),
        (
            "memory-policy",
            Warn,
            "sys/devices/system/memory/auto_online_blocks",
            "online\n",
        ),
        (
            "persistence",
            Missing,
            "sys/power/dormouse/global_persistent_flush",
            "absent\n",
        ),
        (
            "privileges",
            Warn,
            "proc/self/status",
            "CapEff:\t0000000000000000\n",
        ),
        (
            "lockdown",
            Warn,
            "sys/kernel/security/lockdown",
            "none [integrity]\n",
        ),
    ];
    for (id, expected, path, text) in changes {
        let (_directory, root) = good_machine();
        root.create(path, text).unwrap();
        for check in all(&root) {
            let wanted = if check.id == id { expected } else { Status::Ok };
            assert_eq!(check.status, wanted, "{path}: {check:?}");
        }
    }
}

#[test]
fn a_kernel_that_cannot_find_hot_pages_is_a_warning() {
    for path in [
        "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
        "sys/kernel/tracing/events/damon/damon_aggregated/id",
    ] {
        let (_directory, root) = good_machine();
        fs::remove_file(root.path(path)).unwrap();
        assert_eq!(status(&root, "hot-pages"), Status::Warn, "{path}");
    }
}

#[test]
fn a_module_without_firmware_differs_from_no_module() {
    let (_directory, root) = good_machine();
    fs::remove_dir_all(root.path("sys/power/dormouse")).unwrap();
    let check = all(&root)
        .into_iter()
        .find(|check| check.id == "module")
        .unwrap();
    assert!(check.todo.contains("dmesg"), "{check:?}");
}

#[test]
fn our_firmware_is_preferred_and_persistent_memory_is_the_second_choice() {
    let mut facts = Facts::default();
    assert_eq!(recommended(&facts), None);
    assert_eq!(way(&facts).status, Status::Missing);
    facts.dax_devices = vec![DaxDevice {
        name: "dax0.0".to_owned(),
        node: 1,
        base: 4 << 30,
        bytes: 1 << 30,
    }];
    assert_eq!(recommended(&facts), Some(Way::Snapshot));
    assert!(way(&facts).found.starts_with("snapshot: "));
    facts.firmware_device = Some("DORM0001:00".to_owned());
    assert_eq!(recommended(&facts), Some(Way::Firmware));
    assert!(way(&facts).found.starts_with("firmware: "));
}
