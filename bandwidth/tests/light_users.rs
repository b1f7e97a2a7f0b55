//! Light users beside heavy ones, without samples: what they do not cause must not be taken from
//! them.

mod loads;

use dormouse_bandwidth::simulate::device::AccessProfile;
use dormouse_bandwidth::simulate::task::Spec;
use dormouse_bandwidth::simulate::{Attribution, Outcome, Policy, simulate};
use loads::{mean, memory, reader, setting};

fn users(count: usize, lines: f64, own_ns: f64) -> Vec<Spec> {
    vec![memory(AccessProfile { lines, own_ns }); count]
}

/// `idle`: no other tasks compute.
fn run(policy: Policy, tasks: &[Spec], idle: bool, attribution: Attribution, seed: u64) -> Outcome {
    let mut setting = setting(policy, tasks, seed);
    setting.attribution = attribution;
    if idle {
        setting.tasks.truncate(tasks.len());
    }
    simulate(&setting)
}

/// Two streams, and six users with a sixteenth of their lines in flight.
fn six_light() -> Vec<Spec> {
    [vec![reader(); 2], users(6, 2.0, 97.0)].concat()
}

#[test]
fn light_users_keep_nine_tenths_of_what_they_moved_without_control() {
    // Fair shares of 4 GiB/s are half a GiB/s and more; each light user moves a quarter.
    for (idle, seed) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
        let none = run(Policy::None, &six_light(), idle, Attribution::Learned, seed);
        for policy in [Policy::Fair, Policy::FairExt] {
            let ours = run(policy, &six_light(), idle, Attribution::Learned, seed);
            let kept = mean(&ours.tasks_gib_s[2..]) / mean(&none.tasks_gib_s[2..]);
            let said = format!("{}, idle {idle}, seed {seed}: {kept:.2}", policy.name());
            println!("{said}");
            assert!(kept >= 0.9, "{said}");
            let total = ours.bandwidth_gib_s.mean / ours.threshold_gib_s;
            assert!((total - 1.0).abs() < 0.02, "{said}: {total}");
        }
    }
}

#[test]
fn by_cpu_time_alone_they_would_lose_what_heavy_users_cause() {
    // The reason why bytes per CPU second are learned.
    let none = run(Policy::None, &six_light(), true, Attribution::CpuTime, 1);
    let ours = run(Policy::Fair, &six_light(), true, Attribution::CpuTime, 1);
    let kept = mean(&ours.tasks_gib_s[2..]) / mean(&none.tasks_gib_s[2..]);
    assert!(kept < 0.7, "{kept}");
}

#[test]
fn users_of_six_intensities_get_within_a_fifth_of_what_exact_counts_would_give_them() {
    // Streams, one that writes half of the time, a pointer chaser and what is between them.
    let tasks = [
        users(2, 32.0, 97.0),
        users(1, 24.0, 400.0),
        users(1, 8.0, 97.0),
        users(1, 4.0, 97.0),
        users(2, 1.0, 20.0),
    ]
    .concat();
    for policy in [Policy::Fair, Policy::FairExt] {
        let learned = run(policy, &tasks, true, Attribution::Learned, 1);
        let exact = run(policy, &tasks, true, Attribution::Exact, 1);
        let total: f64 = exact.tasks_gib_s.iter().sum();
        for (learned, exact) in learned.tasks_gib_s.iter().zip(&exact.tasks_gib_s) {
            let off = (learned - exact).abs() / exact.max(total / 20.0);
            println!("{}: {learned:.2} {exact:.2}", policy.name());
            assert!(
                off < 0.2,
                "{}: {learned:.2}, exactly {exact:.2}",
                policy.name()
            );
        }
    }
}
