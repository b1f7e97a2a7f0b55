//! Hard-to-move memory and processes that do not freeze: nothing is lost, or the sleep is refused
//! with the name of the process in the way. Each process compares its own memory (`dormouse lab
//! cycle --hard-to-move list` says what each kind is).

use dormouse_lab::{CycleLine, Outcome};
use dormouse_tests::{MIB, Said, assert_resumed, guest, lab_cycle, listed, words};

/// What stayed in DRAM, as (program or place, kind, bytes).
fn not_moved(cycle: &CycleLine) -> Vec<(String, String, u64)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    cycle
        .not_moved
        .iter()
        .map(|owner| {
            let bytes = owner["bytes"].as_u64().unwrap_or_default();
            (text(&owner["name"]), text(&owner["kind"]), bytes)
        })
        .collect()
}

fn stayed(cycle: &CycleLine, name: &str, kind: &str) -> u64 {
    let owners = not_moved(cycle);
    let found = owners
        .iter()
        .find(|owner| owner.0 == name && owner.1 == kind);
    found.map_or(0, |owner| owner.2)
}

fn resumes(name: &str, line: &str) {
    let said = lab_cycle(name, &words(line));
    assert_resumed(&said.cycle(), &said);
}

fn assert_refused_for_space(cycle: &CycleLine, said: &Said) {
    assert_eq!(cycle.outcome, Outcome::Refused, "{}", said.all());
    assert!(cycle.reason.starts_with("no-space:"), "{}", said.all());
    assert!(cycle.verified, "all data as they were: {}", said.all());
}

#[test]
fn every_kind_of_hard_to_move_memory_sleeps_and_wakes_with_all_its_contents() {
    every_kind("hard-to-move", "1");
}

#[test]
#[ignore = "make test-full: a second cycle, in which what migrated back from the CXL node goes there again"]
fn every_kind_of_hard_to_move_memory_sleeps_twice() {
    every_kind("hard-to-move-twice", "2");
}

fn every_kind(name: &str, cycles: &str) {
    let said = lab_cycle(
        name,
        &["--cycles", cycles, "--fill", "16M", "--hard-to-move", "all"],
    );
    assert_eq!(said.code, 0, "{}", said.all());
    for cycle in said.cycles() {
        assert_resumed(&cycle, &said);
        // Those that prevent a sleep or fill the machine have tests of their own.
        let kinds: Vec<String> = listed("--hard-to-move")
            .into_iter()
            .filter(|kind| !["stuck", "dram-full"].contains(&kind.as_str()))
            .collect();
        assert_eq!(
            cycle.hard_to_move,
            kinds,
            "each was compared: {}",
            said.all()
        );
        for (name, kind) in [
            ("pinned", "pinned"),
            ("secret", "secretmem"),
            ("/dev/shm", "tmpfs"),
            ("memfd", "memfd"),
            ("zram0", "zram"),
        ] {
            let bytes = stayed(&cycle, name, kind);
            assert!(bytes >= 3 * MIB, "{name} {kind} {bytes}: {}", said.all());
        }
        for moves in [
            "hugetlb",
            "thp",
            "mlock",
            "map-locked",
            "cpuset",
            "memcg",
            "uffd",
        ] {
            let left: u64 = not_moved(&cycle)
                .iter()
                .filter(|owner| owner.0 == moves)
                .map(|owner| owner.2)
                .sum();
            assert!(left < MIB, "{moves} moves: {}", said.all());
        }
    }
}

#[test]
fn a_process_in_uninterruptible_sleep_refuses_the_sleep_by_name_and_all_goes_on() {
    let said = lab_cycle(
        "stuck",
        &[
            "--dram",
            "512M",
            "--cxl",
            "1G",
            "--fill",
            "16M",
            "--hard-to-move",
            "stuck,mlock,fork",
            "--sleep-argument=--freeze-timeout=3",
        ],
    );
    let cycle = said.cycle();
    assert_eq!(cycle.outcome, Outcome::Refused, "{}", said.all());
    assert!(
        cycle.reason.starts_with("freeze-timeout:"),
        "{}",
        said.all()
    );
    let named = cycle
        .reason
        .split_once("(stuck ")
        .and_then(|(_, rest)| rest.split_once(" in D state"))
        .is_some_and(|(pid, _)| pid.parse::<u32>().is_ok());
    assert!(named, "name and pid: {}", said.all());
    assert!(cycle.verified, "{}", said.all());
    assert_eq!(cycle.hard_to_move, ["mlock", "fork", "stuck"]);
}

#[test]
#[ignore = "make test-full: a size between those of the quick gate"]
fn a_machine_whose_dram_is_full_sleeps_and_wakes() {
    resumes(
        "dram-full",
        "--dram 512M --cxl 1G --fill 16M --hard-to-move dram-full,mmap",
    );
}

/// 252 MiB for user pages, and hardly more than the kernel's pages besides: huge pages of the pool
/// find room for some of them only, and firmware puts the rest into the last free pages.
#[test]
#[ignore = "make test-full: a size between those of the quick gate"]
fn cxl_memory_that_is_just_enough_takes_everything() {
    resumes(
        "just-enough",
        "--dram 512M --cxl 384M --fill 150M --hard-to-move hugetlb=96M",
    );
}

#[test]
fn cxl_memory_that_is_not_enough_is_refused_with_the_largest_owners() {
    let said = lab_cycle(
        "not-enough",
        &words(
            "--dram 512M --cxl 384M --fill 80M --redis-keys 0 --hard-to-move tmpfs=140M,hugetlb=64M,mlock=48M,pinned=8M",
        ),
    );
    let cycle = said.cycle();
    assert_refused_for_space(&cycle, &said);
    let (_, owners) = cycle.reason.split_once("most of it: ").expect("owners");
    for owner in [
        "/dev/shm 140.0 MiB tmpfs",
        "64.0 MiB hugetlb",
        "48.0 MiB mlocked",
    ] {
        assert!(owners.contains(owner), "{owner}: {}", said.all());
    }
    // Before anything was changed: the node never went online.
    let events =
        std::fs::read_to_string(dormouse_tests::test_folder("not-enough").join("events.jsonl"));
    assert!(
        !events.unwrap().contains("\"node-online\""),
        "{}",
        said.all()
    );
}

/// What an offline block held is gone for Linux: it needs no room.
#[test]
fn memory_blocks_that_are_offline_are_not_saved() {
    let said = guest(
        "offline-block",
        &["--dram", "1G"],
        "grep skipped_offline /sys/power/dormouse/estimate; \
         for block in 6 5 4 3 2; do \
             state=/sys/devices/system/memory/memory$block/state; \
             timeout 20 sh -c \"echo offline > $state\" && break; \
         done; \
         grep skipped_offline /sys/power/dormouse/estimate",
    );
    let skipped: Vec<u64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("skipped_offline ")?.parse().ok())
        .collect();
    assert_eq!(skipped, [0, 128 * MIB], "{said}");
}
