//! Idle users are scanned rarely, and still noticed at once when they become active.
//!
//! ```text
//!  CPU time of the configured cgroups and all below ── minus that of active users ──▶ remainder
//!                                                                                         │
//!              usual: idle users are assumed unchanged ◀── within the margin ── compared ─┤
//!              a user became active: scan all idle users now ◀── above ───────────────────┘
//! ```
//!
//! Most of a thousand cgroups are idle, and reading each of them would take most of a pass. The
//! kernel adds up the CPU time of cgroups in their ancestors, so one number shows whether any user
//! that was not scanned became active. Between two scans an idle user is assumed to run as before:
//! its CPU time is spread over all passes since its last scan.
//!
//! Bounds: a user that begins to use more than [`Sum::margin`] beside steady others is noticed in
//! the same pass, any other within [`MIN_TURNS`] passes, or with many users within as many as leave
//! [`MAX_SCANS`] scans in each (twice as many while the sum is unreliable: its margin is more than
//! `WITNESS_CPU` and a quarter of the sum), at most [`MAX_TURNS`]. Searches that find nobody are
//! limited to [`SEARCH_SCANS`] scans in a pass on average, after a reserve of two searches. So
//! the scans of a pass are bounded where all users vary and the sum says little. Where
//! the sum cannot be read, [`MIN_TURNS`] holds for any number of users.

/// Idle threshold: an unlimited user that uses fewer CPUs is idle. A user below two thirds of the
/// minimum limit is never slowed, so no decision depends on its exact CPU time.
pub const IDLE_THRESHOLD_CPUS: f64 = 0.004;
/// Each idle user is scanned in one of this many passes,
pub const MIN_TURNS: u64 = 4;
/// or so rarely that no pass has more scans than this
pub const MAX_SCANS: usize = 16;
/// with a reliable sum, than this with an unreliable one,
const MAX_UNRELIABLE_SCANS: usize = 32;
/// at most this many passes,
pub const MAX_TURNS: u64 = 64;
/// and at least once in this time.
const MAX_TURN_MS: u64 = 3200;
/// The sum is reliable if it shows any user that begins to use this many CPUs, or this fraction of
/// what all idle users use.
const WITNESS_CPU: f64 = 0.05;
const WITNESS_PART: f64 = 0.25;
/// The smallest margin: in CPUs, and as a fraction of the expected sum.
const MIN_MARGIN_CPU: f64 = 0.02;
const MIN_MARGIN_PART: f64 = 0.1;

/// Scans in a pass, on average, of searches among all idle users that find nobody.
pub const SEARCH_SCANS: usize = 16;
/// Searches that may find nobody in a row.
const SEARCHES: usize = 2;

/// A user that explains less than this fraction of the excess has not caused it: on a busy machine
/// many users may run a little more at once.
const CULPRIT_PART: f64 = 0.125;

/// Gains of the mean and of the mean deviation, and the number of deviations in the margin: the
/// constants of TCP's retransmission timer (Jacobson, *Congestion Avoidance and Control*, 1988).
const MEAN_GAIN: f64 = 1.0 / 8.0;
const DEVIATION_GAIN: f64 = 1.0 / 4.0;
const DEVIATIONS: f64 = 4.0;

/// The remainder of the sum, in CPUs: of idle users and of processes that are no users.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    mean: Option<f64>,
    deviation: f64,
    /// Whether it is known at present.
    known: bool,
}

impl Sum {
    /// By how much the sum may exceed the expected one, in CPUs.
    pub fn margin(&self) -> f64 {
        let least = self.mean.unwrap_or(0.0) * MIN_MARGIN_PART;
        (self.deviation * DEVIATIONS).max(least).max(MIN_MARGIN_CPU)
    }

