//! Properties of the controller, on random users of a device that slows down with its load.

use dormouse_bandwidth::allocate::{Controller, Decision, Load, MIN_CPU, Settings};
use proptest::prelude::*;

/// A user: its demand without limits, and its bytes per CPU second.
#[derive(Clone, Copy, Debug)]
struct User {
    /// In bytes a second.
    wanted: f64,
    /// Bytes per CPU second on an idle device.
    rate: f64,
    weight: f64,
    protected: bool,
}

const INTERVAL_MS: f64 = 50.0;
const THRESHOLD: f64 = 4e9;

/// A device whose latency grows with its load.
struct Plant {
    users: Vec<User>,
    loads: Vec<Load>,
    controller: Controller,
}

impl Plant {
    fn new(users: &[User]) -> Self {
        let load = |(id, user): (u64, &User)| Load {
            weight: user.weight,
            protected: user.protected,
            ..Load::new(id, 0.0, 0.0)
        };
        Self {
            users: users.to_vec(),
            loads: (0..).zip(users).map(load).collect(),
            controller: Controller::new(Settings::new(THRESHOLD)),
        }
    }

    /// The traffic of all users under the limits in force: the fixed point of load and latency.
    fn flow(&mut self) {
        let mut total = 0.0;
        for _ in 0..60 {
            let slow = 1.0 + (total / (2.0 * THRESHOLD)).powi(2);
            let mut sum = 0.0;
            for (user, load) in self.users.iter().zip(&mut self.loads) {
                let rate = user.rate / slow;
                let wanted = user.wanted / rate;
                let limit = load.limit.unwrap_or(f64::INFINITY);
                load.cpu = wanted.min(limit);
                load.held_back = limit < wanted;
                load.bandwidth = load.cpu * rate;
                sum += load.bandwidth;
            }
            total = (total + sum) / 2.0;
        }
    }

    fn step(&mut self) -> Decision {
        self.flow();
        let decision = self.controller.step(INTERVAL_MS, 0.0, &self.loads);
        for (load, limit) in self.loads.iter_mut().zip(&decision.limits) {
            load.limit = limit.cpu;
        }
        decision
    }

    fn settle(&mut self) -> f64 {
        for _ in 0..200 {
            self.step();
        }
        self.flow();
        self.total()
    }

    fn total(&self) -> f64 {
        self.loads.iter().map(|load| load.bandwidth).sum()
    }
}

fn user() -> impl Strategy<Value = User> {
    (0.01..4.0, 1.0..8.0, 0.2..5.0).prop_map(|(wanted, rate, weight)| User {
        wanted: wanted * 1e9,
        rate: rate * 1e9,
        weight,
        protected: false,
    })
}

fn users() -> impl Strategy<Value = Vec<User>> {
    prop::collection::vec(user(), 1..25)
}

