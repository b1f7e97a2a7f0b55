//! Who does next to nothing is looked at seldom, and seen at once all the same.
//!
//! ```text
//!  CPU time of the configured cgroups, with all below ── of those that are looked at ──▶ the rest
//!                                                                                         │
//!            usual: all who are quiet go on as they did ◀── as it was ── compared with ───┤
//!            somebody began: all who are quiet are looked at, now ◀── more ───────────────┘
//! ```
//!
//! Among a thousand cgroups most do nothing, and reading each of them would be most of a pass. The
//! kernel adds up what cgroups run in the cgroups above them, so one number tells whether any of
//! those that nobody looked at has begun. Between two looks a quiet user is taken to run as it did
//! before: what it has run is spread over all passes since its last look.
//!
//! Bounds: who begins to use more than [`Sum::margin`] beside steady others is seen in the same pass;
//! anybody within [`LEAST_TURNS`] passes; or, with many users and while the sum is a good witness,
//! which is while that margin is at most [`WITNESS_CPU`] or a quarter of the sum, within as many as
//! leave [`LOOKS`] in each, [`MOST_TURNS`] at most.

/// Who is not limited and uses less than so many CPUs is quiet. Whoever uses less than two thirds
/// of the least limit is never slowed, so nothing that is decided depends on exactly how much it is.
pub const QUIET_CPU: f64 = 0.004;
/// Each quiet user is looked at in one of so many passes,
pub const LEAST_TURNS: u64 = 4;
/// or, where the sum tells enough, in one of so many that no pass has more looks than this,
pub const LOOKS: usize = 16;
/// but never of more than so many,
pub const MOST_TURNS: u64 = 64;
/// or after a longer time.
const MOST_TURN_MS: u64 = 3200;
/// The sum is a good witness if it would tell of anybody who begins to use so many CPUs, or this
/// part of what all use who are quiet.
const WITNESS_CPU: f64 = 0.05;
const WITNESS_PART: f64 = 0.25;
/// More than what is expected by less than this is not worth a look: in CPUs, and as a part of what
/// is expected.
const LEAST_MARGIN_CPU: f64 = 0.02;
const LEAST_MARGIN_PART: f64 = 0.1;

/// Whoever makes less than this part of what is too much has not made it: many may do a little more
/// at once, on a busy machine.
const CULPRIT_PART: f64 = 0.125;

/// How the mean and its mean deviation follow, and how many deviations are usual: the constants by
/// which TCP waits for answers (Jacobson, *Congestion Avoidance and Control*, 1988).
const MEAN_GAIN: f64 = 1.0 / 8.0;
const DEVIATION_GAIN: f64 = 1.0 / 4.0;
const DEVIATIONS: f64 = 4.0;

/// What is left of the sum, in CPUs: of quiet users, and of whoever else is there.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    mean: Option<f64>,
    deviation: f64,
    /// Whether it is known now.
    known: bool,
}

impl Sum {
    /// By how much it may exceed what is expected, in CPUs.
    pub fn margin(&self) -> f64 {
        let least = self.mean.unwrap_or(0.0) * LEAST_MARGIN_PART;
        (self.deviation * DEVIATIONS)
            .max(least)
            .max(LEAST_MARGIN_CPU)
    }

    /// What an interval had; nothing, where that cannot be read. If somebody has begun, returns
    /// how many CPUs whoever it was uses at least.
    pub fn surprise(&mut self, cpu: Option<f64>) -> Option<f64> {
        self.known = cpu.is_some();
        let (Some(cpu), Some(mean)) = (cpu, self.mean) else {
            self.mean = cpu.or(self.mean);
            return None;
        };
        if cpu > mean + self.margin() {
            return Some((cpu - mean) * CULPRIT_PART);
        }
        self.follow(cpu, mean);
        None
    }

    fn follow(&mut self, cpu: f64, mean: f64) {
        self.mean = Some(mean + (cpu - mean) * MEAN_GAIN);
        self.deviation += ((cpu - mean).abs() - self.deviation) * DEVIATION_GAIN;
    }

