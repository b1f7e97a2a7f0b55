//! A device that carries less than when its curve was measured.

mod loads;

use dormouse_bandwidth::simulate::device::AccessProfile;
use dormouse_bandwidth::simulate::task::Spec;
use dormouse_bandwidth::simulate::{Outcome, Policy, Setting, simulate};
use loads::{memory, pulsing, reader, setting};

const FROM_S: f64 = 10.0;
const POLICIES: [Policy; 2] = [Policy::Fair, Policy::FairExt];

/// These tasks; from ten seconds on the device carries this part of its bandwidth.
fn load(policy: Policy, tasks: &[Spec], factor: Option<f64>, watched: bool) -> Setting {
    let mut setting = setting(policy, tasks, 1);
    setting.derated = factor.map(|factor| (FROM_S, factor));
    setting.compares_curve = watched;
    setting.tasks.truncate(tasks.len());
    setting
}

/// Runs it with and without comparing the latency with the curve.
fn both(policy: Policy, readers: usize, factor: f64) -> (Outcome, Outcome, String) {
    let run = |watched| {
        let load = load(policy, &vec![reader(); readers], Some(factor), watched);
        simulate(&load)
    };
    let (before, after) = (run(false), run(true));
    let said = format!(
        "{}, {readers} readers, {factor} of the curve: derated after {:.2?} s, {:.0} ns and {:.2} \
         GiB/s; unwatched {:.0} ns and {:.2}",
        policy.name(),
        after.derated_s.map(|at| at - FROM_S),
        after.access_ns_mean,
        after.bandwidth_gib_s.mean,
        before.access_ns_mean,
        before.bandwidth_gib_s.mean,
    );
    println!("{said}");
    (before, after, said)
}

#[test]
fn a_derated_device_is_noticed_within_three_seconds_and_followed() {
    for policy in POLICIES {
        for readers in [5, 10] {
            let (before, after, said) = both(policy, readers, 0.7);
            let noticed_s = after.derated_s.map(|at| at - FROM_S);
            assert!(
                noticed_s.is_some_and(|after| (0.0..3.0).contains(&after)),
                "{said}"
            );
            let followed = after.bandwidth_gib_s.mean / before.bandwidth_gib_s.mean;
            assert!((0.6..0.8).contains(&followed), "{said}");
        }
    }
}

#[test]
fn smaller_and_larger_losses_are_followed_as_far_as_they_go() {
    for policy in POLICIES {
        for factor in [0.8, 0.5] {
            let (before, after, said) = both(policy, 10, factor);
            assert!(after.derated_s.is_some(), "{said}");
            let followed = after.bandwidth_gib_s.mean / after.threshold_gib_s;
            assert!((followed / factor - 1.0).abs() < 0.15, "{said}");
            assert!(after.access_ns_mean < before.access_ns_mean, "{said}");
        }
    }
}

#[test]
fn a_device_that_answers_as_measured_is_not_called_derated() {
    let chaser = memory(AccessProfile {
        lines: 1.0,
        own_ns: 20.0,
    });
    let loads: [&[Spec]; 5] = [
        &[reader(); 5],
        &[reader(); 10],
        &[[reader(); 2].as_slice(), &[chaser; 6]].concat(),
        &[
            [reader(); 4].as_slice(),
            &[pulsing(reader(), 600.0, 0.5); 2],
        ]
        .concat(),
        &[pulsing(reader(), 3000.0, 0.5); 6],
    ];
    for policy in POLICIES {
        for tasks in loads {
            let run = simulate(&load(policy, tasks, None, true));
            let said = format!("{}, {} tasks", policy.name(), tasks.len());
            assert_eq!(run.derated_s, None, "{said}");
            let unwatched = simulate(&load(policy, tasks, None, false));
            let mean = run.bandwidth_gib_s.mean / unwatched.bandwidth_gib_s.mean;
            assert!((mean - 1.0).abs() < 0.02, "{said}: {mean}");
        }
    }
}
