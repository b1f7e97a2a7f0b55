//! Threads that count: each remembers its counter and notices a jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dormouse_guest::protocol::CounterVerdict;

/// Counting is a sign of life, not a load.
const PAUSE: Duration = Duration::from_millis(5);
/// Long enough for every thread to count even on a busy emulated machine.
const WAIT_STEPS: u32 = 100;
const WAIT_STEP: Duration = Duration::from_millis(50);

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    count: AtomicU64,
    lost: AtomicU64,
}

/// Running counters; their threads end with the process.
pub struct Counters {
    slots: Vec<Arc<Slot>>,
    /// What a check saw last: a counter behind it went backwards.
    seen: Vec<u64>,
}

impl Counters {
    pub fn start(threads: usize) -> Counters {
        let slots: Vec<Arc<Slot>> = (0..threads).map(|_| Arc::default()).collect();
        for slot in &slots {
            let slot = Arc::clone(slot);
            thread::spawn(move || count(&slot));
        }
        Counters {
            seen: vec![0; slots.len()],
            slots,
        }
    }

    pub fn counts(&self) -> Vec<u64> {
        self.slots
            .iter()
            .map(|slot| slot.count.load(Ordering::Relaxed))
            .collect()
    }

    /// Looks at all counters, waits until all went on, and looks again.
    pub fn verify(&mut self) -> CounterVerdict {
        let before = self.counts();
        let backwards = before
            .iter()
            .zip(&self.seen)
            .filter(|(count, seen)| count < seen)
            .count() as u64;
        let mut running = false;
        for _ in 0..WAIT_STEPS {
            thread::sleep(WAIT_STEP);
            running = self
                .counts()
                .iter()
                .zip(&before)
                .all(|(now, before)| now > before);
            if running {
                break;
            }
        }
        self.seen = self.counts();
        let lost: u64 = self
            .slots
            .iter()
            .map(|slot| slot.lost.load(Ordering::Relaxed))
            .sum();
        CounterVerdict {
            counts: self.seen.clone(),
            lost: lost + backwards,
            running,
        }
    }
}

fn count(slot: &Slot) {
    let mut expected = 0;
    loop {
        let found = slot.count.load(Ordering::Relaxed);
        if found != expected {
            slot.lost.fetch_add(1, Ordering::Relaxed);
        }
        expected = found + 1;
        slot.count.store(expected, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_on_and_lose_nothing() {
        let mut counters = Counters::start(3);
        let verdict = counters.verify();
        assert!(verdict.running);
        assert_eq!(verdict.lost, 0);
        assert_eq!(verdict.counts.len(), 3);
    }

    #[test]
    fn a_counter_set_back_is_noticed() {
        let mut counters = Counters::start(2);
        thread::sleep(Duration::from_millis(100));
        counters.verify();
        counters.slots[1].count.store(0, Ordering::Relaxed);
        assert!(counters.verify().lost > 0);
    }
}
