//! The clocks of the policy: CLOCK_MONOTONIC for events, which stands still in S3, and the time
//! stamp counter, which the firmware's and the kernel's phases count in and which starts at zero
//! with each power-on.

use dormouse_report::{Clock, Event, Kind};
use rustix::time::{ClockId, clock_gettime};

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since boot without the time asleep.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Nanoseconds since boot with the time asleep (as exact as the real-time clock, a second).
pub fn boottime_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// An event of this crate, now, on the guest's clock.
pub fn event(phase: &str, name: &str, kind: Kind) -> Event {
    Event::new(monotonic_ns(), Clock::Guest, phase, name, kind)
}

/// Seconds between two readings of [`monotonic_ns`].
pub fn seconds(begin_ns: u64, end_ns: u64) -> f64 {
    end_ns.saturating_sub(begin_ns) as f64 / 1e9
}

/// One reading of the counter beside the raw clock.
#[derive(Debug, Clone, Copy)]
struct Sample {
    ticks: u64,
    raw_ns: u64,
}

/// Converts the time stamp counter to nanoseconds since this power cycle's reset. Measures the
/// frequency itself, between its creation and [`ResetClock::calibrate`]: no kernel interface shows
/// it to user space.
#[derive(Debug, Clone, Copy)]
pub struct ResetClock {
    first: Option<Sample>,
    ns_per_tick: Option<f64>,
}

/// Shorter than this, the reading error is above a thousandth.
const SHORTEST_CALIBRATION_NS: u64 = 5_000_000;

impl ResetClock {
    pub fn start() -> ResetClock {
        ResetClock {
            first: sample(),
            ns_per_tick: None,
        }
    }

    /// Ends the measurement (call before sleeping: the counter does not survive the power cycle).
    pub fn calibrate(&mut self) {
        let (Some(first), Some(now)) = (self.first, sample()) else {
            return;
        };
        self.ns_per_tick = ns_per_tick(first, now);
    }

    /// Nanoseconds since reset, if known.
    pub fn now_ns(&self) -> Option<u64> {
        Some((sample()?.ticks as f64 * self.ns_per_tick?) as u64)
    }
}

fn ns_per_tick(first: Sample, last: Sample) -> Option<f64> {
    let ticks = last.ticks.checked_sub(first.ticks)?;
    let ns = last.raw_ns.checked_sub(first.raw_ns)?;
    (ns >= SHORTEST_CALIBRATION_NS && ticks > 0).then(|| ns as f64 / ticks as f64)
}

/// How often a sample is read; the best is taken.
const SAMPLE_READINGS: usize = 32;

/// The reading with the least time between the counter's two values. Whoever is interrupted between
/// counter and clock (by the scheduler, by firmware, by the host of a virtual machine) reads two
/// that do not belong together, and a few milliseconds here are a second after a minute.
fn tightest(readings: impl IntoIterator<Item = (u64, u64, u64)>) -> Option<Sample> {
    readings
        .into_iter()
        .filter(|(before, _, after)| after >= before)
        .min_by_key(|(before, _, after)| after - before)
        .map(|(before, raw_ns, after)| Sample {
            ticks: before + (after - before) / 2,
            raw_ns,
        })
}

#[cfg(target_arch = "x86_64")]
fn sample() -> Option<Sample> {
    // SAFETY: reading the counter has no effect; Linux lets user space do it unless a process
    // asked for the contrary with PR_SET_TSC.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    tightest((0..SAMPLE_READINGS).map(|_| (ticks(), read_ns(ClockId::MonotonicRaw), ticks())))
}

#[cfg(not(target_arch = "x86_64"))]
fn sample() -> Option<Sample> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frequency_follows_from_two_samples() {
        let first = Sample {
            ticks: 1000,
            raw_ns: 500,
        };
        let last = Sample {
            ticks: 1000 + 30_000_000,
            raw_ns: 500 + 10_000_000,
        };
        assert!((ns_per_tick(first, last).unwrap() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_reading_that_was_interrupted_is_not_taken() {
        let interrupted = (1_000, 500, 90_000_000);
        let backward = (5_000, 500, 4_000);
        let good = (2_000, 700, 2_100);
        let sample = tightest([interrupted, backward, good, interrupted]).unwrap();
        assert_eq!((sample.ticks, sample.raw_ns), (2_050, 700));
        assert!(tightest([backward]).is_none());
    }

    #[test]
    fn too_short_or_backward_measurements_give_nothing() {
        let first = Sample {
            ticks: 1000,
            raw_ns: 500,
        };
        assert!(
            ns_per_tick(
                first,
                Sample {
                    ticks: 2000,
                    raw_ns: 600
                }
            )
            .is_none()
        );
        assert!(
            ns_per_tick(
                first,
                Sample {
                    ticks: 10,
                    raw_ns: 90_000_000
                }
            )
            .is_none()
        );
    }
}