/// The fair shares by another algorithm: bisection of the level.
fn fair(users: &[User], capacity: f64) -> Vec<f64> {
    let shares = |level: f64| -> Vec<f64> {
        let share = |user: &User| user.wanted.min(user.weight * level);
        users.iter().map(share).collect()
    };
    let (mut low, mut high) = (0.0, 1e12);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        if shares(level).iter().sum::<f64>() > capacity {
            high = level;
        } else {
            low = level;
        }
    }
    shares(high)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_total_comes_to_the_threshold_and_not_above(users in users()) {
        let wanted: f64 = users.iter().map(|user| user.wanted).sum();
        let total = Plant::new(&users).settle();
        prop_assert!(total <= THRESHOLD * 1.01, "{}", total / 1e9);
        // Little bandwidth is wasted: a user whose demand is just above its share may be unlimited
        // and limited again.
        prop_assert!(total >= wanted.min(THRESHOLD) * 0.97, "{}", total / 1e9);
    }

    #[test]
    fn every_user_gets_its_fair_share_and_none_below_it_is_slowed(users in users()) {
        let mut plant = Plant::new(&users);
        plant.settle();
        for ((user, load), fair) in users.iter().zip(&plant.loads).zip(fair(&users, THRESHOLD)) {
            prop_assert!(load.bandwidth >= fair * 0.95, "{user:?} {load:?} {fair}");
            if user.wanted < fair * 0.95 {
                prop_assert!(!load.held_back, "{user:?} {load:?} {fair}");
            }
        }
    }

    #[test]
    fn weights_are_respected(users in users()) {
        let hungry: Vec<User> = users.iter().map(|user| User { wanted: 8e9, ..*user }).collect();
        let mut plant = Plant::new(&hungry);
        plant.settle();
        // Users at the minimum limit have more than their share.
        let share = |(user, load): (&User, &Load)| load.bandwidth / user.weight;
        let limited = hungry.iter().zip(&plant.loads);
        let limited = limited.filter(|(_, load)| load.limit.is_some_and(|cpu| cpu > MIN_CPU));
        let shares: Vec<f64> = limited.map(share).collect();
        let (low, high) = shares
            .iter()
            .fold((f64::INFINITY, 0.0f64), |(low, high), &share| (low.min(share), high.max(share)));
        prop_assert!(shares.is_empty() || high / low < 1.02, "{low} {high}");
    }

    #[test]
    fn protected_users_are_never_slowed_and_others_never_starve(
        users in users(), protected in prop::collection::vec(user(), 1..4),
    ) {
        let mut all = users.clone();
        all.extend(protected.iter().map(|user| User { protected: true, ..*user }));
        let mut plant = Plant::new(&all);
        plant.settle();
        let weights: f64 = users.iter().map(|user| user.weight).sum();
        for (user, load) in all.iter().zip(&plant.loads) {
            if user.protected {
                prop_assert_eq!(load.limit, None);
            } else {
                let least = user.wanted.min(0.06 * THRESHOLD * user.weight / weights);
                prop_assert!(load.bandwidth >= least * 0.999, "{user:?} {load:?}");
            }
        }
    }

    #[test]
    fn when_load_falls_time_is_given_back(users in users()) {
        let mut plant = Plant::new(&users);
        plant.settle();
        for user in &mut plant.users {
            user.wanted = user.wanted.min(0.5 * THRESHOLD / users.len() as f64);
        }
        for _ in 0..10 {
            plant.step();
        }
        prop_assert!(plant.loads.iter().all(|load| load.limit.is_none()));
    }

    #[test]
    fn one_more_user_never_gives_the_others_more(users in users(), more in user()) {
        let mut before = Plant::new(&users);
        before.settle();
        let mut all = users.clone();
        all.push(more);
        let mut after = Plant::new(&all);
        after.settle();
        for (now, then) in after.loads.iter().zip(&before.loads) {
            // Equal within the accuracy of both.
            prop_assert!(now.bandwidth <= then.bandwidth * 1.05, "{now:?} {then:?}");
        }
    }
}

/// Other users have large demands from time to time, as interactive programs do. What they leave
/// unused must be used, and what they take in addition must be accounted for.
#[test]
fn on_average_the_threshold_is_used_though_others_come_and_go() {
    let user = |wanted| User {
        wanted,
        rate: 4e9,
        weight: 1.0,
        protected: false,
    };
    for (burst, every) in [
        (2.5e9, 3),
        (1e9, 2),
        (2e9, 5),
        (3e9, 4),
        (1.5e9, 8),
        (7e9, 6),
    ] {
        let mut plant = Plant::new(&[user(8e9), user(0.2e9), user(0.2e9)]);
        let (mut sum, mut steps) = (0.0, 0);
        for step in 0..1000usize {
            for at in [1, 2] {
                let bursts = (step + at).is_multiple_of(every);
                plant.users[at].wanted = if bursts { burst } else { 0.2e9 };
            }
            plant.step();
            if step >= 100 {
                sum += plant.total();
                steps += 1;
            }
        }
        let mean = sum / f64::from(steps);
        assert!(
            (mean / THRESHOLD - 1.0).abs() < 0.002,
            "{burst} {every}: {}",
            mean / 1e9
        );
    }
}

