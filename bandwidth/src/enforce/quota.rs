//! A CPU limit as quota and period.
//!
//! The kernel takes quotas of at least 1 ms and periods of up to 1 s, and checks quotas on ticks.
//!
//! Users whose quotas refill at the same instant saturate the device together, although each is
//! within its limit. Then accesses queue as they do without limits. Therefore users take turns:
//!
//! ```text
//!  user 0  ██░░░░░░░░██░░░░░░░░██        all periods are 5 ms, doubled as often as needed for limits
//!  user 1  ░░░░░░██░░░░░░░░██░░░░        below the minimum quota; each user's period begins at an
//!  user 2  ░██░░░░░░░░██░░░░░░░░█        offset of its own
//! ```
//!
//! The kernel keeps the phase of a period timer: writing `cpu.max` does not end the running
//! period. But a period of 1 ms ends within that time, and the next one starts from there. So a
//! first limit is *opened* at its user's turn, with a period of 1 ms and more quota than any
//! machine has processors, and the limit is written right after. (A timer whose group takes no new
//! slice stops after two periods; a later write would start from its last end.) A longer period
//! begins where the running one ends, so it is written in the period whose end is its user's turn.
//!
//! A user runs from its turn until the first tick after its quota is used up. With a quota of less
//! than a tick it would run for a tick all the same, at turns that nobody chose: it pays by
//! missing periods. So no quota is shorter than a tick, and turns are spread over more ticks where
//! ticks are coarse ([`Turns`]).

/// Minimum quota (`min_cfs_quota_period` in kernel/sched/core.c).
const MIN_QUOTA_US: u64 = 1000;
/// Long enough for several users to take turns at ticks of 1 ms; shorter than noticeable latency.
const BASE_PERIOD_US: f64 = 5000.0;
/// Periods are longer than this only where the kernel's minimum quota requires it: those longer
/// than the time between two passes would make the CPU time of a pass mean nothing.
const LONG_PERIOD_US: f64 = 40_000.0;
/// Maximum period (`max_cfs_quota_period`).
const MAX_PERIOD_US: f64 = 1_000_000.0;
/// Opens a limit: the running period ends within a millisecond, and nothing is throttled.
pub const OPENING: Quota = Quota {
    quota_us: 1_000_000,
    period_us: 1000,
};
/// A smaller change is not written, because a write forgives what was used of the running period.
const DEAD_BAND: f64 = 0.02;
/// Neither is a change that takes longer than this to move as much CPU time as a write forgives,
const PAYBACK_MS: f64 = 200.0;
/// unless the last write is older than this. Rare writes forgive little on average, and a limit
/// must not stay wrong for ever because of an overrun that the kernel does not see.
const STALE_MS: f64 = 1000.0;

/// The content of `cpu.max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub quota_us: u64,
    pub period_us: u64,
}

impl Quota {
    /// The limit in CPUs.
    pub fn cpu(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// The offset of the turn of the user with this number, as a fraction of a period.
pub fn turn(slot: u64) -> f64 {
    // Multiples of the golden ratio are spread evenly for any number of users.
    (slot as f64 * 0.618_033_988_749_895).fract()
}

/// Turns are spread over at most this time or this many ticks, whichever is longer, so no user
/// waits longer for its turn.
const MAX_TURNS_US: u64 = 20_000;
const MAX_TURNS_TICKS: u64 = 10;

/// How users take turns on a machine with these ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// No quota is shorter.
    min_quota_us: u64,
    /// Turns are spread over this time.
    max_turns_us: u64,
}

impl Turns {
    /// For ticks of this length.
    pub fn of_tick(tick_ns: u64) -> Self {
        let tick_us = tick_ns / 1000;
        let base_us = BASE_PERIOD_US as u64;
        let mut max_turns_us = MAX_TURNS_US;
        // Each period divides a longer one.
        while max_turns_us * 2 <= MAX_TURNS_TICKS * tick_us {
            max_turns_us *= 2;
        }
        debug_assert_eq!(max_turns_us % base_us, 0);
        Self {
            min_quota_us: MIN_QUOTA_US.max(tick_us),
            max_turns_us,
        }
    }

    /// Whether a tick is longer than the kernel's minimum quota.
    pub fn are_coarse(&self) -> bool {
        self.min_quota_us > MIN_QUOTA_US
    }

    /// For this machine: the coarse clock advances on ticks.
    pub fn here() -> Self {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        Self::of_tick(tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64)
    }

