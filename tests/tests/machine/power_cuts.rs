//! Power fails at every point: the machine resumes with all its data, or boots with a reason.
//!
//! The machine stops at the point and reports it before its power is cut, so no test depends on
//! how fast it is.

use dormouse_lab::Outcome::{self, ColdBoot, Resumed};
use dormouse_tests::{lab_cycle, listed};

/// The points and how each must end. A point that `--fault list` prints and that is not here,
/// or the other way round, fails the first test.
const POINTS: [(&str, Outcome); 21] = [
    ("after-preflight", ColdBoot),
    ("after-node-online", ColdBoot),
    ("after-sync", ColdBoot),
    ("after-sample", ColdBoot),
    ("after-freeze", ColdBoot),
    ("before-migrate", ColdBoot),
    ("migrating", ColdBoot),
    ("after-migrate", ColdBoot),
    ("before-space-check", ColdBoot),
    ("before-enter", ColdBoot),
    ("prepared", ColdBoot),
    ("saving", ColdBoot),
    ("before-commit", ColdBoot),
    ("after-commit", Resumed),
    ("restoring", Resumed),
    ("before-consume", Resumed),
    ("after-consume", ColdBoot),
    ("before-thaw", ColdBoot),
    ("after-thaw", ColdBoot),
    ("migrating-back", ColdBoot),
    ("after-home", ColdBoot),
];

fn cut(point: &str) {
    cut_with(point, &[]);
}

fn cut_with(point: &str, words: &[&str]) {
    let (_, outcome) = POINTS.iter().find(|(name, _)| *name == point).unwrap();
    let said = lab_cycle(
        &format!("cut-{point}"),
        &[&["--fill", "128M", "--fault", point], words].concat(),
    );
    let cycle = said.cycle();
    assert!(cycle.ok, "{}", said.all());
    assert_eq!(cycle.outcome, *outcome, "{}", said.all());
    if cycle.outcome == Resumed {
        assert!(cycle.verified, "{}", said.all());
    } else {
        assert!(
            !cycle.reason.is_empty(),
            "a cold boot has its reason: {}",
            said.all()
        );
    }
}

#[test]
fn every_listed_point_has_a_test() {
    assert_eq!(listed("--fault"), POINTS.map(|(name, _)| name));
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_after_preflight_boots_with_a_reason() {
    cut("after-preflight");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_with_the_node_online_boots_with_a_reason() {
    cut("after-node-online");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_after_the_first_sync_boots_with_a_reason() {
    cut("after-sync");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_with_hot_pages_known_boots_with_a_reason() {
    let policy = ["--policy", "hot-first"];
    let words = policy.map(|word| ["--sleep-argument", word]);
    cut_with("after-sample", &words.concat());
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_with_user_space_frozen_boots_with_a_reason() {
    cut("after-freeze");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_before_migration_boots_with_a_reason() {
    cut("before-migrate");
}

#[test]
fn power_cut_while_migrating_boots_with_a_reason() {
    cut("migrating");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_after_migration_boots_with_a_reason() {
    cut("after-migrate");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_before_the_space_check_boots_with_a_reason() {
    cut("before-space-check");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds when power fails while migrating"]
fn power_cut_before_linux_suspends_boots_with_a_reason() {
    cut("before-enter");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds before the commit"]
fn power_cut_with_a_prepared_image_boots_with_a_reason() {
    cut("prepared");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds before the commit"]
fn power_cut_while_saving_boots_with_a_reason() {
    cut("saving");
}

#[test]
fn power_cut_before_the_commit_boots_with_a_reason() {
    cut("before-commit");
}

#[test]
fn power_cut_after_the_commit_resumes() {
    cut("after-commit");
}

#[test]
fn power_cut_while_restoring_restores_again() {
    cut("restoring");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds while restoring"]
fn power_cut_before_consumption_restores_again() {
    cut("before-consume");
}

#[test]
fn a_consumed_image_is_never_resumed_twice() {
    cut("after-consume");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds after consumption"]
fn power_cut_before_user_space_thaws_boots_with_a_reason() {
    cut("before-thaw");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds after consumption"]
fn power_cut_after_user_space_thawed_boots_with_a_reason() {
    cut("after-thaw");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds after consumption"]
fn power_cut_while_pages_migrate_back_boots_with_a_reason() {
    cut("migrating-back");
}

#[test]
#[ignore = "make test-full: firmware finds what it finds after consumption"]
fn power_cut_after_everything_is_back_in_dram_boots_with_a_reason() {
    cut("after-home");
}