    /// Adds the sum of an interval; `None`: it cannot be read. If a user became active, returns
    /// the minimum CPU time that identifies it.
    pub fn exceeds_margin(&mut self, cpu: Option<f64>) -> Option<f64> {
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

    /// After a scan of all users: the sum, and the part of users that are no longer idle. If no
    /// user was found, other processes cause the variation, and the sum becomes less reliable.
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

    /// In one of how many passes each idle user is scanned.
    pub fn turns(&self, interval_ms: u64, users: usize) -> u64 {
        let max_margin = |mean: f64| (mean * WITNESS_PART).max(WITNESS_CPU);
        let turns = match self.mean.filter(|_| self.known) {
            // Nothing but its own turn shows that a user became active.
            None => MIN_TURNS,
            Some(mean) => {
                let reliable = self.margin() <= max_margin(mean);
                let scans = if reliable {
                    MAX_SCANS
                } else {
                    MAX_UNRELIABLE_SCANS
                };
                (users.div_ceil(scans) as u64).clamp(MIN_TURNS, MAX_TURNS)
            }
        };
        turns.min((MAX_TURN_MS / interval_ms.max(1)).max(1))
    }
}

/// Limits the scans of searches that find nobody: a token bucket of scans.
#[derive(Clone, Debug, Default)]
pub struct Searches {
    /// Scans that were made and not yet replenished.
    spent: usize,
}

impl Searches {
    /// Begins a pass. Whether all idle users, so many, may be searched in it.
    pub fn are_allowed(&mut self, users: usize) -> bool {
        self.spent = self.spent.saturating_sub(SEARCH_SCANS);
        self.spent + users <= users * SEARCHES
    }

    /// So many users were searched, and none was found.
    pub fn found_nobody(&mut self, users: usize) {
        self.spent += users;
    }
}

/// The CPU time of an idle user in the interval `interval_ns`, given `ran_ns` in the `since_ns`
/// since its last scan and `rate` CPUs before.
///
/// If the sum shows that a user became active, it is everything beyond its rate, provided that
/// this is at least `min_ns`; less than that is noise of the time since its last scan.
pub fn of_interval(
    ran_ns: u64,
    since_ns: u64,
    interval_ns: u64,
    rate: f64,
    min_ns: Option<f64>,
) -> u64 {
    let ran = ran_ns as f64;
    let (since, interval) = (since_ns.max(1) as f64, interval_ns as f64);
    let beyond = ran - rate * (since - interval).max(0.0);
    let moved = match min_ns {
        Some(min) if beyond >= min => beyond,
        _ => ran * (interval / since).min(1.0),
    };
    moved.clamp(0.0, ran) as u64
}

/// The turn of a pass: divided once, and not for each of a thousand users.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    now: u32,
    of: u32,
}

impl Turn {
    /// For the pass with this number, when each user is scanned in one of `of` passes.
    pub fn new(pass: u64, of: u64) -> Self {
        Self {
            now: (pass % of) as u32,
            of: of as u32,
        }
    }
}

/// Flat lists of what a pass needs of every user, in the order of users. The users themselves are
/// large and are not touched unless they are scanned.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// Assumed CPUs of an idle user; `None`: it is active.
    pub rates: Vec<Option<f64>>,
    /// The pass of a turn in which it is scanned.
    slots: Vec<u32>,
    /// Share of its memory on each node, node after node.
    shares: Vec<f64>,
}

impl Roster {
    /// Removes all users.
    pub fn clear(&mut self) {
        self.rates.clear();
        self.slots.clear();
        self.shares.clear();
    }

    /// Adds a user: its number, and the share of its memory on each node.
    pub fn push(&mut self, rate: Option<f64>, id: u64, shares: &[f64]) {
        self.rates.push(rate);
        self.slots.push(id as u32);
        self.shares.extend_from_slice(shares);
    }

    /// Whether a user is scanned in this turn.
    pub fn is_due(&self, at: usize, turn: Turn) -> bool {
        self.slots[at] % turn.of == turn.now
    }