    /// After a look at all: what it had, and what of it was run by users who are no longer quiet.
    /// If nobody was found, others make it go up and down, and it tells less.
    pub fn explained(&mut self, cpu: f64, found: Option<f64>) {
        let mean = self.mean.unwrap_or(cpu);
        match found {
            Some(found) => self.mean = Some((cpu - found).max(0.0)),
            None => {
                self.follow(cpu, mean);
                self.mean = Some(cpu);
            }
        }
    }

    /// In one of how many passes each of so many quiet users is looked at.
    pub fn turns(&self, interval_ms: u64, users: usize) -> u64 {
        let most = |mean: f64| (mean * WITNESS_PART).max(WITNESS_CPU);
        let tells = self.known && self.mean.is_some_and(|mean| self.margin() <= most(mean));
        let turns = match tells {
            true => (users.div_ceil(LOOKS) as u64).clamp(LEAST_TURNS, MOST_TURNS),
            false => LEAST_TURNS,
        };
        turns.min((MOST_TURN_MS / interval_ms.max(1)).max(1))
    }
}

/// What a quiet user is taken to have run in the interval `interval_ns`, having run `ran_ns` in the
/// `since_ns` since its last look, and `rate` CPUs before: its part.
///
/// If the sum says that somebody began, it is all that it ran beyond its rate, if that is at least
/// `least_ns`: little of it is noise of all the time since then.
pub fn of_interval(
    ran_ns: u64,
    since_ns: u64,
    interval_ns: u64,
    rate: f64,
    least_ns: Option<f64>,
) -> u64 {
    let ran = ran_ns as f64;
    let (since, interval) = (since_ns.max(1) as f64, interval_ns as f64);
    let beyond = ran - rate * (since - interval).max(0.0);
    let moved = match least_ns {
        Some(least) if beyond >= least => beyond,
        _ => ran * (interval / since).min(1.0),
    };
    moved.clamp(0.0, ran) as u64
}

/// Whose turn it is in a pass: divided once, and not for each of a thousand users.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    now: u32,
    of: u32,
}

impl Turn {
    /// In the pass with this number, where each is looked at in one of `of` passes.
    pub fn new(pass: u64, of: u64) -> Self {
        Self {
            now: (pass % of) as u32,
            of: of as u32,
        }
    }
}

/// Flat lists of what a pass has to know of every user, in the order of users: users themselves,
/// which are large, are not touched unless they are looked at.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// CPUs that a quiet user is taken to use; nothing: it is not quiet.
    pub rates: Vec<Option<f64>>,
    /// In which pass of a turn it is looked at.
    slots: Vec<u32>,
    /// Share of its memory on each node, node after node.
    shares: Vec<f64>,
}

impl Roster {
    /// For other users, who are to be told.
    pub fn clear(&mut self) {
        self.rates.clear();
        self.slots.clear();
        self.shares.clear();
    }

    /// One more user, its number, and the share of its memory on each node.
    pub fn push(&mut self, rate: Option<f64>, id: u64, shares: &[f64]) {
        self.rates.push(rate);
        self.slots.push(id as u32);
        self.shares.extend_from_slice(shares);
    }

    /// Whether it is a user's turn.
    pub fn is_due(&self, at: usize, turn: Turn) -> bool {
        self.slots[at] % turn.of == turn.now
    }

