//! A token bucket: how long to wait so that moved bytes stay below a rate.

use std::time::Duration;

/// Tokens are bytes. Time is given by the caller, so that the bucket is a pure function of it.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    bytes_per_s: u64,
    burst_bytes: u64,
    /// May be negative: what was taken ahead of time is waited for.
    tokens: f64,
    last_ns: u64,
}

impl TokenBucket {
    /// A full bucket. `burst_bytes` may pass at once after a pause.
    pub fn new(bytes_per_s: u64, burst_bytes: u64, now_ns: u64) -> TokenBucket {
        let bytes_per_s = bytes_per_s.max(1);
        TokenBucket {
            bytes_per_s,
            burst_bytes,
            tokens: burst_bytes as f64,
            last_ns: now_ns,
        }
    }

    /// Takes `bytes` now and returns how long to wait before they may be moved.
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> Duration {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let earned = elapsed_ns as f64 / 1e9 * self.bytes_per_s as f64;
        self.tokens = (self.tokens + earned).min(self.burst_bytes as f64) - bytes as f64;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.bytes_per_s as f64)
        }
    }
}

/// The piece to move at once: small enough that a slow rate is smooth (a tenth of a second's
/// worth), never below 64 pages, never above `largest_bytes`.
pub fn piece_bytes(bytes_per_s: Option<u64>, largest_bytes: u64) -> u64 {
    match bytes_per_s {
        Some(rate) => (rate / 10).clamp(64 * 4096, largest_bytes.max(64 * 4096)),
        None => largest_bytes,
    }
}

const MIN_BATCH_BYTES: u64 = 32 << 20;
const MAX_BATCH_BYTES: u64 = 128 << 20;

/// For one call without a rate. Each move_pages(2) makes all processors empty their lists of pages,
/// one call at a time in the whole system: larger calls where there is much to move, as long as
/// each worker gets many.
pub fn batch_bytes(total_bytes: u64, jobs: usize) -> u64 {
    let many = total_bytes / (jobs.max(1) as u64 * 16);
    many.clamp(MIN_BATCH_BYTES, MAX_BATCH_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_passes_and_what_follows_waits() {
        let mut bucket = TokenBucket::new(1000, 500, 0);
        assert_eq!(bucket.take(500, 0), Duration::ZERO);
        assert_eq!(bucket.take(1000, 0), Duration::from_secs(1));
    }

    #[test]
    fn a_long_pause_earns_no_more_than_the_burst() {
        let mut bucket = TokenBucket::new(1000, 500, 0);
        assert_eq!(bucket.take(1500, 3_600_000_000_000), Duration::from_secs(1));
    }

    #[test]
    fn pieces_follow_the_rate_within_their_bounds() {
        assert_eq!(piece_bytes(None, 8 << 20), 8 << 20);
        assert_eq!(piece_bytes(Some(1), 8 << 20), 64 * 4096);
        assert_eq!(piece_bytes(Some(10 << 20), 8 << 20), 1 << 20);
        assert_eq!(piece_bytes(Some(u64::MAX), 8 << 20), 8 << 20);
    }

    #[test]
    fn calls_are_large_where_each_worker_gets_many_all_the_same() {
        assert_eq!(batch_bytes(768 << 20, 2), 32 << 20);
        assert_eq!(batch_bytes(0, 0), 32 << 20);
        assert_eq!(batch_bytes(2 << 30, 2), 64 << 20);
        assert_eq!(batch_bytes(512 << 30, 128), 128 << 20);
    }

    proptest! {
        #[test]
        fn over_any_time_at_most_burst_plus_rate_passes(
            rate in 1u64..1 << 40,
            burst in 0u64..1 << 30,
            takes in prop::collection::vec((0u64..1 << 24, 0u64..1 << 30), 1..60),
        ) {
            let mut bucket = TokenBucket::new(rate, burst, 0);
            let (mut now_ns, mut taken) = (0u64, 0u64);
            for (bytes, pause_ns) in takes {
                now_ns += pause_ns;
                // The caller sleeps as long as it was asked to, rounded up to whole nanoseconds.
                now_ns += bucket.take(bytes, now_ns).as_nanos() as u64 + 1;
                taken += bytes;
                let allowed = burst as f64 + rate as f64 * now_ns as f64 / 1e9;
                prop_assert!(taken as f64 <= allowed * (1.0 + 1e-9) + 1.0);
            }
        }
    }
}