    /// For each node, CPU seconds of idle users, weighted with their memory there.
    pub fn idle(&self, nodes: usize, moved_ns: &[u64]) -> Vec<f64> {
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
    fn scans_are_rare_only_while_the_sum_is_reliable() {
        let mut sum = Sum::default();
        assert_eq!(sum.turns(INTERVAL_MS, 5000), MIN_TURNS, "nothing is known");
        for _ in 0..3 {
            assert!(sum.exceeds_margin(Some(0.3)).is_none());
        }
        assert_eq!(sum.turns(INTERVAL_MS, 5000), MAX_TURNS);
        assert_eq!((sum.turns(200, 1000), sum.turns(10_000, 1000)), (16, 1));
        assert_eq!((sum.turns(50, 10), sum.turns(50, 500)), (MIN_TURNS, 32));
        sum.exceeds_margin(None);
        assert_eq!(sum.turns(INTERVAL_MS, 5000), MIN_TURNS, "it cannot be read");
        let (reliable, unreliable) = (63, 32);
        // A process that is no user comes and goes.
        let mut fruitless = 0;
        for at in 0..1000 {
            let cpu = if at % 7 < 3 { 1.3 } else { 0.3 };
            if sum.exceeds_margin(Some(cpu)).is_some() {
                fruitless += 1;
                sum.explained(cpu, None);
            }
            assert!(at < 7 || sum.turns(INTERVAL_MS, 1000) == unreliable, "{at}");
            assert!(sum.turns(INTERVAL_MS, 100) == MIN_TURNS || at < 7, "{at}");
        }
        assert!(fruitless < 20, "{fruitless}");
        // It stays: the sum becomes reliable again.
        for _ in 0..60 {
            if sum.exceeds_margin(Some(1.3)).is_some() {
                sum.explained(1.3, None);
            }
        }
        assert_eq!(sum.turns(INTERVAL_MS, 1000), reliable);
    }

    #[test]
    fn searches_that_find_nobody_are_bounded_however_often_the_sum_exceeds_its_margin() {
        let users = 1000;
        let mut searches = Searches::default();
        let mut made = 0;
        for pass in 0..20_000 {
            if searches.are_allowed(users) {
                searches.found_nobody(users);
                made += 1;
            }
            assert!(
                made * users <= (SEARCHES * users) + pass * SEARCH_SCANS,
                "{pass}"
            );
        }
        assert!(made > 300, "a search that is put off comes: {made}");
        // With few users every pass may have one.
        let mut searches = Searches::default();
        for pass in 0..100 {
            assert!(searches.are_allowed(SEARCH_SCANS), "{pass}");
            searches.found_nobody(SEARCH_SCANS);
        }
        // Searches that find a user are free.
        let mut searches = Searches::default();
        assert!((0..100).all(|_| searches.are_allowed(users)));
    }

    proptest! {
        #[test]
        fn a_user_that_becomes_active_beside_steady_others_is_noticed_at_once(
            default_events in 0.0..4.0f64, noise in prop::collection::vec(-1.0..1.0f64, 40),
            size in 0.0..0.008f64, begins in 0.5..8.0f64,
        ) {
            let mut sum = Sum::default();
            for noise in &noise {
                prop_assert!(sum.exceeds_margin(Some(default_events + size * noise)).is_none());
            }
            let cpu = default_events + begins + size * noise[0];
            prop_assert!(sum.exceeds_margin(Some(cpu)).is_some_and(|least| least < begins));
            sum.explained(cpu, Some(begins));
            prop_assert!(sum.exceeds_margin(Some(default_events)).is_none());
        }

        #[test]
        fn every_user_has_its_turn(
            ids in prop::collection::vec(0u64..10_000, 1..50), from in 0u64..1 << 40,
        ) {
            let mut roster = Roster::default();
            ids.iter().for_each(|&id| roster.push(Some(0.0), id, &[1.0]));
            for turns in [MAX_TURNS, MIN_TURNS, 3, 1] {
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
    fn a_user_that_becomes_active_is_charged_beyond_its_rate() {
        let (interval, since) = (50_000_000, 800_000_000);
        // A thousandth of a CPU before, one now.
        let part = of_interval(50_750_000, since, interval, 0.001, Some(1e6));
        assert_eq!(part, 50_000_000);
        assert_eq!(of_interval(800_000, since, interval, 0.001, None), 50_000);
        // Another user became active; this one ran a little more than expected.
        let part = of_interval(1_600_000, since, interval, 0.001, Some(1e6));
        assert_eq!(part, 100_000);
    }

    #[test]
    fn idle_users_are_added_up_node_by_node() {
        let mut roster = Roster::default();
        roster.push(Some(0.001), 1, &[0.5, 0.25]);
        roster.push(None, 2, &[1.0, 0.0]);
        roster.push(Some(0.0), 3, &[0.0, 1.0]);
        let sums = roster.idle(2, &[1_000_000_000, 7, 2_000_000_000]);
        assert_eq!(sums, [0.5, 2.25]);
        roster.clear();
        assert_eq!(roster.idle(2, &[]), [0.0, 0.0]);
    }
}
