//! Whose the device's traffic is, by samples.
//!
//! ```text
//!  sampled bytes of a user on a node ÷ its CPU time  ──▶ bytes per CPU second, remembered
//!                             × its CPU time of this interval ──▶ its weight in the node's traffic
//! ```
//!
//! In one interval there may be a dozen samples of a user, which would be off by a quarter. What a
//! CPU second of it moves changes slowly and is averaged; what it runs is known exactly and at
//! once. Only proportions matter, so how many accesses a sample stands for does not.
//!
//! A device that samples all of its lines itself ([`Shares::of_all`]) gives hundreds in an interval,
//! of whoever moved something in it, whether he ran then or not: what caches write back comes later.
//! So these are weights as they are; what is remembered of them would be wrong for all whose traffic
//! comes and goes with the device's.

use std::collections::HashMap;

/// Half-life of what is remembered of samples.
const HALF_LIFE_MS: f64 = 500.0;
/// CPU time of users with memory on a node in which none of them was sampled there: from then on
/// samples say nothing of it.
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
    /// For each node.
    silent_cpu_s: Vec<f64>,
    /// Whether samples say whose a node's traffic is.
    fresh: Vec<bool>,
    /// Whether somebody uses a node of whom samples say nothing.
    blind: Vec<bool>,
    /// On each node, of nobody who is a user.
    nobody: Vec<Use>,
    /// Whether all accesses are sampled.
    all: bool,
}

impl Shares {
    /// For so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            users: HashMap::new(),
            silent_cpu_s: vec![0.0; nodes],
            fresh: vec![false; nodes],
            blind: vec![false; nodes],
            nobody: vec![Use::default(); nodes],
            all: false,
        }
    }

    /// For so many nodes, all of whose lines are sampled alike: nothing sampled is nothing moved.
    pub fn of_all(nodes: usize) -> Self {
        Self {
            fresh: vec![true; nodes],
            all: true,
            ..Self::new(nodes)
        }
    }

    /// So many bytes were sampled of a user, on a node or on any of them.
    pub fn charge(&mut self, user: u64, node: Option<usize>, bytes: f64) {
        let count = self.fresh.len();
        let user = self.users.entry(user).or_default();
        user.nodes.resize(count, Use::default());
        match node {
            Some(at) => user.nodes[at].now += bytes,
            None => user.anywhere += bytes,
        }
    }

    /// So many bytes were sampled on a node that are of nobody who is a user.
    pub fn charge_nobody(&mut self, node: usize, bytes: f64) {
        self.nobody[node].now += bytes;
    }

    /// Nodes that somebody uses of whom samples say nothing: none of them is fresh until this is
    /// called again.
    pub fn set_blind(&mut self, nodes: Vec<bool>) {
        debug_assert_eq!(nodes.len(), self.blind.len());
        self.blind = nodes;
    }

    /// After an interval; users that are not among these are forgotten.
    pub fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        let kept = 0.5f64.powf(interval_ms / HALF_LIFE_MS);
        let mut before = std::mem::take(&mut self.users);
        let mut sampled: Vec<bool> = self.nobody.iter().map(|one| one.now > 0.0).collect();
        for nobody in &mut self.nobody {
            nobody.step(kept);
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

    /// Whether all of a node's traffic is sampled alike, so that weights are bytes.
    pub fn are_of_all(&self) -> bool {
        self.all
    }

    /// Whether samples say whose a node's traffic is.
    pub fn is_fresh(&self, node: usize) -> bool {
        self.fresh.get(node) == Some(&true) && self.blind.get(node) == Some(&false)
    }

    /// What a user moved on a node in so much CPU time; only its proportion to others' has a
    /// meaning. Nothing where samples do not say.
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

    /// Whether anything of a user's was sampled on a node between the last two steps.
    pub fn sampled(&self, user: u64, node: usize) -> bool {
        let known = self.users.get(&user);
        known.is_some_and(|user| user.nodes[node].last > 0.0)
    }

    /// What of a node's traffic is nobody's, as [`Self::weight`] has it.
    pub fn weight_of_nobody(&self, node: usize) -> Option<f64> {
        let known = self.all && self.is_fresh(node);
        known.then(|| self.nobody[node].last)
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
    fn samples_that_stop_are_not_believed_for_ever_and_again_when_they_come() {
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
        // Nobody runs: there is nothing to sample.
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
    fn what_is_on_any_node_is_divided_by_memory() {
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
    fn of_all_lines_an_intervals_own_samples_are_the_weights_whoever_ran() {
        let mut shares = Shares::of_all(2);
        assert_eq!(shares.weight(1, 0, 1.0), Some(0.0), "nothing was moved");
        shares.charge(1, Some(0), 640.0);
        shares.charge(2, Some(0), 64.0);
        shares.charge_nobody(1, 128.0);
        shares.step(50.0, &[run(1, 0.05), run(2, 0.0)]);
        let weights = |shares: &Shares| [1, 2].map(|id| shares.weight(id, 0, 0.0).unwrap());
        assert_eq!(weights(&shares), [640.0, 64.0]);
        assert_eq!(shares.weight_of_nobody(1), Some(128.0));
        shares.step(50.0, &[run(1, 0.05), run(2, 0.0)]);
        assert_eq!(weights(&shares), [0.0, 0.0], "nothing in this one");
        // Users are at work for a second, and nothing is sampled: the device samples no more.
        for _ in 0..40 {
            shares.step(50.0, &[run(1, 0.05), run(2, 0.05)]);
        }
        assert_eq!(
            (shares.weight(1, 0, 1.0), shares.weight_of_nobody(0)),
            (None, None)
        );
        shares.charge_nobody(0, 64.0);
        shares.step(50.0, &[]);
        assert_eq!(shares.weight_of_nobody(0), Some(64.0));
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
            // Some 170 samples are remembered: 3.5 standard deviations.
            let bound = 3.5 * (truth * (1.0 - truth) / 170.0).sqrt();
            prop_assert!((found - truth).abs() < bound, "{found} {truth}");
        }

        #[test]
        fn who_stops_running_weighs_nothing_at_once(bytes in 1.0..1e9f64, cpu_s in 0.001..1.0f64) {
            let mut shares = Shares::new(1);
            shares.charge(1, Some(0), bytes);
            shares.step(50.0, &[Run { id: 1, cpu_s, shares: &[1.0] }]);
            prop_assert_eq!(shares.weight(1, 0, 0.0), Some(0.0));
            let now = shares.weight(1, 0, cpu_s).unwrap();
            prop_assert!((now / bytes - 1.0).abs() < 1e-9);
        }
    }
}
