//! Measures the overhead of waking and switching threads on this machine, with own threads.
//!
//! A kernel worker is woken as a user thread is: the same scheduler, the same interrupt to another
//! CPU. Measured from user space, a wake-up contains the system calls around it; that is well
//! below what the wake-up itself takes. Queueing a work item cannot be measured from here and keeps
//! its default.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::model::Overheads;

/// How often each is measured.
const ROUNDS: usize = 100;

/// Measures; takes about a tenth of a second.
pub fn measure() -> Overheads {
    let (wake_ns, until_runs_ns) = wake_and_latency();
    let defaults = Overheads::default();
    // The switch cannot be separated from the latency here; it is a small part of it.
    let switch_ns = defaults.switch_ns.min(until_runs_ns / 2);
    Overheads {
        wake_ns,
        latency_ns: until_runs_ns - switch_ns,
        switch_ns,
        ..defaults
    }
}

/// Of a wake-up: the waker's own time; from there until the woken thread runs.
fn wake_and_latency() -> (u64, u64) {
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    let ran_at = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&ran_at);
    let sleeper = thread::spawn(move || {
        for _ in 0..ROUNDS {
            // 0: asked to sleep; anything else: when it ran.
            while theirs.load(Ordering::SeqCst) != 1 {
                thread::park();
            }
            theirs.store(now().max(2), Ordering::SeqCst);
        }
    });
    let (mut wakes, mut latencies) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // Long enough for the other to sleep, and for its CPU to idle.
        thread::sleep(Duration::from_micros(500));
        let before_ns = now();
        ran_at.store(1, Ordering::SeqCst);
        sleeper.thread().unpark();
        let after_ns = now();
        let ran_ns = loop {
            match ran_at.load(Ordering::SeqCst) {
                1 => thread::yield_now(),
                ran_ns => break ran_ns,
            }
        };
        wakes.push(after_ns - before_ns);
        latencies.push(ran_ns.saturating_sub(after_ns));
    }
    // It has nothing to fail at.
    let _ = sleeper.join();
    (low(wakes), low(latencies))
}

/// The tenth percentile: while devices are suspended nothing else runs, so what other programs add
/// to a wake-up now does not count.
fn low(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 10]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_something_and_not_seconds() {
        let overheads = measure();
        assert!(overheads.wake_ns > 0);
        assert!(overheads.wake_ns < 1_000_000_000);
        assert!(overheads.latency_ns < 1_000_000_000);
    }
}
