//! Made-up sysfs trees of machines with CXL devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::error::SleepError;
use crate::persistence::{check, find};

const BASE: u64 = 0x10_0000_0000;
const GIB: u64 = 1 << 30;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// As the driver lays it out: an endpoint whose uport is the device, its nvdimm, its attributes.
fn add_device(root: &Path, number: u32, serial: u64, count: Option<u64>) {
    let mem = format!("{CXL}/mem{number}");
    put(root, &format!("{mem}/serial"), &format!("{serial:#x}\n"));
    put(root, &format!("{mem}/security/state"), "disabled\n");
    let port = number + 5;
    let endpoint = root.join(format!("{CXL}/endpoint{port}"));
    fs::create_dir_all(&endpoint).unwrap();
    symlink(format!("../mem{number}"), endpoint.join("uport")).unwrap();
    // Numbers of nvdimms follow their own order.
    let nvdimm = format!("{NVDIMM}/nmem{}", 9 - number);
    put(
        root,
        &format!("{nvdimm}/cxl/provider"),
        &format!("pmem{number}\n"),
    );
    if let Some(count) = count {
        put(
            root,
            &format!("{nvdimm}/cxl/dirty_shutdown"),
            &format!("{count}\n"),
        );
    }
}

fn add_region(root: &Path, name: &str, base: u64, bytes: u64, devices: &[u32]) {
    let region = format!("{CXL}/{name}");
    put(root, &format!("{region}/resource"), &format!("{base:#x}\n"));
    put(root, &format!("{region}/size"), &format!("{bytes:#x}\n"));
    put(root, &format!("{region}/mode"), "pmem\n");
    let ways = devices.len();
    put(
        root,
        &format!("{region}/interleave_ways"),
        &format!("{ways}\n"),
    );
    for (way, device) in devices.iter().enumerate() {
        let decoder = format!("decoder{}.0\n", device + 5);
        put(root, &format!("{region}/target{way}"), &decoder);
    }
}

fn status(serial: u64, count: u64) -> Status {
    Status {
        cxl_base: BASE,
        cxl_bytes: 4 * GIB,
        device_serial: serial,
        dirty_shutdown_count: count,
        global_persistent_flush: "unknown".into(),
        ..Status::default()
    }
}

/// One device, one region, a kernel that can ask: good.
fn good() -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(root, "proc/sys/kernel/osrelease", "6.17.2-amd64\n");
    add_device(root, 0, 0x1122, Some(3));
    add_region(root, "region0", BASE, 4 * GIB, &[0]);
    let tree = Tree::at(root);
    (folder, tree)
}

