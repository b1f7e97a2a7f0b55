//! Made-up sysfs trees of machines with CXL devices.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::error::SleepError;
use crate::persistence::{check, find};

const RELEASE: &str = "proc/sys/kernel/osrelease";
const BASE: u64 = 0x10_0000_0000;
const GIB: u64 = 1 << 30;

/// As the driver lays it out: an endpoint whose uport is the device, its nvdimm, its attributes.
fn add_device(root: &Root, number: u32, serial: u64, count: Option<u64>) {
    let mem = format!("{CXL}/mem{number}");
    put(root, &format!("{mem}/serial"), format!("{serial:#x}"));
    put(root, &format!("{mem}/security/state"), "disabled");
    let endpoint = root.path(&format!("{CXL}/endpoint{}", number + 5));
    fs::create_dir_all(&endpoint).unwrap();
    symlink(format!("../mem{number}"), endpoint.join("uport")).unwrap();
    // Numbers of nvdimms follow their own order.
    let nvdimm = format!("{NVDIMM}/nmem{}/cxl", 9 - number);
    put(root, &format!("{nvdimm}/provider"), format!("pmem{number}"));
    if let Some(count) = count {
        put(root, &format!("{nvdimm}/dirty_shutdown"), count);
    }
}

fn add_region(root: &Root, name: &str, base: u64, bytes: u64, devices: &[u32]) {
    let region = format!("{CXL}/{name}");
    put(root, &format!("{region}/resource"), format!("{base:#x}"));
    put(root, &format!("{region}/size"), format!("{bytes:#x}"));
    put(root, &format!("{region}/mode"), "pmem");
    put(root, &format!("{region}/interleave_ways"), devices.len());
    for (way, device) in devices.iter().enumerate() {
        let decoder = format!("decoder{}.0", device + 5);
        put(root, &format!("{region}/target{way}"), decoder);
    }
}

/// Writes an attribute as the kernel shows it, in a line.
fn put(root: &Root, path: &str, value: impl Display) {
    root.create(path, &format!("{value}\n")).unwrap();
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
fn good() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::at(folder.path());
    put(&root, RELEASE, "6.17.2-amd64");
    add_device(&root, 0, 0x1122, Some(3));
    add_region(&root, "region0", BASE, 4 * GIB, &[0]);
    (folder, root)
}

fn reasons(root: &Root, status: &Status) -> String {
    match check(root, status, false) {
        Err(SleepError::Volatile { reasons }) => reasons,
        other => panic!("not refused: {other:?}"),
    }
}

/// As a kernel or a device that cannot count.
fn stop_counting(root: &Root, nvdimm: &str) {
    fs::remove_file(root.path(&format!("{NVDIMM}/{nvdimm}/cxl/dirty_shutdown"))).unwrap();
}

#[test]
fn an_armed_device_that_counts_is_good() {
    let (_folder, root) = good();
    let verdict = check(&root, &status(0x1122, 3), false).unwrap();
    assert_eq!(verdict.persistence, Persistence::DEVICE);
    assert!(verdict.reasons[0].contains("mem0"), "{verdict:?}");
}

#[test]
fn an_older_kernel_cannot_ask_and_the_reason_is_given() {
    let (_folder, root) = good();
    stop_counting(&root, "nmem9");
    put(&root, RELEASE, "6.12.57+deb13-amd64");
    let refused = reasons(&root, &status(0x1122, 3));
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
    assert_eq!(find(&root, &stated).persistence, Persistence::FIRMWARE);
}

#[test]
fn a_newer_kernel_that_shows_no_count_means_that_the_device_has_none() {
    let (_folder, root) = good();
    stop_counting(&root, "nmem9");
    let stated = Status {
        global_persistent_flush: "armed".into(),
        counts_dirty_shutdowns: true,
        ..status(0x1122, 3)
    };
    let refused = reasons(&root, &stated);
    assert!(refused.contains("mem0 cannot arm"), "{refused}");
}

#[test]
fn every_interleaved_device_must_be_good() {
    let (_folder, root) = good();
    add_device(&root, 1, 0x3344, Some(4));
    add_region(&root, "region0", BASE, 4 * GIB, &[1, 0]);
    let firmware = status(combined_serial(&[0x3344, 0x1122]), 7);
    assert_eq!(find(&root, &firmware).persistence, Persistence::DEVICE);
    // In another order they hold other data.
    let swapped = status(combined_serial(&[0x1122, 0x3344]), 7);
    assert!(reasons(&root, &swapped).contains("a swapped device"));

    stop_counting(&root, "nmem8");
    let refused = reasons(&root, &firmware);
    assert!(
        refused.contains("mem1") && !refused.contains("mem0"),
        "{refused}"
    );
}

#[test]
fn a_window_of_two_regions_needs_both_and_no_hole() {
    let (_folder, root) = good();
    add_device(&root, 1, 0x3344, Some(0));
    add_region(&root, "region0", BASE, 2 * GIB, &[0]);
    let firmware = status(combined_serial(&[0x1122, 0x3344]), 3);
    let refused = reasons(&root, &firmware);
    assert!(
        refused.contains("2147483648 bytes of firmware's window"),
        "{refused}"
    );
    add_region(&root, "region1", BASE + 2 * GIB, 2 * GIB, &[1]);
    assert_eq!(find(&root, &firmware).persistence, Persistence::DEVICE);
}

#[test]
fn a_region_elsewhere_does_not_vouch_for_the_window() {
    let (_folder, root) = good();
    add_region(&root, "region0", BASE + 4 * GIB, GIB, &[0]);
    let refused = reasons(&root, &status(0x1122, 3));
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
        let (_folder, root) = good();
        put(&root, path, text);
        let refused = reasons(&root, &status(0x1122, 3));
        assert!(refused.contains(expected), "{path}: {refused}");
        let accepted = check(&root, &status(0x1122, 3), true).unwrap();
        assert_eq!(accepted.persistence, Persistence::ACCEPTED, "{path}");
    }
}

#[test]
fn firmware_that_knows_another_device_or_count_would_not_notice() {
    let (_folder, root) = good();
    assert!(reasons(&root, &status(0x9999, 3)).contains("firmware knows the device as 0x9999"));
    assert!(reasons(&root, &status(0x1122, 2)).contains("firmware counts 2"));
}

#[test]
fn nonsense_in_sysfs_is_no_answer() {
    let (_folder, root) = good();
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
        add_region(&root, "region0", BASE, 4 * GIB, &[0]);
        put(&root, path, text);
        assert!(check(&root, &status(0x1122, 3), false).is_err(), "{path}");
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
