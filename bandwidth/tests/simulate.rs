//! The simulator reproduces Table 2 of Kämmerer 2025; docs/explanation/bandwidth.md lists what it
//! does not reproduce.

use dormouse_bandwidth::simulate::{Outcome, Policy, Setting, kaemmerer, simulate};

const RUNS: u64 = 5;

fn outcomes(policy: Policy, change: fn(&mut Setting)) -> Vec<Outcome> {
    (1..=RUNS)
        .map(|number| {
            let mut setting = kaemmerer::setting(policy, 5, 39, number).unwrap();
            change(&mut setting);
            simulate(&setting)
        })
        .collect()
}

fn mean(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}

#[test]
fn means_and_errors_of_table_2_are_reproduced_within_15_percent() {
    // Round robin and virtual time move more in the simulator than in the thesis.
    let not_reproduced = [Policy::RoundRobin, Policy::VirtualTime];
    let rows = kaemmerer::TABLE.into_iter();
    for (policy, [expected, _, expected_rmse]) in
        rows.filter(|row| !not_reproduced.contains(&row.0))
    {
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
fn shorter_slices_alone_do_not_hold_the_threshold() {
    // Kämmerer 2025, section 6.3: 6.2 and 6.3 GiB/s with a threshold of 4, 4.9 with the queue.
    let [free, round_robin, time, queue] = [
        Policy::None,
        Policy::RoundRobin,
        Policy::VirtualTime,
        Policy::ThrottleQueue,
    ]
    .map(|policy| mean(&outcomes(policy, |_| ()), |run| run.bandwidth_gib_s.mean));
    let said = format!("{free:.2}, {round_robin:.2}, {time:.2}, {queue:.2}");
    for found in [round_robin, time] {
        assert!(
            found < free && found > queue && found > 1.25 * 4.0,
            "{said}"
        );
    }
    // On an idle machine they change nothing.
    let idle = |policy| {
        let outcomes = outcomes(policy, |setting| setting.tasks.truncate(5));
        mean(&outcomes, |run| run.bandwidth_gib_s.mean)
    };
    let [round_robin, time] = [Policy::RoundRobin, Policy::VirtualTime].map(idle);
    assert!(
        round_robin > 9.5 && time > 9.5,
        "{round_robin:.2}, {time:.2}"
    );
}

#[test]
fn on_an_idle_machine_quotas_hold_the_threshold() {
    // Kämmerer 2025, section 6.3.1: about 10 GiB/s without control.
    let idle = |policy| {
        let outcomes = outcomes(policy, |setting| setting.tasks.truncate(5));
        mean(&outcomes, |run| run.bandwidth_gib_s.mean)
    };
    assert!((idle(Policy::None) / 10.0 - 1.0).abs() < 0.05);
    assert!((idle(Policy::ByTotal) / 4.0 - 1.0).abs() < 0.15);
}

#[test]
fn feedback_holds_the_threshold_with_half_the_error_of_the_thesis_methods() {
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
fn feedback_finds_the_threshold_with_the_configured_latency() {
    // The working point of the curve: 480 ns at 6 GiB/s.
    for policy in [Policy::Fair, Policy::FairExt] {
        let outcomes = outcomes(policy, |setting| {
            setting.max_latency_ns = Some(480.0);
            setting.threshold = setting.curve.max_bandwidth();
        });
        let latency = mean(&outcomes, |run| run.access_ns_mean);
        let found = mean(&outcomes, |run| run.bandwidth_gib_s.mean);
        // Accesses are more frequent at high latency, the probe's samples are not.
        assert!((0.95..1.2).contains(&(latency / 480.0)), "{latency}");
        assert!((4.5..6.5).contains(&found), "{found}");
    }
}
