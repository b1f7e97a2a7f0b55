//! After waking, the pages in use migrate back first, whichever process owns them, then all others.

use std::fs;

use dormouse_tests::wake::{Waking, service_cycle};
use dormouse_tests::{MIB, assert_resumed, events, test_folder, words};
use serde_json::Value;

/// Three shards of 64 MiB with 8 % hot pages, and an idle neighbour.
const SHARDS: u64 = 3;
const SHARD_MIB: u64 = 64;

/// The first cycle has DAMON, the second does not.
#[test]
#[ignore = "make test-full: it takes a minute; the order of pages is tested on the host"]
fn hot_pages_migrate_back_before_the_rest_and_without_damon_all_come_in_process_order() {
    let before = format!(
        "if test -e /run/second; then umount /sys/kernel/tracing; else touch /run/second; \
         dormouse-guest service start {SHARDS} {SHARD_MIB} 1 64 1; fi"
    );
    let name = "hot-first";
    let said = service_cycle(
        name,
        &before,
        "cat /run/service/*.jsonl; cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
        &words(
            "--cycles 2 --dram 1G --sleep-argument=--policy --sleep-argument=hot-first \
             --sleep-argument=--rate --sleep-argument=48M",
        ),
    );
    assert_eq!(said.code, 0, "{}", said.all());
    let cycles = said.cycles();
    assert_eq!(cycles.len(), 2, "{}", said.all());
    let service_bytes = SHARDS * SHARD_MIB * MIB;
    for cycle in &cycles {
        assert_resumed(cycle, &said);
        assert!(
            cycle.home_bytes >= service_bytes + 80 * MIB * 99 / 100,
            "the rest migrates back, too: {}\n{}",
            cycle.home_bytes,
            said.all()
        );
    }

    let folder = test_folder(name);
    let waking = Waking::read(&folder).unwrap_or_else(|why| panic!("{why}\n{}", said.all()));
    assert_eq!(waking.bad_reads(), 0);
    let events = events(&folder);
    // How many are found at first depends on how busy the service could be in one window.
    let hot_bytes = |event: &Value| event["detail"]["hot_bytes"].as_u64().unwrap_or(0);
    let hot_home = events
        .iter()
        .find(|event| event["name"] == "hot-home" && hot_bytes(event) >= service_bytes * 4 / 100)
        .expect("half of the hot pages came first");
    let (from_dram, cold_home) = waking
        .shares_at(hot_home["t_ns"].as_u64().unwrap())
        .expect("the service runs");
    assert!(
        from_dram >= cold_home + 0.3,
        "{from_dram} of the reads are from DRAM, but {cold_home} of the cold pages are in DRAM"
    );
    let left_on = fs::read_to_string(folder.join("after-1.txt")).unwrap();
    assert_eq!(left_on.lines().last(), Some("0"), "DAMON is switched off");

    let second = event(&events, "cycle 2").expect("two cycles");
    let unknown = event(&events[second..], "hot-pages-unknown").expect("a warning");
    assert_eq!(
        events[second + unknown]["detail"]["reason"],
        "no-tracepoint"
    );
    assert_eq!(event(&events[..second], "hot-pages-unknown"), None);
}

/// Where the first event with this name stands.
fn event(events: &[Value], name: &str) -> Option<usize> {
    events.iter().position(|event| event["name"] == name)
}
