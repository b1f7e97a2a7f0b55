//! Pages that migrate back after a sleep, on a made-up machine.

use dormouse_report::Kind;

use super::fake::FakeSampler;
use super::machine::{FakeMachine, Habit, REDIS, add_process, names};
use crate::hotness::{HotRange, saved};
use crate::options::{MigrateBackMode, MigrateBackOptions, Policy, SleepOptions};
use crate::system::pages::PAGE_BYTES;
use crate::system::state;
use crate::{migrate_back, sleep};

#[test]
fn home_after_waking_follows_the_order_of_before_the_sleep() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    fake.pages.forget_moves();
    // Freezing and waking make everybody look recent.
    add_process(&fake.root, 1, "init", 10, "/", 70_000);
    let options = MigrateBackOptions {
        jobs: 1,
        ..MigrateBackOptions::default()
    };
    let report = migrate_back::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    assert!(report.offline);
    assert_eq!(fake.pages.order_of_moves(), [300, 200, 1]);
    assert!(state::load(&fake.root).is_none());
}

#[test]
fn home_with_a_rate_limit_moves_everything_too() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    let options = MigrateBackOptions {
        rate_bytes_per_s: Some(1 << 30),
        ..MigrateBackOptions::default()
    };
    migrate_back::run(&fake.machine(), &options, &mut |_| {}).unwrap();
    assert_eq!(fake.pages.count_on(1), 0);
}

#[test]
fn home_without_a_sleep_has_nothing_to_do() {
    let fake = FakeMachine::new(Habit::Sleeps);
    let report =
        migrate_back::run(&fake.machine(), &MigrateBackOptions::default(), &mut |_| {}).unwrap();
    assert!(report.offline);
    assert_eq!(report.home_bytes, 0);
}

#[test]
fn home_lets_user_space_run_again_after_a_sleep_that_was_killed() {
    let fake = FakeMachine::new(Habit::Sleeps);
    fake.root
        .write(&format!("{REDIS}/cgroup.freeze"), "1")
        .unwrap();
    let killed = state::State {
        boot_id: "this-boot".into(),
        node: 1,
        frozen: vec!["/redis".into()],
        ..state::State::default()
    };
    state::save(&fake.root, &killed);
    migrate_back::run(&fake.machine(), &MigrateBackOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(fake.read(&format!("{REDIS}/cgroup.freeze")), "0");
}

/// Address of a page of a made-up process.
fn touched(page: u64) -> HotRange {
    let start = 0x10_0000 + page * PAGE_BYTES;
    HotRange {
        start,
        end: start + PAGE_BYTES,
        hotness: 1,
    }
}

fn with_maps(fake: &FakeMachine) {
    for pid in [1, 200, 300] {
        let maps = "100000-110000 rw-p 0 00:00 0\n";
        fake.put(&format!("proc/{pid}/maps"), maps);
    }
}

#[test]
fn pages_that_were_hot_before_the_sleep_migrate_back_first() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::with_windows(&[(200, touched(4711))]);
    fake.sleep(MigrateBackMode::Never).0.unwrap();
    assert!(
        !fake.sampler.is_watching(),
        "no watch is left while it sleeps"
    );
    fake.sampler = FakeSampler::default();
    fake.pages.forget_moves();
    let options = MigrateBackOptions {
        jobs: 1,
        rate_bytes_per_s: Some(1 << 30),
        policy: Policy::HotFirst,
        ..MigrateBackOptions::default()
    };
    let mut events = Vec::new();
    let report = migrate_back::run(&fake.machine(), &options, &mut |event| {
        events.push(event.clone())
    });
    let report = report.unwrap();
    assert_eq!(
        fake.pages.order_of_moves(),
        [200, 300, 200, 1],
        "then process order"
    );
    assert_eq!(report.hot_bytes, PAGE_BYTES);
    assert_eq!(report.policy, "hot-first");
    assert_eq!(fake.pages.count_on(1), 0, "the rest comes, too");
    assert!(report.offline && report.warning.is_none());
    assert!(saved::take(&fake.root).is_empty());
}

#[test]
fn without_damon_pages_migrate_back_in_process_order_with_a_warning() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::unavailable();
    let (result, events) = fake.sleep(MigrateBackMode::Wait);
    let home = result.unwrap().home.unwrap();
    assert_eq!((home.policy.as_str(), home.hot_bytes), ("process-order", 0));
    assert!(home.warning.unwrap().contains("DAMON"));
    assert_eq!(
        names(&events, Kind::Mark)
            .iter()
            .filter(|name| **name == "hot-pages-unknown")
            .count(),
        2,
        "on the way down and while they migrate back"
    );
    fake.assert_as_before();
}

#[test]
fn process_order_watches_no_process() {
    let mut fake = FakeMachine::new(Habit::Sleeps);
    with_maps(&fake);
    fake.sampler = FakeSampler::unavailable();
    let options = SleepOptions {
        migrate_back_options: MigrateBackOptions {
            policy: Policy::ProcessOrder,
            ..MigrateBackOptions::default()
        },
        ..fake.options(MigrateBackMode::Wait)
    };
    let mut events = Vec::new();
    let report = sleep::run(&fake.machine(), &options, &mut |event| {
        events.push(event.clone())
    });
    let home = report.unwrap().home.unwrap();
    assert_eq!(
        (home.policy.as_str(), home.warning),
        ("process-order", None)
    );
    assert!(!names(&events, Kind::Mark).contains(&"hot-pages-unknown"));
}
