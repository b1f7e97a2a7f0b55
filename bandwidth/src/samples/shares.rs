//! Attribution by samples of accesses.
//!
//! ```text
//!  sampled bytes of a user on a node ÷ its CPU time  ──▶ bytes per CPU second, remembered
//!                             × its CPU time of this interval ──▶ its weight in the node's traffic
//! ```
//!
//! An interval may have only a dozen samples of a user, an error of a quarter. Bytes per CPU
//! second change slowly and are averaged; CPU time is known exactly at once. Only proportions
//! matter, so the number of accesses that a sample stands for does not.
//!
//! A device that samples all of its lines itself ([`Shares::of_all`]) yields hundreds of samples
//! in an interval, of every user that moved something, whether it ran or not: caches write back
//! later. Its samples are the weights of the interval and are not averaged: an average would be
//! wrong for users whose traffic varies with the device's load.

use std::collections::HashMap;

/// Half-life of the sums of samples.
const HALF_LIFE_MS: f64 = 500.0;
/// When users with memory on a node have run for this CPU time without a sample there, samples say
/// nothing about the node.
const SILENT_CPU_S: f64 = 1.0;

/// One user on one node.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Sampled, decayed.
    bytes: f64,
    /// Sampled since the last step.
    now: f64,
    /// Sampled between the last two steps.
    last: f64,
}

impl Use {
    fn step(&mut self, kept: f64) {
        self.last = std::mem::take(&mut self.now);
        self.bytes = self.bytes * kept + self.last;
    }
}

#[derive(Clone, Debug, Default)]
struct User {
    nodes: Vec<Use>,
    /// Sampled since the last step, on one of the nodes.
    anywhere: f64,
    /// Decayed, in seconds.
    cpu_s: f64,
}

/// One user in one step.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub id: u64,
    /// CPU time since the last step, in seconds.
    pub cpu_s: f64,
    /// Share of its memory on each node.
    pub shares: &'a [f64],
}

/// Follows users from step to step.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    users: HashMap<u64, User>,
    /// For each node: CPU time since its last sample.
    silent_cpu_s: Vec<f64>,
    /// For each node: whether samples attribute its traffic.
    fresh: Vec<bool>,
    /// For each node: whether a user of it cannot be sampled.
    blind: Vec<bool>,
    /// For each node: samples of no user.
    unattributed: Vec<Use>,
    /// Time, decayed as samples are, and that of the last interval; in seconds.
    elapsed_s: f64,
    last_s: f64,
    /// Whether all accesses are sampled.
    all: bool,
}