fn reasons(tree: &Tree, status: &Status) -> String {
    match check(tree, status, false) {
        Err(SleepError::Volatile { reasons }) => reasons,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_armed_device_that_counts_is_good() {
    let (_folder, tree) = good();
    let verdict = check(&tree, &status(0x1122, 3), false).unwrap();
    assert_eq!(verdict.persistence, Persistence::DEVICE);
    assert!(verdict.reasons[0].contains("mem0"), "{verdict:?}");
}

#[test]
fn an_older_kernel_cannot_ask_and_the_reason_is_given() {
    let (folder, tree) = good();
    let root = folder.path();
    fs::remove_file(root.join("sys/bus/nd/devices/nmem9/cxl/dirty_shutdown")).unwrap();
    put(root, "proc/sys/kernel/osrelease", "6.12.57+deb13-amd64\n");
    let refused = reasons(&tree, &status(0x1122, 3));
    assert!(
        refused.contains("Linux 6.12.57+deb13-amd64 cannot ask mem0"),
        "{refused}"
    );
    assert!(refused.contains("firmware does not state"), "{refused}");
    // Firmware, which asked the device itself, may vouch for it then.
    let stated = Status {
        global_persistent_flush: "armed".into(),
        counts_dirty_shutdowns: true,
        ..status(0x1122, 3)
    };
    assert_eq!(find(&tree, &stated).persistence, Persistence::FIRMWARE);
}

#[test]
fn a_newer_kernel_that_shows_no_count_means_that_the_device_has_none() {
    let (folder, tree) = good();
    fs::remove_file(
        folder
            .path()
            .join("sys/bus/nd/devices/nmem9/cxl/dirty_shutdown"),
    )
    .unwrap();
    let stated = Status {
        global_persistent_flush: "armed".into(),
        counts_dirty_shutdowns: true,
        ..status(0x1122, 3)
    };
    let refused = reasons(&tree, &stated);
    assert!(refused.contains("mem0 cannot arm"), "{refused}");
}

#[test]
fn every_interleaved_device_must_be_good() {
    let (folder, tree) = good();
    let root = folder.path();
    add_device(root, 1, 0x3344, Some(4));
    add_region(root, "region0", BASE, 4 * GIB, &[1, 0]);
    let firmware = status(combined_serial(&[0x3344, 0x1122]), 7);
    assert_eq!(find(&tree, &firmware).persistence, Persistence::DEVICE);
    // In another order they hold other data.
    let swapped = status(combined_serial(&[0x1122, 0x3344]), 7);
    assert!(reasons(&tree, &swapped).contains("a swapped device"));

    fs::remove_file(root.join("sys/bus/nd/devices/nmem8/cxl/dirty_shutdown")).unwrap();
    let refused = reasons(&tree, &firmware);
    assert!(
        refused.contains("mem1") && !refused.contains("mem0"),
        "{refused}"
    );
}

#[test]
fn a_window_of_two_regions_needs_both_and_no_hole() {
    let (folder, tree) = good();
    let root = folder.path();
    add_device(root, 1, 0x3344, Some(0));
    add_region(root, "region0", BASE, 2 * GIB, &[0]);
    let firmware = status(combined_serial(&[0x1122, 0x3344]), 3);
    let refused = reasons(&tree, &firmware);
    assert!(
        refused.contains("2147483648 bytes of firmware's window"),
        "{refused}"
    );
    add_region(root, "region1", BASE + 2 * GIB, 2 * GIB, &[1]);
    assert_eq!(find(&tree, &firmware).persistence, Persistence::DEVICE);
}

#[test]
fn a_region_elsewhere_does_not_vouch_for_the_window() {
    let (folder, tree) = good();
    add_region(folder.path(), "region0", BASE + 4 * GIB, GIB, &[0]);
    let refused = reasons(&tree, &status(0x1122, 3));
    assert!(refused.contains("no CXL region"), "{refused}");
}

#[test]
fn what_would_lose_or_lock_the_memory_is_refused() {
    let table: [(&str, &str, &str); 4] = [
        ("sys/bus/cxl/devices/region0/mode", "ram\n", "volatile"),
        (
            "sys/bus/cxl/devices/mem0/security/state",
            "unlocked\n",
            "passphrase",
        ),
        (
            "sys/bus/cxl/devices/mem0/serial",
            "0x0\n",
            "no serial number",
        ),
        (
            "sys/bus/nd/devices/nmem9/cxl/provider",
            "pmem7\n",
            "no nvdimm",
        ),
    ];
    for (path, text, expected) in table {
        let (folder, tree) = good();
        put(folder.path(), path, text);
        let refused = reasons(&tree, &status(0x1122, 3));
        assert!(refused.contains(expected), "{path}: {refused}");
        let accepted = check(&tree, &status(0x1122, 3), true).unwrap();
        assert_eq!(accepted.persistence, Persistence::ACCEPTED, "{path}");
    }
}

#[test]
fn firmware_that_knows_another_device_or_count_would_not_notice() {
    let (_folder, tree) = good();
    assert!(reasons(&tree, &status(0x9999, 3)).contains("firmware knows the device as 0x9999"));
    assert!(reasons(&tree, &status(0x1122, 2)).contains("firmware counts 2"));
}

#[test]
fn nonsense_in_sysfs_is_no_answer() {
    let (folder, tree) = good();
    for (path, text) in [
        ("sys/bus/cxl/devices/region0/target0", "\n"),
        ("sys/bus/cxl/devices/region0/target0", "decoderx\n"),
        ("sys/bus/cxl/devices/region0/target0", "decoder99.0\n"),
        ("sys/bus/cxl/devices/region0/size", "\n"),
        (
            "sys/bus/cxl/devices/region0/interleave_ways",
            "99999999999\n",
        ),
    ] {
        add_region(folder.path(), "region0", BASE, 4 * GIB, &[0]);
        put(folder.path(), path, text);
        assert!(check(&tree, &status(0x1122, 3), false).is_err(), "{path}");
    }
}

#[test]
fn holes_are_counted_whatever_the_order_and_overlap() {
    assert_eq!(uncovered_bytes(&[], 100, 50), 50);
    assert_eq!(uncovered_bytes(&[(0, 1000)], 100, 50), 0);
    assert_eq!(
        uncovered_bytes(&[(120, 10), (90, 20), (125, 10)], 100, 50),
        10 + 15
    );
    assert_eq!(uncovered_bytes(&[(u64::MAX - 5, 100)], 100, 50), 50);
}
