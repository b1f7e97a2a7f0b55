//! Power fails at every point: the machine resumes with all its data, or boots with a reason.

use dormouse_tests::{lab_cycle, listed};

/// The points and how each must end. A point that `--fault list` prints and that is not here,
/// or the other way round, fails the first test.
const POINTS: [(&str, &str); 8] = [
    ("migrating", "cold-boot"),
    ("prepared", "cold-boot"),
    ("saving", "cold-boot"),
    ("before-commit", "cold-boot"),
    ("after-commit", "resumed"),
    ("restoring", "resumed"),
    ("before-consume", "resumed"),
    ("after-consume", "cold-boot"),
];

fn cut(point: &str) {
    let (_, outcome) = POINTS.iter().find(|(name, _)| *name == point).unwrap();
    let said = lab_cycle(
        &format!("cut-{point}"),
        &["--fill", "128M", "--fault", point],
    );
    let cycle = said.cycle();
    assert!(cycle.ok, "{}", said.all());
    assert_eq!(cycle.outcome, *outcome, "{}", said.all());
    if cycle.outcome == "resumed" {
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
fn power_cut_while_migrating_boots_with_a_reason() {
    cut("migrating");
}

#[test]
fn power_cut_with_a_prepared_image_boots_with_a_reason() {
    cut("prepared");
}

#[test]
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
fn power_cut_before_consumption_restores_again() {
    cut("before-consume");
}

#[test]
fn a_consumed_image_is_never_resumed_twice() {
    cut("after-consume");
}
