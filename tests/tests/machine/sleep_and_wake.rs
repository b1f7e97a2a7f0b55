//! The main promise: a machine sleeps in CXL memory, loses all power, and continues where it
//! stopped.

use std::path::Path;

use dormouse_tests::{MIB, assert_resumed, events, guest, lab_cycle, test_folder};

#[test]
fn three_cycles_resume_with_every_page_compared_and_the_service_answering() {
    let said = lab_cycle(
        "three-cycles",
        &[
            "--cycles", "3", "--dram", "1G", "--cxl", "2G", "--fill", "512M",
        ],
    );
    assert_eq!(said.code, 0, "{}", said.all());
    let cycles = said.cycles();
    assert_eq!(cycles.len(), 3, "{}", said.all());
    for (index, cycle) in cycles.iter().enumerate() {
        assert_resumed(cycle, &said);
        assert_eq!(cycle.cycle, index as u64 + 1);
        assert_eq!(cycle.mode, "cxl");
        assert_eq!(cycle.user_bytes, 512 * MIB);
        assert_eq!(cycle.dram_bytes, 1024 * MIB);
        assert_eq!(cycle.cxl_bytes, 2048 * MIB);
        assert!(
            cycle.home_bytes as f64 >= 0.99 * cycle.user_bytes as f64,
            "99 % of user pages must be home again: {} of {}\n{}",
            cycle.home_bytes,
            cycle.user_bytes,
            said.all()
        );
        // Real work takes time: a zero would be a phase that was never measured.
        for seconds in [
            cycle.suspend_s.total,
            cycle.suspend_s.migrate,
            cycle.suspend_s.devices,
            cycle.suspend_s.firmware,
            cycle.resume_s.total,
            cycle.resume_s.firmware,
            cycle.resume_s.restore,
            cycle.resume_s.kernel,
            cycle.home_s,
        ] {
            assert!(
                seconds.is_some_and(|seconds| seconds > 0.0),
                "{}",
                said.all()
            );
        }
    }
    assert_timeline_is_complete(&test_folder("three-cycles"), cycles.len());
}

/// Each part of a sleep and of a wake begins and ends once in each cycle, on every level.
fn assert_timeline_is_complete(folder: &Path, cycles: usize) {
    let events = events(folder);
    for (phase, source, name) in [
        ("suspend", "guest", "migrate"),
        ("suspend", "kernel", "freeze_processes"),
        ("suspend", "kernel", "dpm_suspend"),
        ("suspend", "kernel", "dpm_suspend_noirq"),
        ("suspend", "kernel", "prepare"),
        ("suspend", "firmware", "save-copy"),
        ("resume", "firmware", "restore-copy"),
        ("resume", "kernel", "dpm_resume_noirq"),
        ("resume", "kernel", "dpm_resume"),
        ("resume", "kernel", "thaw_processes"),
        ("home", "guest", "home"),
    ] {
        for kind in ["begin", "end"] {
            let count = events
                .iter()
                .filter(|event| {
                    let from = event["detail"]["source"].as_str();
                    event["phase"] == phase
                        && event["name"] == name
                        && event["kind"] == kind
                        && from.unwrap_or_else(|| event["clock"].as_str().unwrap()) == source
                })
                .count();
            assert_eq!(count, cycles, "{phase} {name} {kind}: {events:#?}");
        }
    }
}

#[test]
#[ignore = "make test-full: two machines; make bench-machine measures it at more sizes"]
fn what_firmware_saves_stays_small_whatever_users_fill() {
    let saved: Vec<u64> = ["128M", "640M"]
        .iter()
        .map(|fill| {
            let name = format!("saved-{fill}");
            let said = lab_cycle(&name, &["--dram", "1G", "--cxl", "2G", "--fill", fill]);
            let cycle = said.cycle();
            assert_resumed(&cycle, &said);
            assert_eq!(cycle.saved_bytes, cycle.restored_bytes, "{}", said.all());
            assert!(cycle.saved_bytes < 160 * MIB, "{}", said.all());
            cycle.saved_bytes
        })
        .collect();
    assert!(
        saved[1] as f64 <= 1.1 * saved[0] as f64,
        "saved bytes grow with what users fill: {saved:?}"
    );
}

/// Sizes that do not fit in 32 bits, and DRAM on both sides of the hole below 4 GiB.
#[test]
fn a_machine_with_more_than_4_gib_sleeps_and_wakes() {
    let said = lab_cycle("large", &["--dram", "3G", "--cxl", "6G", "--fill", "64M"]);
    let cycle = said.cycle();
    assert_resumed(&cycle, &said);
    assert_eq!(cycle.cxl_bytes, 6144 * MIB);
}

#[test]
fn awake_before_the_first_sleep_the_cxl_node_holds_no_page() {
    let stdout = guest(
        "awake",
        &[],
        // A node without memory has no MemUsed line at all, or one that says 0.
        "grep -h MemUsed /sys/devices/system/node/node1/meminfo; \
         cat /sys/power/dormouse/state; ls /sys/bus/dax/devices",
    );
    let used_kib: u64 = stdout
        .lines()
        .find(|line| line.contains("MemUsed"))
        .and_then(|line| line.split_whitespace().rev().nth(1))
        .map_or(0, |word| word.parse().unwrap());
    assert_eq!(used_kib, 0, "{stdout}");
    assert!(
        stdout.contains("empty"),
        "the firmware's header is there: {stdout}"
    );
    assert!(
        stdout.contains("dax0.0"),
        "the CXL memory is special-purpose memory: {stdout}"
    );
}
