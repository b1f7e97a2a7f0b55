//! When the background sync runs next, so that what is dirty stays under its budget. Pure.
//!
//! A round takes some time and finds what was written since the one before. The next one starts when,
//! at the same pace, half of the budget will have been used: the other half is for what is written
//! while it runs, and for a program that speeds up.

use std::time::Duration;

/// Rounds closer together than this would be all that the processor does.
const SHORTEST: Duration = Duration::from_millis(5);

/// How much may be dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Budget {
    /// Unbounded: only epochs sync.
    Unbounded,
    /// Bytes.
    Bytes(u64),
    /// What the store takes in this time, by its measured bandwidth.
    Deadline(Duration),
}

/// A persist's cost without pages, taken off a deadline.
pub const FIXED_COST: Duration = Duration::from_millis(4);

impl Budget {
    /// The budget in bytes, if it has a bound.
    pub fn bytes(self, bytes_per_second: f64) -> Option<u64> {
        match self {
            Self::Unbounded => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Deadline(deadline) => {
                let copying = deadline.saturating_sub(FIXED_COST);
                Some((copying.as_secs_f64() * bytes_per_second) as u64)
            }
        }
    }
}

/// The time that an epoch may stop the program to copy, this long after the last one: `pause` for each interval. So the
/// program stands still for no larger part of its time than `pause` of each interval, and no program, however fast it
/// writes, is without an epoch for ever.
pub fn pause_after(since_last: Duration, interval: Duration, pause: Duration) -> Duration {
    let intervals = since_last.as_secs_f64() / interval.as_secs_f64().max(1e-3);
    Duration::try_from_secs_f64(pause.as_secs_f64() * intervals.max(1.0)).unwrap_or(Duration::MAX)
}

/// Time from one round to the next: `written` bytes were found dirty after `elapsed`.
pub fn next_round(
    budget: Option<u64>,
    written: u64,
    elapsed: Duration,
    epoch_interval: Duration,
) -> Duration {
    let Some(budget) = budget else {
        return epoch_interval;
    };
    if written == 0 {
        // Nothing happened: careful, but not busy.
        return (elapsed * 2).clamp(SHORTEST, epoch_interval.max(SHORTEST));
    }
    let pace = written as f64 / elapsed.as_secs_f64().max(1e-6);
    let seconds = budget as f64 / 2.0 / pace;
    let wanted = Duration::from_secs_f64(seconds.min(epoch_interval.as_secs_f64()));
    // A program that was quiet may wake up: never more than doubled.
    wanted
        .min(elapsed * 2)
        .clamp(SHORTEST, epoch_interval.max(SHORTEST))
}

/// Bytes that should be free in the store, so that a persist never waits for blocks: what is not
/// there yet, or what was written anew at most of late, and a part for a program that changes its habits.
pub fn room(private: u64, stored: u64, max_rewritten: u64) -> u64 {
    const HEADROOM: u64 = 32 << 20;
    private.saturating_sub(stored).max(max_rewritten) + private / 8 + HEADROOM
}

/// Whether another round before an epoch is worth it: `left` is the time to copy what is dirty after `rounds` rounds,
/// `before` the same one round earlier. A program that writes more slowly than the store takes it has less dirty
/// after each; others get a few rounds.
pub fn converges(rounds: u32, before: Duration, left: Duration) -> bool {
    const ROUNDS: u32 = 4;
    rounds < ROUNDS || left < before.mul_f64(0.75)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_epoch_that_needs_any_number_of_pauses_may_have_them_after_as_many_intervals() {
        let (interval, pause) = (Duration::from_secs(10), Duration::from_millis(20));
        let after = |seconds| pause_after(Duration::from_secs(seconds), interval, pause);
        assert_eq!(after(0), pause);
        assert_eq!(after(10), pause);
        assert_eq!(after(1500), Duration::from_secs(3));
        assert_eq!(
            pause_after(interval, interval, Duration::MAX),
            Duration::MAX
        );
        assert!(pause_after(interval, Duration::ZERO, pause) > pause);
    }

    #[test]
    fn without_a_budget_sync_comes_with_the_epoch() {
        assert_eq!(Budget::Unbounded.bytes(1e9), None);
        assert_eq!(next_round(None, 1 << 30, MS, 1000 * MS), 1000 * MS);
    }

    #[test]
    fn a_deadline_is_what_the_store_takes_in_it() {
        let budget = Budget::Deadline(16 * MS).bytes(4e9).unwrap();
        assert_eq!(budget, 48_000_000);
        assert_eq!(Budget::Deadline(MS).bytes(4e9), Some(0));
    }

    #[test]
    fn the_next_round_comes_before_the_budget_is_used_up() {
        let budget = Some(64 << 20);
        // 1 GiB/s: half of 64 MiB in about 31 ms.
        let next = next_round(budget, 100 << 20, 100 * MS, 1000 * MS);
        assert!(next > 30 * MS && next < 33 * MS, "{next:?}");
        // So fast that no interval helps: the shortest.
        assert_eq!(next_round(budget, 10 << 30, 10 * MS, 1000 * MS), SHORTEST);
        // Quiet: doubled, up to the epoch's interval.
        assert_eq!(next_round(budget, 0, 100 * MS, 1000 * MS), 200 * MS);
        assert_eq!(next_round(budget, 0, 900 * MS, 1000 * MS), 1000 * MS);
        assert_eq!(next_round(budget, 1, 10 * MS, 1000 * MS), 20 * MS);
    }

    #[test]
    fn there_is_room_for_all_that_the_store_does_not_have() {
        const GIB: u64 = 1 << 30;
        assert!(room(8 * GIB, 0, 0) >= 8 * GIB);
        assert!(room(8 * GIB, 8 * GIB, 3 * GIB) >= 3 * GIB);
        assert!(room(8 * GIB, 8 * GIB, 0) <= 2 * GIB);
    }

    #[test]
    fn rounds_go_on_as_long_as_each_leaves_less_and_end_for_every_program() {
        assert!(converges(1, MS, MS) && converges(3, MS, 2 * MS));
        assert!(!converges(4, 100 * MS, 80 * MS));
        // 4 s of copying, a quarter as much dirty after each round.
        let (mut left, mut rounds) = (4000 * MS, 1);
        while left > 10 * MS && converges(rounds, left * 4, left) {
            left /= 4;
            rounds += 1;
        }
        assert!(left <= 10 * MS && rounds == 6, "{left:?} {rounds}");
    }

    proptest::proptest! {
        #[test]
        fn an_interval_is_never_absurd(
            budget in proptest::option::of(0u64..1 << 40),
            written in 0u64..1 << 40,
            elapsed_us in 0u64..100_000_000,
            interval_ms in 1u64..100_000,
        ) {
            let interval = Duration::from_millis(interval_ms);
            let elapsed = Duration::from_micros(elapsed_us);
            let next = next_round(budget, written, elapsed, interval);
            proptest::prop_assert!(next >= SHORTEST.min(interval) && next <= interval.max(SHORTEST));
        }
    }
}
