//! Pointer chasing: each access depends on the one before, so time over accesses is the latency.

use std::time::Instant;

use super::memory::{LINE_BYTES, MemoryError, NodeMemory};
use crate::random::Random;

/// Reads between two clock readings.
const GROUP: usize = 4;

/// A cyclic walk through all lines of some memory of a node, in random order.
///
/// Each line is flushed from the caches after it was read, so the next round finds it in memory,
/// however large the caches are.
#[derive(Debug)]
pub struct Chase {
    memory: NodeMemory,
    at: usize,
    /// Time of a clock reading.
    clock_ns: f64,
}

impl Chase {
    /// Allocates this much memory on a node.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn new(node: u32, bytes: usize) -> Result<Self, MemoryError> {
        let memory = NodeMemory::on(node, bytes)?;
        let lines = memory.bytes() / LINE_BYTES;
        let mut order: Vec<u32> = (0..lines as u32).collect();
        // A single cycle through all lines (Sattolo, 1986).
        let mut random = Random::new(0xd0_2a05e);
        for last in (1..lines).rev() {
            order.swap(last, random.below(last));
        }
        let chase = Self {
            memory,
            at: 0,
            clock_ns: clock_ns(),
        };
        for (line, &next) in order.iter().enumerate() {
            // SAFETY: it is a line of the memory.
            unsafe { chase.line(line).write(u64::from(next)) };
        }
        for line in 0..lines {
            flush(chase.line(line));
        }
        Ok(chase)
    }

    /// The number of lines.
    pub fn lines(&self) -> usize {
        self.memory.bytes() / LINE_BYTES
    }

    fn line(&self, line: usize) -> *mut u64 {
        debug_assert!(line < self.lines());
        // SAFETY: `line` is one of the memory's lines.
        unsafe { self.memory.start().add(line * LINE_BYTES).cast() }
    }

    /// Makes about `reads` accesses and returns their latency in nanoseconds: the median of groups
    /// of four, so that interrupts do not count.
    pub fn median_ns(&mut self, reads: usize) -> f64 {
        let mut groups: Vec<f64> = (0..reads.div_ceil(GROUP).max(1))
            .map(|_| self.group_ns())
            .collect();
        groups.sort_unstable_by(f64::total_cmp);
        groups[groups.len() / 2]
    }

    fn group_ns(&mut self) -> f64 {
        let mut read = [0; GROUP];
        let began = Instant::now();
        for line in &mut read {
            *line = self.at;
            // SAFETY: it is a line of the memory, and contains the number of a line.
            self.at = unsafe { self.line(self.at).read_volatile() } as usize;
        }
        let took = began.elapsed();
        for line in read {
            flush(self.line(line));
        }
        (took.as_nanos() as f64 - self.clock_ns).max(0.0) / GROUP as f64
    }
}

/// The shortest time between two clock readings, in nanoseconds.
fn clock_ns() -> f64 {
    let look = |_| {
        let began = Instant::now();
        began.elapsed().as_nanos()
    };
    (0..100).map(look).min().unwrap_or(0) as f64
}

/// Flushes a line from all caches.
pub(super) fn flush(line: *mut u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address is mapped; the content does not change.
    unsafe {
        core::arch::x86_64::_mm_clflush(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; Linux allows the instruction in user space.
    unsafe {
        core::arch::asm!("dc civac, {}", in(reg) line);
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("how is a cache line flushed here?");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_visits_every_line_once_in_each_round() {
        let mut chase = Chase::new(0, 2 << 20).unwrap();
        let mut seen = vec![false; chase.lines()];
        for _ in 0..chase.lines() {
            assert!(!std::mem::replace(&mut seen[chase.at], true));
            // SAFETY: as in a group.
            chase.at = unsafe { chase.line(chase.at).read() } as usize;
        }
        assert_eq!(chase.at, 0);
    }

    #[test]
    fn an_access_takes_some_time() {
        let mut chase = Chase::new(0, 2 << 20).unwrap();
        let ns = chase.median_ns(1000);
        assert!(ns > 0.0 && ns.is_finite());
    }
}