    /// The quota of a limit in CPUs.
    pub fn quota(&self, cpu: f64) -> Quota {
        let wanted_us = self.min_quota_us as f64;
        let mut period_us = BASE_PERIOD_US;
        let is_short = |period_us: f64| match period_us < LONG_PERIOD_US {
            true => cpu * period_us < wanted_us,
            false => cpu * period_us < MIN_QUOTA_US as f64,
        };
        while is_short(period_us) && period_us * 2.0 <= MAX_PERIOD_US {
            period_us *= 2.0;
        }
        Quota {
            quota_us: (cpu * period_us).round().max(MIN_QUOTA_US as f64) as u64,
            period_us: period_us as u64,
        }
    }

    /// Time from a monotonic time until the turn of the user with this number, in periods of this
    /// length. In longer periods a user keeps its offset within the base period; users are spread
    /// over the base periods.
    pub fn until_turn_ns(&self, now_ns: u64, slot: u64, period_us: u64) -> u64 {
        let base_ns = BASE_PERIOD_US as u64 * 1000;
        let period_ns = period_us.min(self.max_turns_us) * 1000;
        let turn_ns =
            (turn(slot) * base_ns as f64) as u64 + base_ns * (slot % (period_ns / base_ns));
        (turn_ns + period_ns - now_ns % period_ns) % period_ns
    }

    /// Time until a limit with a longer period must be written; 0 if the period is not longer.
    pub fn until_longer_ns(&self, now_ns: u64, slot: u64, in_force: Quota, next: Quota) -> u64 {
        let most = |quota: Quota| quota.period_us.min(self.max_turns_us);
        let (short_us, long_us) = (most(in_force), most(next));
        let turn_ns = self.until_turn_ns(now_ns, slot, long_us);
        let (short_ns, long_ns) = (short_us * 1000, long_us * 1000);
        if short_ns >= long_ns || turn_ns <= short_ns {
            return 0;
        }
        // In the middle of the running period before it.
        turn_ns - short_ns / 2
    }
}

/// CPU time that a user has used beyond its limit and pays for with its next periods. Quotas are
/// checked on ticks, so it is up to a tick on each processor; a write forgives it and grants a
/// quota in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrun {
    cpu_ms: f64,
    /// Since the last write.
    since_ms: f64,
}

impl Overrun {
    /// After this quota was written.
    pub fn written(quota: Quota) -> Self {
        Self {
            cpu_ms: -(quota.quota_us as f64 / 1000.0),
            since_ms: 0.0,
        }
    }

    /// Adds an interval in which `used` CPUs were used under a limit of `limit` CPUs.
    pub fn add(&mut self, interval_ms: f64, used: f64, limit: f64) {
        self.since_ms += interval_ms;
        // Unused quota does not carry over to the next period.
        self.cpu_ms = (self.cpu_ms + (used - limit) * interval_ms).max(0.0);
    }
}

