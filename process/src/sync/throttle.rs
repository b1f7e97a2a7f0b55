//! How long a program may be stopped so that no more than its budget is dirty. Pure.
//!
//! Time to stop it is earned as time passes, a share of it, and spent by stops. What is saved up is bounded,
//! so that no stop is long.

use std::str::FromStr;
use std::time::Duration;

/// Time in which the longest stop is earned, and longest time that a round of a program that may be stopped copies beside
/// it: then it has earned another stop.
pub const SAVED: Duration = Duration::from_millis(250);
/// A stop shorter than this is more work than it is worth: stopping takes a part of it.
const STOP_MIN: Duration = Duration::from_millis(2);

/// Part of its time that a program may be stopped, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Never.
    pub const NONE: Self = Self(0.0);

    /// From per cent; none: out of bounds.
    pub fn from_percent(percent: f64) -> Option<Self> {
        (0.0..=100.0)
            .contains(&percent)
            .then_some(Self(percent / 100.0))
    }

    /// In per cent.
    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }

    /// This part of a time.
    pub fn of(self, time: Duration) -> Duration {
        time.mul_f64(self.0)
    }
}

impl FromStr for Share {
    type Err = String;

    /// `25` or `25%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').unwrap_or(text);
        number
            .parse()
            .ok()
            .and_then(Self::from_percent)
            .ok_or_else(|| {
                format!("`{text}` is not a share of the time: write 0 to 100, in per cent")
            })
    }
}

/// What a program has earned and spent.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    share: Share,
    saved: Duration,
    stood: Duration,
    /// What was counted last, since the start.
    counted: Duration,
}

impl Throttle {
    /// Nothing is earned yet.
    pub fn new(share: Share) -> Self {
        Self {
            share,
            saved: Duration::ZERO,
            stood: Duration::ZERO,
            counted: Duration::ZERO,
        }
    }

    /// How long the program may be stopped now, if that is worth it; `now` is since the start.
    pub fn allowance(&mut self, now: Duration) -> Option<Duration> {
        let passed = now.saturating_sub(self.counted);
        self.counted = now;
        self.saved = (self.saved + self.share.of(passed)).min(self.share.of(SAVED));
        (self.saved >= STOP_MIN).then_some(self.saved)
    }

    /// It was stopped for so long.
    pub fn stopped(&mut self, time: Duration) {
        self.saved = self.saved.saturating_sub(time);
        self.stood += time;
    }

    /// Time that it was stopped in all.
    pub fn stood(&self) -> Duration {
        self.stood
    }
}

/// Whether a round that copies beside the running program has more dirty than the budget at some time: `written`
/// bytes were found after `elapsed`, and `dirty` of them are to be copied, at so many bytes a second.
pub fn exceeds(budget: u64, dirty: u64, written: u64, elapsed: Duration, bandwidth: f64) -> bool {
    let pace = written as f64 / elapsed.as_secs_f64().max(1e-3);
    let meanwhile = pace * dirty as f64 / bandwidth.max(1.0);
    meanwhile.max(dirty as f64) > budget as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_share_is_from_0_to_100_percent() {
        assert_eq!(Share::from_percent(0.0), Some(Share::NONE));
        assert_eq!(Share::from_percent(25.0).unwrap().of(100 * MS), 25 * MS);
        for wrong in [-1.0, 100.5, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::from_percent(wrong), None);
        }
        assert_eq!("25".parse(), Ok(Share(0.25)));
        assert_eq!("12.5%".parse(), Ok(Share(0.125)));
        for wrong in ["", "%", "-1", "101", "25 %", "a quarter"] {
            let said = wrong.parse::<Share>().unwrap_err();
            assert!(said.contains("0 to 100"), "{said}");
        }
    }

    #[test]
    fn a_program_is_stopped_for_its_share_of_the_time_and_never_for_long() {
        let mut throttle = Throttle::new(Share::from_percent(25.0).unwrap());
        assert_eq!(throttle.allowance(Duration::ZERO), None);
        let mut now = Duration::ZERO;
        for _ in 0..10_000 {
            now += 10 * MS;
            if let Some(allowed) = throttle.allowance(now) {
                assert!(allowed <= SAVED / 4);
                throttle.stopped(allowed);
                now += allowed;
            }
        }
        let share = throttle.stood().as_secs_f64() / now.as_secs_f64();
        assert!((0.245..=0.25).contains(&share), "{share}");
        assert_eq!(throttle.allowance(now * 2), Some(SAVED / 4));
    }

    #[test]
    fn at_100_percent_it_is_stopped_for_as_long_as_it_takes() {
        let mut throttle = Throttle::new(Share::from_percent(100.0).unwrap());
        let mut now = 300 * MS;
        for _ in 0..10 {
            assert_eq!(throttle.allowance(now), Some(SAVED));
            throttle.stopped(SAVED);
            now += SAVED;
        }
        assert_eq!(throttle.stood(), 10 * SAVED);
    }

    #[test]
    fn without_a_share_it_is_never_stopped() {
        let mut throttle = Throttle::new(Share::NONE);
        assert_eq!(throttle.allowance(3600 * 1000 * MS), None);
    }

    #[test]
    fn a_budget_is_exceeded_by_what_is_dirty_and_by_what_is_written_meanwhile() {
        let slow = (256 * MIB) as f64;
        // 64 MiB/s beside a copy of 30 MiB at 256 MiB/s: at most 30 MiB.
        assert!(!exceeds(64 * MIB, 30 * MIB, 32 * MIB, 500 * MS, slow));
        // 1 GiB/s: 120 MiB when they are copied.
        assert!(exceeds(64 * MIB, 30 * MIB, 32 * MIB, 31 * MS, slow));
        assert!(exceeds(64 * MIB, 65 * MIB, 0, MS, slow));
        assert!(!exceeds(64 * MIB, 0, 0, Duration::ZERO, 0.0));
    }
}
