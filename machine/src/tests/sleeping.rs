//! Sleeps that succeed, on a made-up machine.

use dormouse_report::Kind;

use super::machine::{FakeMachine, Habit, MIB, REDIS, names};
use crate::options::{MigrateBackMode, SleepOptions};
use crate::owner::{MemoryKind, Owner};
use crate::sleep;

#[test]
fn a_sleep_goes_down_comes_up_and_leaves_everything_as_before() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let (result, events) = fake.sleep(MigrateBackMode::Wait);
    let report = result.unwrap();
    assert_eq!(report.outcome, "resumed");
    assert_eq!(
        (report.saved_bytes, report.restored_bytes),
        (50 * MIB, 50 * MIB)
    );
    let home = report.home.unwrap();
    assert!(home.offline && home.left_bytes == 0 && !home.stopped);
    fake.assert_as_before();
    assert_eq!(
        names(&events, Kind::Begin),
        [
            "preflight",
            "node-online",
            "sync",
            "freeze",
            "drop-caches",
            "migrate",
            "drop-caches",
            "space-check",
            "thaw",
            "home",
            "node-offline"
        ]
    );
    let marks: Vec<&str> = names(&events, Kind::Mark)
        .into_iter()
        // Progress, reported ten times a second while it takes so long.
        .filter(|name| !["migrate", "home"].contains(name))
        .collect();
    assert_eq!(marks, ["enter", "resumed"]);
}

#[test]
fn all_pages_are_on_the_cxl_node_when_the_machine_enters_s3() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let (result, _) = fake.sleep(MigrateBackMode::Never);
    assert!(result.unwrap().home.is_none());
    assert_eq!((fake.pages.count_on(0), fake.pages.count_on(1)), (0, 6010));
    let writes = fake.writes.lock().unwrap();
    let at = |wanted: &str| writes.iter().position(|write| write == wanted).unwrap();
    assert!(at(&format!("{REDIS}/cgroup.freeze=1")) < at("proc/sys/vm/drop_caches=3"));
    assert!(at("proc/sys/vm/drop_caches=3") < at("sys/power/state=mem"));
    assert!(at("sys/power/state=mem") < at(&format!("{REDIS}/cgroup.freeze=0")));
}

#[test]
fn what_cannot_move_is_reported_with_its_owner_and_the_machine_sleeps() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.pages.pin(200, 7);
    let maps = "7f0000000000 default anon=5000 N0=1 N1=4999 kernelpagesize_kB=4\n";
    fake.put("proc/200/numa_maps", maps);
    let report = fake.sleep(MigrateBackMode::Never).0.unwrap();
    let owner = Owner {
        pid: Some(200),
        name: "redis".to_owned(),
        kind: MemoryKind::Pinned,
        bytes: 4096,
    };
    assert_eq!((report.pages_failed, report.not_moved), (1, vec![owner]));
}

#[test]
fn memory_goes_online_as_movable_with_its_own_struct_pages() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    assert_eq!(
        fake.read("sys/bus/dax/devices/dax0.0/memmap_on_memory"),
        "1"
    );
    assert_eq!(
        fake.read("sys/devices/system/memory/memory33/state"),
        "online_movable"
    );
    assert_eq!(
        fake.read("sys/devices/system/memory/auto_online_blocks"),
        "online"
    );
}

#[test]
fn a_dry_run_tells_the_plan_and_writes_nothing() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let options = SleepOptions {
        dry_run: true,
        ..fake.options(MigrateBackMode::Wait)
    };
    let report = sleep::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    let plan = report.plan.unwrap();
    assert_eq!(plan.user_bytes, 100 * MIB);
    assert_eq!(plan.freeze, ["/redis"]);
    assert_eq!(
        plan.not_frozen
            .iter()
            .map(|one| one.pid)
            .collect::<Vec<_>>(),
        [300, 1]
    );
    assert_eq!(plan.home_order, [300, 200, 1]);
    fake.assert_nothing_changed();
}
