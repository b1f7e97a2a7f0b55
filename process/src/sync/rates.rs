//! How fast pages go to the store, learnt from the copies that were made. Pure.

use std::time::Duration;

use crate::store::PAGE_BYTES;

/// Assumed until a copy has been measured: 1 GiB/s.
const FIRST_GUESS: f64 = (1u64 << 30) as f64;
/// A copy smaller than this measures system calls rather than bandwidth.
const MEASURED_BYTES: u64 = 1 << 20;
/// What a measurement counts in the average.
const WEIGHT: f64 = 0.3;

/// Bytes a second, each an exponentially weighted mean.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Of copies beside the running program.
    beside: f64,
    /// Of copies from a stopped program, which have all processors; none: none was made.
    standing: Option<f64>,
    /// Of comparing pages with the store.
    compared: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            beside: FIRST_GUESS,
            standing: None,
            compared: FIRST_GUESS,
        }
    }
}

fn mean(before: f64, bytes: u64, time: Duration) -> f64 {
    if bytes < MEASURED_BYTES {
        return before;
    }
    let measured = bytes as f64 / time.as_secs_f64().max(1e-6);
    before.mul_add(1.0 - WEIGHT, measured * WEIGHT)
}

impl Rates {
    /// So many pages were copied in this time.
    pub fn copied(&mut self, pages: u64, time: Duration, standing: bool) {
        let bytes = pages * PAGE_BYTES;
        if !standing {
            self.beside = mean(self.beside, bytes, time);
        } else if bytes >= MEASURED_BYTES {
            self.standing = Some(mean(self.standing(), bytes, time));
        }
    }

    /// So many pages were compared in this time.
    pub fn compared(&mut self, pages: u64, time: Duration) {
        self.compared = mean(self.compared, pages * PAGE_BYTES, time);
    }

    /// Of copies beside the running program.
    pub fn beside(&self) -> f64 {
        self.beside
    }

    /// Of copies from a stopped program.
    pub fn standing(&self) -> f64 {
        self.standing.unwrap_or(self.beside)
    }

    /// How long it takes to copy and to compare these pages of a stopped program.
    pub fn time(&self, dirty_pages: u64, suspect_pages: u64) -> Duration {
        let storing = (dirty_pages * PAGE_BYTES) as f64 / self.standing();
        let comparing = (suspect_pages * PAGE_BYTES) as f64 / self.compared;
        Duration::try_from_secs_f64(storing + comparing).unwrap_or(Duration::MAX)
    }
}

/// Pages that can be copied in this time, at so many bytes a second; at least one.
pub fn pages_in(bytes_per_second: f64, time: Duration) -> u64 {
    let pages = bytes_per_second * time.as_secs_f64() / PAGE_BYTES as f64;
    (pages as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GIB: u64 = (1 << 30) / PAGE_BYTES;

    #[test]
    fn a_stopped_program_is_copied_as_fast_as_a_running_one_until_that_was_measured() {
        let mut rates = Rates::default();
        for _ in 0..100 {
            rates.copied(2 * GIB, SECOND, false);
        }
        assert!((rates.standing() / 2f64.powi(31) - 1.0).abs() < 1e-6);
        for _ in 0..100 {
            rates.copied(4 * GIB, SECOND, true);
        }
        assert!((rates.standing() / 2f64.powi(32) - 1.0).abs() < 1e-6);
        assert!((rates.beside() / 2f64.powi(31) - 1.0).abs() < 1e-6);
        let time = rates.time(GIB, 0).as_secs_f64();
        assert!((time - 0.25).abs() < 1e-6, "{time}");
        assert!(pages_in(rates.standing(), SECOND / 4).abs_diff(GIB) <= 1);
    }

    #[test]
    fn a_few_pages_measure_no_bandwidth() {
        let mut rates = Rates::default();
        rates.copied(255, SECOND, false);
        rates.copied(255, SECOND, true);
        rates.compared(255, SECOND);
        assert_eq!(rates.time(GIB, GIB), 2 * SECOND);
        assert_eq!(pages_in(1e9, Duration::ZERO), 1);
        assert_eq!(pages_in(1e9, Duration::MAX), u64::MAX);
    }
}