/// Whether a limit differs enough from the one in force to be written, which forgives the overrun.
pub fn should_write(in_force: Option<f64>, wanted: Option<f64>, overrun: Overrun) -> bool {
    match (in_force, wanted) {
        (Some(old), Some(new)) => {
            let change = (new - old).abs();
            let pays = change * PAYBACK_MS >= overrun.cpu_ms || overrun.since_ms >= STALE_MS;
            change > DEAD_BAND * old && pays
        }
        (old, new) => old.is_some() != new.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FINE: Turns = Turns {
        min_quota_us: 1000,
        max_turns_us: 20_000,
    };

    #[test]
    fn no_quota_is_shorter_than_a_tick() {
        assert_eq!(Turns::of_tick(1_000_000), FINE);
        assert_eq!(
            Turns::of_tick(999_848),
            FINE,
            "a tick of 1000 Hz in old kernels"
        );
        for (tick_ms, max_turns_ms) in [(1, 20), (4, 40), (10, 80)] {
            let turns = Turns::of_tick(tick_ms * 1_000_000);
            assert_eq!(turns.max_turns_us, max_turns_ms * 1000);
            for cpu in [0.01, 0.05, 0.1, 0.5, 3.0] {
                let quota = turns.quota(cpu);
                let is_long = quota.period_us as f64 >= LONG_PERIOD_US;
                assert!(
                    quota.quota_us >= tick_ms * 1000 || is_long,
                    "{tick_ms} {quota:?}"
                );
                assert!((quota.cpu() / cpu - 1.0).abs() < 0.001, "{quota:?}");
            }
        }
        let here = Turns::here();
        assert!((1000..=10_000).contains(&here.min_quota_us), "{here:?}");
    }

    proptest! {
        #[test]
        fn the_kernel_takes_it_and_it_is_what_was_wanted(cpu in 0.01..64.0f64) {
            let quota = FINE.quota(cpu);
            prop_assert!(quota.quota_us >= 1000 && (1000..=1_000_000).contains(&quota.period_us));
            prop_assert!((quota.cpu() / cpu - 1.0).abs() < 0.001, "{quota:?}");
        }

        #[test]
        fn a_turn_comes_once_a_period(
            slot in 0u64..1000, now in 0u64..1 << 60, cpu in 0.01..1.0f64,
        ) {
            let period_us = FINE.quota(cpu).period_us.min(MAX_TURNS_US);
            let turn = now + FINE.until_turn_ns(now, slot, period_us);
            prop_assert!(turn - now < period_us * 1000);
            prop_assert_eq!(FINE.until_turn_ns(turn, slot, period_us), 0);
            prop_assert_eq!(FINE.until_turn_ns(turn + 1, slot, period_us), period_us * 1000 - 1);
        }
    }

    #[test]
    fn quotas_do_not_refill_together() {
        for users in 2..20 {
            for period_us in [5000, 10_000, 20_000] {
                let mut turns: Vec<u64> = (0..users)
                    .map(|slot| FINE.until_turn_ns(0, slot, period_us))
                    .collect();
                turns.sort_unstable();
                let even = period_us * 1000 / users;
                let apart = turns.windows(2).map(|two| two[1] - two[0]);
                assert!(apart.min() > Some(even / 8), "{period_us}: {turns:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_longer_period_begins_where_a_shorter_one_ends_at_its_users_turn(
            slot in 0u64..100, now in 0u64..1 << 60, cpu in 0.06..0.5f64, less in 0.1..1.0f64,
        ) {
            let (old, new) = (FINE.quota(cpu), FINE.quota((cpu * less).max(0.06)));
            let written = now + FINE.until_longer_ns(now, slot, old, new);
            if new.period_us > old.period_us {
                // The kernel ends the running period first.
                let begins = written + FINE.until_turn_ns(written, slot, old.period_us);
                prop_assert_eq!(FINE.until_turn_ns(begins, slot, new.period_us), 0);
            } else {
                prop_assert_eq!(written, now);
            }
            prop_assert!(written - now < MAX_TURNS_US * 1000);
        }
    }

    #[test]
    fn a_running_period_is_not_reset_for_nothing() {
        let nothing = Overrun::default();
        assert!(!should_write(Some(0.5), Some(0.505), nothing));
        assert!(!should_write(None, None, nothing));
        assert!(should_write(Some(0.5), Some(0.4), nothing));
        assert!(should_write(None, Some(0.9), nothing));
        assert!(should_write(Some(0.9), None, nothing));
    }

    #[test]
    fn an_overrun_is_forgiven_only_for_a_change_that_pays() {
        let limit = FINE.quota(0.05);
        let mut overrun = Overrun::written(limit);
        // A tick of 4 ms on two processors, of which the write gave 1 ms.
        overrun.add(50.0, 0.16 + 0.05, 0.05);
        assert!((overrun.cpu_ms - 7.0).abs() < 1e-9, "{overrun:?}");
        assert!(!should_write(Some(0.05), Some(0.04), overrun));
        assert!(should_write(Some(0.05), Some(0.1), overrun));
        assert!(should_write(Some(0.05), None, overrun));
        // Throttled, it has paid after three passes.
        overrun.add(100.0, 0.0, 0.05);
        assert!(!should_write(Some(0.05), Some(0.045), overrun));
        overrun.add(50.0, 0.0, 0.05);
        assert!(should_write(Some(0.05), Some(0.045), overrun));
        assert_eq!(overrun.cpu_ms, 0.0);
    }

    #[test]
    fn a_limit_does_not_stay_for_ever_because_of_an_overrun_that_is_never_paid() {
        let limit = FINE.quota(0.125);
        let mut overrun = Overrun::written(limit);
        // The limit in force was higher than assumed; from then on exactly the limit is used.
        overrun.add(50.0, 0.4, limit.cpu());
        let mut passes = 0;
        while !should_write(Some(limit.cpu()), Some(0.1), overrun) {
            overrun.add(50.0, limit.cpu(), limit.cpu());
            passes += 1;
            assert!(passes <= 20, "{overrun:?}");
        }
        assert!(passes > 0);
    }
}