/// A user may use in a burst what it left of its share before.
#[test]
fn a_user_below_its_share_on_average_is_not_held_back_in_a_burst() {
    let user = |wanted: f64| User {
        wanted: wanted * THRESHOLD,
        rate: 2.0 * THRESHOLD,
        weight: 1.0,
        protected: false,
    };
    // Size in fair shares, length and period in intervals.
    for (burst, intervals, every) in [(2.0, 1, 4), (3.0, 1, 5), (1.5, 4, 10), (4.0, 1, 8)] {
        let mut plant = Plant::new(&[user(4.0), user(0.05), user(0.05)]);
        plant.settle();
        for step in 0..400usize {
            let bursts = step % every >= every - intervals;
            plant.users[2].wanted = if bursts { burst / 3.0 } else { 0.05 } * THRESHOLD;
            plant.step();
            assert!(plant.loads[0].limit.is_some(), "{burst} {every}: {step}");
            // Until then it may have used more than its share.
            if step >= 4 * every {
                assert_eq!(plant.loads[2].limit, None, "{burst} {every}: {step}");
            }
        }
    }
}

#[test]
fn saved_credit_lasts_for_one_burst_only() {
    let user = |wanted: f64| User {
        wanted: wanted * THRESHOLD,
        rate: 2.0 * THRESHOLD,
        weight: 1.0,
        protected: false,
    };
    let mut plant = Plant::new(&[user(4.0), user(0.05), user(0.05)]);
    plant.settle();
    // However long it left its share unused: 200 ms of its share last a fifth of a second at twice
    // the share.
    plant.users[2].wanted = 4.0 / 3.0 * THRESHOLD;
    let mut free = 0;
    while plant.loads[2].limit.is_none() {
        plant.step();
        free += 1;
        assert!(free < 10);
    }
    assert!(free > 1, "{free}");
    for _ in 0..20 {
        plant.step();
    }
    assert!(plant.loads[2].limit.is_some());
    plant.flow();
    assert!(
        (plant.total() / THRESHOLD - 1.0).abs() < 0.02,
        "{}",
        plant.total() / THRESHOLD
    );
}

#[test]
fn a_user_whose_bursts_only_wait_for_the_next_period_is_soon_unlimited() {
    // A burst of 2 ms in 40 waits if the quota of a period of 5 ms is 1 ms: the kernel counts
    // throttling, but only a quarter of the limit is used.
    let mut controller = Controller::new(Settings::new(THRESHOLD));
    let light = |limit| Load {
        limit,
        held_back: true,
        ..Load::new(1, 0.2e9, 0.05)
    };
    let heavy = |limit: Option<f64>| {
        let cpu = limit.unwrap_or(2.0);
        Load {
            limit,
            held_back: limit.is_some(),
            ..Load::new(0, cpu * 4e9, cpu)
        }
    };
    let (mut limits, mut steps) = ([None, Some(0.2)], 0);
    while limits[1].is_some() {
        let loads = [heavy(limits[0]), light(limits[1])];
        let decision = controller.step(INTERVAL_MS, 0.0, &loads);
        limits = [decision.limits[0].cpu, decision.limits[1].cpu];
        steps += 1;
        assert!(steps < 10, "{decision:?}");
    }
    assert!(limits[0].is_some());
}

/// The next shares contain its share already; correcting for it as well would be too much.
#[test]
fn when_a_user_leaves_the_total_does_not_overshoot() {
    let user = |wanted: f64| User {
        wanted: wanted * THRESHOLD,
        rate: 2.0 * THRESHOLD,
        weight: 1.0,
        protected: false,
    };
    for leaves in [user(0.25), user(3.0)] {
        let mut plant = Plant::new(&[user(2.0), leaves, user(2.0)]);
        plant.settle();
        plant.users.remove(1);
        plant.loads.remove(1);
        for step in 0..20 {
            plant.step();
            let total = plant.total() / THRESHOLD;
            assert!(total < 1.04, "step {step}: {total}");
        }
        assert!(plant.total() > 0.99 * THRESHOLD);
    }
}