    /// Of each of so many nodes, CPU seconds of quiet users, weighted with their memory there.
    pub fn quiet(&self, nodes: usize, moved_ns: &[u64]) -> Vec<f64> {
        let mut sums = vec![0.0; nodes];
        let users = self.rates.iter().zip(moved_ns);
        for ((rate, &ns), shares) in users.zip(self.shares.chunks_exact(nodes.max(1))) {
            if rate.is_some() {
                for (sum, share) in sums.iter_mut().zip(shares) {
                    *sum += share * ns as f64 / 1e9;
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERVAL_MS: u64 = 50;

    #[test]
    fn turns_are_few_only_while_the_sum_tells() {
        let mut sum = Sum::default();
        assert_eq!(
            sum.turns(INTERVAL_MS, 5000),
            LEAST_TURNS,
            "nothing is known"
        );
        for _ in 0..3 {
            assert!(sum.surprise(Some(0.3)).is_none());
        }
        assert_eq!(sum.turns(INTERVAL_MS, 5000), MOST_TURNS);
        assert_eq!((sum.turns(200, 1000), sum.turns(10_000, 1000)), (16, 1));
        assert_eq!((sum.turns(50, 10), sum.turns(50, 500)), (LEAST_TURNS, 32));
        sum.surprise(None);
        assert_eq!(
            sum.turns(INTERVAL_MS, 5000),
            LEAST_TURNS,
            "it cannot be read"
        );
        // Somebody who is no user comes and goes.
        let mut fruitless = 0;
        for at in 0..1000 {
            let cpu = if at % 7 < 3 { 1.3 } else { 0.3 };
            if sum.surprise(Some(cpu)).is_some() {
                fruitless += 1;
                sum.explained(cpu, None);
            }
            assert!(
                at < 7 || sum.turns(INTERVAL_MS, 5000) == LEAST_TURNS,
                "{at}"
            );
        }
        assert!(fruitless < 20, "{fruitless}");
        // He stays: it tells again.
        for _ in 0..60 {
            if sum.surprise(Some(1.3)).is_some() {
                sum.explained(1.3, None);
            }
        }
        assert_eq!(sum.turns(INTERVAL_MS, 5000), MOST_TURNS);
    }

    proptest! {
        #[test]
        fn who_begins_beside_steady_others_is_noticed_at_once(
            usual in 0.0..4.0f64, noise in prop::collection::vec(-1.0..1.0f64, 40),
            size in 0.0..0.008f64, begins in 0.5..8.0f64,
        ) {
            let mut sum = Sum::default();
            for noise in &noise {
                prop_assert!(sum.surprise(Some(usual + size * noise)).is_none());
            }
            let cpu = usual + begins + size * noise[0];
            prop_assert!(sum.surprise(Some(cpu)).is_some_and(|least| least < begins));
            sum.explained(cpu, Some(begins));
            prop_assert!(sum.surprise(Some(usual)).is_none());
        }

        #[test]
        fn everybody_has_his_turn(
            ids in prop::collection::vec(0u64..10_000, 1..50), from in 0u64..1 << 40,
        ) {
            let mut roster = Roster::default();
            ids.iter().for_each(|&id| roster.push(Some(0.0), id, &[1.0]));
            for turns in [MOST_TURNS, LEAST_TURNS, 3, 1] {
                for at in 0..ids.len() {
                    let is_due = |&pass: &u64| roster.is_due(at, Turn::new(pass, turns));
                    let due = (from..from + turns).filter(is_due);
                    prop_assert_eq!(due.count(), 1);
                }
            }
        }

        #[test]
        fn an_intervals_part_is_never_more_than_what_was_run(
            ran in 0u64..1 << 40, since in 0u64..1 << 40, interval in 1u64..1 << 36,
            rate in 0.0..2.0f64, least in prop::option::of(0.0..1e9f64),
        ) {
            let part = of_interval(ran, since, interval, rate, least);
            prop_assert!(part <= ran);
            if since > interval && least.is_none() {
                let even = ran as f64 * interval as f64 / since as f64;
                prop_assert!((part as f64 - even).abs() <= 1.0 + even * 1e-9);
            }
        }
    }

    #[test]
    fn who_begins_is_charged_with_what_it_ran_beyond_its_rate() {
        let (interval, since) = (50_000_000, 800_000_000);
        // A thousandth of a CPU before, one now.
        let part = of_interval(50_750_000, since, interval, 0.001, Some(1e6));
        assert_eq!(part, 50_000_000);
        assert_eq!(of_interval(800_000, since, interval, 0.001, None), 50_000);
        // Somebody else began; this one did a little more than it was expected to.
        let part = of_interval(1_600_000, since, interval, 0.001, Some(1e6));
        assert_eq!(part, 100_000);
    }

    #[test]
    fn quiet_users_are_added_up_node_by_node() {
        let mut roster = Roster::default();
        roster.push(Some(0.001), 1, &[0.5, 0.25]);
        roster.push(None, 2, &[1.0, 0.0]);
        roster.push(Some(0.0), 3, &[0.0, 1.0]);
        let sums = roster.quiet(2, &[1_000_000_000, 7, 2_000_000_000]);
        assert_eq!(sums, [0.5, 2.25]);
        roster.clear();
        assert_eq!(roster.quiet(2, &[]), [0.0, 0.0]);
    }
}