impl Shares {
    /// For this number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            users: HashMap::new(),
            silent_cpu_s: vec![0.0; nodes],
            fresh: vec![false; nodes],
            blind: vec![false; nodes],
            unattributed: vec![Use::default(); nodes],
            elapsed_s: 0.0,
            last_s: 0.0,
            all: false,
        }
    }

    /// For nodes whose traffic is sampled completely: no sample means no traffic.
    pub fn of_all(nodes: usize) -> Self {
        Self {
            fresh: vec![true; nodes],
            all: true,
            ..Self::new(nodes)
        }
    }

    /// Adds sampled bytes of a user, on one node or on an unknown one.
    pub fn charge(&mut self, user: u64, node: Option<usize>, bytes: f64) {
        let count = self.fresh.len();
        let user = self.users.entry(user).or_default();
        user.nodes.resize(count, Use::default());
        match node {
            Some(at) => user.nodes[at].now += bytes,
            None => user.anywhere += bytes,
        }
    }

    /// Adds sampled bytes on a node that belong to no user.
    pub fn charge_unattributed(&mut self, node: usize, bytes: f64) {
        self.unattributed[node].now += bytes;
    }

    /// Sets the nodes with users that cannot be sampled. They are not fresh until the next call.
    pub fn set_blind(&mut self, nodes: Vec<bool>) {
        debug_assert_eq!(nodes.len(), self.blind.len());
        self.blind = nodes;
    }

    /// Ends an interval; forgets users that are not among these.
    pub fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        let kept = 0.5f64.powf(interval_ms / HALF_LIFE_MS);
        self.last_s = interval_ms / 1000.0;
        self.elapsed_s = self.elapsed_s * kept + self.last_s;
        let mut before = std::mem::take(&mut self.users);
        let mut sampled: Vec<bool> = self.unattributed.iter().map(|one| one.now > 0.0).collect();
        for unattributed in &mut self.unattributed {
            unattributed.step(kept);
        }
        for run in runs {
            let mut user = before.remove(&run.id).unwrap_or_default();
            user.nodes.resize(self.fresh.len(), Use::default());
            user.cpu_s = user.cpu_s * kept + run.cpu_s;
            let all: f64 = run.shares.iter().sum();
            for (at, one) in user.nodes.iter_mut().enumerate() {
                let share = run.shares.get(at).copied().unwrap_or(0.0);
                if all > 0.0 {
                    one.now += user.anywhere * share / all;
                }
                sampled[at] |= one.now > 0.0;
                one.step(kept);
                self.silent_cpu_s[at] += share * run.cpu_s;
            }
            user.anywhere = 0.0;
            self.users.insert(run.id, user);
        }
        for (at, sampled) in sampled.into_iter().enumerate() {
            if sampled {
                self.silent_cpu_s[at] = 0.0;
                self.fresh[at] = true;
            } else if self.silent_cpu_s[at] > SILENT_CPU_S {
                self.fresh[at] = false;
            }
        }
    }

    /// Whether all traffic of a node is sampled, so that weights are bytes.
    pub fn are_of_all(&self) -> bool {
        self.all
    }

    /// Whether samples attribute a node's traffic.
    pub fn is_fresh(&self, node: usize) -> bool {
        self.fresh.get(node) == Some(&true) && self.blind.get(node) == Some(&false)
    }

    /// The weight of a user's traffic on a node in this CPU time; only its proportion to other
    /// weights has a meaning. `None` where samples do not attribute the traffic.
    pub fn weight(&self, user: u64, node: usize, cpu_s: f64) -> Option<f64> {
        if !self.is_fresh(node) {
            return None;
        }
        let known = self.users.get(&user);
        if self.all {
            return Some(known.map_or(0.0, |user| user.nodes[node].last));
        }
        let rate = known.map_or(0.0, |user| match user.cpu_s > 0.0 {
            true => user.nodes[node].bytes / user.cpu_s,
            false => 0.0,
        });
        Some(rate * cpu_s)
    }

    /// Whether a user was sampled on a node between the last two steps.
    pub fn sampled(&self, user: u64, node: usize) -> bool {
        let known = self.users.get(&user);
        known.is_some_and(|user| user.nodes[node].last > 0.0)
    }

    /// The weight of a node's traffic that belongs to no user, as [`Self::weight`].
    pub fn unattributed_weight(&self, node: usize) -> Option<f64> {
        if !self.is_fresh(node) {
            return None;
        }
        let unattributed = &self.unattributed[node];
        if self.all {
            return Some(unattributed.last);
        }
        // No CPU time is known of it: its rate is one per time.
        let rate = match self.elapsed_s > 0.0 {
            true => unattributed.bytes / self.elapsed_s,
            false => 0.0,
        };
        Some(rate * self.last_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two nodes; users with half of their memory on each.
    const BOTH: [f64; 2] = [0.5, 0.5];

    fn run(id: u64, cpu_s: f64) -> Run<'static> {
        Run {
            id,
            cpu_s,
            shares: &BOTH,
        }
    }

    #[test]
    fn samples_expire_when_they_stop_and_count_again_when_they_return() {
        let mut shares = Shares::new(2);
        assert_eq!(shares.weight(1, 0, 1.0), None, "nothing was sampled yet");
        shares.charge(1, Some(0), 640.0);
        shares.step(50.0, &[run(1, 0.05), run(2, 0.05)]);
        assert!(shares.weight(1, 0, 0.05).unwrap() > 0.0);
        assert_eq!(shares.weight(2, 0, 0.05), Some(0.0), "it computes");
        assert_eq!(
            shares.weight(1, 1, 0.05),
            None,
            "of the other node nothing is known"
        );
        // No user runs: there is nothing to sample.
        for _ in 0..1000 {
            shares.step(50.0, &[run(1, 0.0), run(2, 0.0)]);
        }
        assert!(shares.is_fresh(0));
        for _ in 0..30 {
            shares.step(50.0, &[run(1, 0.05), run(2, 0.05)]);
        }
        assert!(!shares.is_fresh(0));
        shares.charge(1, Some(0), 64.0);
        shares.step(50.0, &[run(1, 0.05)]);
        assert!(shares.is_fresh(0));
    }

    #[test]
    fn samples_of_no_user_have_the_weight_of_their_bytes() {
        let mut shares = Shares::new(1);
        let one = |id| Run {
            id,
            cpu_s: 0.05,
            shares: &[1.0],
        };
        for _ in 0..20 {
            shares.charge(1, Some(0), 64.0);
            shares.charge_unattributed(0, 192.0);
            shares.step(50.0, &[one(1)]);
        }
        let user = shares.weight(1, 0, 0.05).unwrap();
        let unattributed = shares.unattributed_weight(0).unwrap();
        assert!(
            (unattributed / user - 3.0).abs() < 1e-9,
            "{user} {unattributed}"
        );
    }

    #[test]
    fn samples_without_a_node_are_divided_by_memory() {
        let mut shares = Shares::new(2);
        shares.charge(1, None, 1000.0);
        let quarter = Run {
            id: 1,
            cpu_s: 1.0,
            shares: &[0.1, 0.3],
        };
        shares.step(50.0, &[quarter]);
        let [first, second] = [0, 1].map(|node| shares.weight(1, node, 1.0).unwrap());
        assert!((second / first - 3.0).abs() < 1e-9, "{first} {second}");
    }

    #[test]
    fn complete_samples_of_an_interval_are_the_weights_whichever_user_ran() {
        let mut shares = Shares::of_all(2);
        assert_eq!(shares.weight(1, 0, 1.0), Some(0.0), "nothing was moved");
        shares.charge(1, Some(0), 640.0);
        shares.charge(2, Some(0), 64.0);
        shares.charge_unattributed(1, 128.0);
        shares.step(50.0, &[run(1, 0.05), run(2, 0.0)]);
        let weights = |shares: &Shares| [1, 2].map(|id| shares.weight(id, 0, 0.0).unwrap());
        assert_eq!(weights(&shares), [640.0, 64.0]);
        assert_eq!(shares.unattributed_weight(1), Some(128.0));
        shares.step(50.0, &[run(1, 0.05), run(2, 0.0)]);
        assert_eq!(weights(&shares), [0.0, 0.0], "nothing in this one");
        // Users run for a second without a sample: the device samples no more.
        for _ in 0..40 {
            shares.step(50.0, &[run(1, 0.05), run(2, 0.05)]);
        }
        assert_eq!(
            (shares.weight(1, 0, 1.0), shares.unattributed_weight(0)),
            (None, None)
        );
        shares.charge_unattributed(0, 64.0);
        shares.step(50.0, &[]);
        assert_eq!(shares.unattributed_weight(0), Some(64.0));
    }

    proptest! {
        #[test]
        fn few_samples_of_an_interval_give_shares_within_a_tenth(
            heavy in 2u32..10, random in prop::collection::vec(0.0..1.0f64, 400),
        ) {
            // A dozen samples an interval, of the heavy user with its true probability.
            let mut shares = Shares::new(1);
            let truth = f64::from(heavy) / f64::from(heavy + 1);
            let mut found = 0.0;
            let one = |id| Run { id, cpu_s: 0.05, shares: &[1.0] };
            for dozen in random.chunks(12) {
                for &at in dozen {
                    shares.charge(if at < truth { 1 } else { 2 }, Some(0), 64.0);
                }
                shares.step(50.0, &[one(1), one(2)]);
                let [heavy, light] = [1, 2].map(|id| shares.weight(id, 0, 0.05).unwrap());
                found = heavy / (heavy + light);
            }
            // About 170 samples are in the average: 3.5 standard deviations.
            let bound = 3.5 * (truth * (1.0 - truth) / 170.0).sqrt();
            prop_assert!((found - truth).abs() < bound, "{found} {truth}");
        }

        #[test]
        fn a_user_that_stops_running_has_no_weight_at_once(bytes in 1.0..1e9f64, cpu_s in 0.001..1.0f64) {
            let mut shares = Shares::new(1);
            shares.charge(1, Some(0), bytes);
            shares.step(50.0, &[Run { id: 1, cpu_s, shares: &[1.0] }]);
            prop_assert_eq!(shares.weight(1, 0, 0.0), Some(0.0));
            let now = shares.weight(1, 0, cpu_s).unwrap();
            prop_assert!((now / bytes - 1.0).abs() < 1e-9);
        }
    }
}