/// A new user has used CPU time, but the estimator has attributed no traffic to it yet.
#[test]
fn the_first_limit_is_not_that_of_a_user_without_traffic() {
    let mut controller = Controller::new(Settings::new(THRESHOLD));
    let old = Load::new(0, THRESHOLD, 0.5);
    let mut limits = Vec::new();
    for bandwidth in [0.0, THRESHOLD, THRESHOLD] {
        let begun = Load::new(1, bandwidth, 0.5);
        let decision = controller.step(INTERVAL_MS, 0.0, &[old, begun]);
        limits.push(decision.limits[1].cpu);
    }
    // Half of the threshold each; the threshold takes half a CPU.
    assert_eq!(limits[0], None);
    assert!(
        limits[1].is_some_and(|cpu| (cpu - 0.25).abs() < 0.05),
        "{limits:?}"
    );
}

#[test]
fn unattributed_traffic_reduces_the_shares() {
    let hungry = User {
        wanted: 8e9,
        rate: 4e9,
        weight: 1.0,
        protected: false,
    };
    let mut plant = Plant::new(&[hungry, hungry]);
    for _ in 0..100 {
        plant.flow();
        let decision = plant.controller.step(INTERVAL_MS, 1e9, &plant.loads);
        for (load, limit) in plant.loads.iter_mut().zip(&decision.limits) {
            load.limit = limit.cpu;
        }
    }
    plant.flow();
    assert!(
        (plant.total() / 3e9 - 1.0).abs() < 0.01,
        "{}",
        plant.total()
    );
}

#[test]
fn the_integral_does_not_wind_up_while_no_user_is_limited() {
    let light = User {
        wanted: 0.5e9,
        rate: 4e9,
        weight: 1.0,
        protected: false,
    };
    let mut plant = Plant::new(&[light, light]);
    for _ in 0..1000 {
        let decision = plant.step();
        assert_eq!(decision.trim, 0.0);
        assert_eq!(decision.level, f64::INFINITY);
    }
    // The load comes at once, and the first limits are correct.
    plant.users[0].wanted = 8e9;
    plant.users[1].wanted = 8e9;
    for _ in 0..5 {
        plant.step();
    }
    plant.flow();
    assert!(
        (plant.total() / THRESHOLD - 1.0).abs() < 0.1,
        "{}",
        plant.total()
    );
}

#[test]
fn the_integral_shrinks_where_it_is_the_reason_that_no_limit_binds() {
    // Each user has one thread.
    let mut controller = Controller::new(Settings::new(THRESHOLD));
    let mut limits = [None; 2];
    let mut step = |rate: f64| {
        let load = |(id, limit): (u64, &Option<f64>)| {
            let cpu = limit.unwrap_or(1.0_f64).min(1.0);
            Load {
                limit: *limit,
                held_back: cpu < 1.0,
                ..Load::new(id, rate * cpu, cpu)
            }
        };
        let loads: Vec<Load> = (0..).zip(&limits).map(load).collect();
        let decision = controller.step(INTERVAL_MS, 0.0, &loads);
        for (limit, decided) in limits.iter_mut().zip(&decision.limits) {
            *limit = decided.cpu;
        }
        (
            loads.iter().map(|load| load.bandwidth).sum::<f64>(),
            decision.trim,
        )
    };
    for _ in 0..40 {
        step(3e9);
    }
    // While the rate falls, limits are late and the integral grows.
    let mut rate = 3e9;
    while rate > 2e9 {
        rate *= 0.88;
        step(rate);
    }
    let trim = step(rate).1;
    assert!(trim > 0.1, "{trim}");
    let totals: Vec<f64> = (0..40).map(|_| step(2.1e9).0).collect();
    assert!(
        totals[30..]
            .iter()
            .all(|total| (total / THRESHOLD - 1.0).abs() < 0.02),
        "{totals:?}"
    );
}

#[test]
fn an_unused_limit_slows_no_user_that_wants_little_less() {
    let one = |wanted| User {
        wanted,
        rate: 2e9,
        weight: 1.0,
        protected: false,
    };
    let mut plant = Plant::new(&[one(1e12); 6]);
    plant.settle();
    // Four leave; of the others, one wants a little less than its share now.
    plant.users[0].wanted = 1.3e9;
    for user in &mut plant.users[2..] {
        user.wanted = 0.0;
    }
    let moved: Vec<f64> = (0..10)
        .map(|_| {
            plant.step();
            plant.loads[0].bandwidth
        })
        .collect();
    assert!(moved[1..].iter().all(|moved| *moved > 1.25e9), "{moved:?}");
}
