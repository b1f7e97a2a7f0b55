//! The simulator reproduces the seed's Table 2; docs/explanation/bandwidth.md says what else it does not.

use dormouse_bandwidth::simulate::{Outcome, Policy, Setting, seed, simulate};

const RUNS: u64 = 5;

fn outcomes(policy: Policy, change: fn(&mut Setting)) -> Vec<Outcome> {
    (1..=RUNS)
        .map(|number| {
            let mut setting = seed::setting(policy, 5, 39, number).unwrap();
            change(&mut setting);
            simulate(&setting)
        })
        .collect()
}

fn mean(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}

#[test]
fn means_and_errors_of_the_seeds_table_come_out_within_15_percent() {
    for (policy, [expected, _, expected_rmse]) in seed::TABLE {
        let outcomes = outcomes(policy, |_| ());
        let found = mean(&outcomes, |run| run.bandwidth_gib_s.mean);
        let rmse = mean(&outcomes, |run| run.rmse_gib_s);
        let off = |found: f64, expected: f64| (found / expected - 1.0).abs();
        let said = format!("{}: {found:.2} ± {rmse:.2}", policy.name());
        assert!(off(found, expected) <= 0.15, "{said}");
        assert!(off(rmse, expected_rmse) <= 0.15, "{said}");
    }
}

#[test]
fn on_an_idle_machine_quotas_hold_the_threshold_and_nothing_else_would() {
    // Seed, section 6.3.1: about 10 GiB/s without control.
    let idle = |policy| {
        let outcomes = outcomes(policy, |setting| setting.tasks.truncate(5));
        mean(&outcomes, |run| run.bandwidth_gib_s.mean)
    };
    assert!((idle(Policy::None) / 10.0 - 1.0).abs() < 0.05);
    assert!((idle(Policy::SimpleCgroups) / 4.0 - 1.0).abs() < 0.15);
}

#[test]
fn ours_holds_the_threshold_with_less_error_than_the_seeds_best() {
    for policy in [Policy::Fair, Policy::FairExt] {
        let outcomes = outcomes(policy, |_| ());
        let found = mean(&outcomes, |run| run.bandwidth_gib_s.mean);
        let rmse = mean(&outcomes, |run| run.rmse_gib_s);
        assert!((found / 4.0 - 1.0).abs() < 0.01, "{found}");
        assert!(rmse < 0.28 / 2.0, "{rmse}");
    }
}

#[test]
fn the_same_numbers_give_the_same_simulation() {
    let short = |setting: &mut Setting| setting.seconds = 22.0;
    let of = |outcomes: Vec<Outcome>| -> Vec<f64> {
        outcomes
            .iter()
            .flat_map(|run| run.windows_gib_s.clone())
            .collect()
    };
    let first = of(outcomes(Policy::Fair, short));
    assert_eq!(first, of(outcomes(Policy::Fair, short)));
    assert!(first.iter().sum::<f64>() > 0.0);
}

#[test]
fn ours_finds_the_threshold_at_which_an_access_takes_as_long_as_it_may() {
    // Its working point: 480 ns at 6 GiB/s.
    for policy in [Policy::Fair, Policy::FairExt] {
        let outcomes = outcomes(policy, |setting| {
            setting.most_latency_ns = Some(480.0);
            setting.threshold = setting.curve.most();
        });
        let latency = mean(&outcomes, |run| run.access_ns_mean);
        let found = mean(&outcomes, |run| run.bandwidth_gib_s.mean);
        // More accesses are made while it is slow than while it is fast, and the probe is not.
        assert!((0.95..1.2).contains(&(latency / 480.0)), "{latency}");
        assert!((4.5..6.5).contains(&found), "{found}");
    }
}
