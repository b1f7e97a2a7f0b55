//! How long to wait for a machine.

use std::time::{Duration, Instant};

/// A machine that goes on saying something may take so many times its limit in all. A kernel that
/// hangs reports that for ever.
const MAX_RENEWALS: u32 = 5;

/// A time limit for something that a machine is to do.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// After the machine's last output, or after the beginning.
    silence: Duration,
    /// After the beginning.
    total: Duration,
}

impl Limit {
    /// For what takes long on a busy host: the time counts anew with each thing that the machine
    /// says, five times the limit at most.
    pub fn of_silence(silence: Duration) -> Limit {
        let total = silence.saturating_mul(MAX_RENEWALS);
        Limit { silence, total }
    }

    /// As before, but not longer than `total` after the beginning.
    #[must_use]
    pub fn no_later(self, total: Duration) -> Limit {
        let total = self.total.min(total);
        Limit { total, ..self }
    }

    /// What is left now.
    pub(super) fn left(&self, begun: Instant, last_sign: Instant) -> Duration {
        let end = (begun + self.total).min(last_sign + self.silence);
        end.saturating_duration_since(Instant::now())
    }
}

/// From the beginning, whatever the machine says.
impl From<Duration> for Limit {
    fn from(total: Duration) -> Limit {
        Limit {
            silence: total,
            total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    /// The clock goes on between the lines of a test.
    fn about(left: Duration, seconds: u32) -> bool {
        left <= S * seconds && left + S > S * seconds
    }

    #[test]
    fn a_fixed_limit_does_not_care_for_what_the_machine_says() {
        let now = Instant::now();
        let limit = Limit::from(240 * S);
        assert!(about(limit.left(now - 200 * S, now), 40));
        assert_eq!(limit.left(now - 240 * S, now), Duration::ZERO);
    }

    #[test]
    fn a_limit_of_silence_counts_anew_but_not_for_ever() {
        let now = Instant::now();
        let limit = Limit::of_silence(240 * S);
        assert!(about(limit.left(now - 300 * S, now), 240));
        assert_eq!(limit.left(now - 300 * S, now - 241 * S), Duration::ZERO);
        assert!(about(limit.left(now - 1190 * S, now), 10));
        assert_eq!(limit.left(now - 1200 * S, now), Duration::ZERO);
    }

    #[test]
    fn the_instant_of_a_cut_is_never_put_off() {
        let now = Instant::now();
        let limit = Limit::of_silence(240 * S).no_later(7 * S);
        assert!(about(limit.left(now - 2 * S, now), 5));
        assert_eq!(limit.left(now - 7 * S, now), Duration::ZERO);
    }
}
