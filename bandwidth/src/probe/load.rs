//! Load on a node: threads that read and write its memory line by line, at full speed or at a
//! rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::memory::{LINE_BYTES, MemoryError, NodeMemory};

/// Bytes between two clock readings.
const CHUNK: usize = 16 << 10;
/// The number of lines of which `writes` are written.
pub const ROUND: usize = 16;
/// At full speed.
const UNBOUNDED: u64 = u64::MAX;

/// State shared with the threads.
#[derive(Debug)]
struct Shared {
    /// In bytes a second, for each thread.
    rate: AtomicU64,
    moved: AtomicU64,
    ends: AtomicBool,
}

/// Threads that load a node; they end with this value.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts a thread on each of `cpus` with this many bytes of the node each; `writes` of
    /// sixteen lines are written. The threads are idle at first.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn start(
        node: u32,
        cpus: &[usize],
        bytes: usize,
        writes: usize,
    ) -> Result<Self, MemoryError> {
        let shared = Arc::new(Shared {
            rate: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        // If one cannot be started, the others end with this value.
        let mut load = Self {
            shared,
            threads: Vec::new(),
        };
        for &cpu in cpus {
            let memory = NodeMemory::on(node, bytes)?;
            let shared = Arc::clone(&load.shared);
            load.threads.push(std::thread::spawn(move || {
                pin(cpu);
                work(&shared, &memory, writes);
            }));
        }
        Ok(load)
    }

    /// Sets the total rate of all threads in bytes a second; `None`: full speed.
    pub fn set_rate(&self, bytes_s: Option<f64>) {
        let each = bytes_s.map(|all| (all / self.threads.len().max(1) as f64) as u64);
        let each = each.unwrap_or(UNBOUNDED);
        self.shared.rate.store(each, Ordering::Relaxed);
    }

    /// Bytes moved by all threads so far; a written line counts twice, because it is read, too.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Pins the calling thread to a processor. If the kernel refuses, it runs anywhere.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("processor {cpu}: {error}");
    }
}

/// Bytes moved by a chunk; a written line counts twice.
fn chunk_bytes(writes: usize) -> usize {
    CHUNK + CHUNK / ROUND * writes.min(ROUND)
}

fn work(shared: &Shared, memory: &NodeMemory, writes: usize) {
    let moved = chunk_bytes(writes);
    let mut at = 0;
    let mut due = Instant::now();
    while !shared.ends.load(Ordering::Relaxed) {
        let rate = shared.rate.load(Ordering::Relaxed);
        let now = Instant::now();
        if rate == 0 {
            std::thread::sleep(Duration::from_millis(1));
            due = now;
            continue;
        }
        if rate != UNBOUNDED {
            if now < due {
                std::hint::spin_loop();
                continue;
            }
            let chunk = Duration::from_secs_f64(moved as f64 / rate as f64);
            // Delays are not made up for.
            due = due.max(now - chunk) + chunk;
        }
        touch(memory, at, writes);
        shared.moved.fetch_add(moved as u64, Ordering::Relaxed);
        at = (at + CHUNK) % memory.bytes();
    }
}

/// Reads a chunk, and writes `writes` of each sixteen lines.
fn touch(memory: &NodeMemory, from: usize, writes: usize) {
    for line in 0..CHUNK / LINE_BYTES {
        // SAFETY: the size of the memory is a multiple of chunks; `from` is one of them.
        unsafe {
            let word = memory.start().add(from + line * LINE_BYTES).cast::<u64>();
            let value = word.read_volatile();
            if line % ROUND < writes {
                word.write_volatile(value.wrapping_add(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_counts_written_lines_twice() {
        let load = Load::start(0, &[0], 2 << 20, 8).unwrap();
        assert_eq!(load.moved(), 0);
        load.set_rate(None);
        while load.moved() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(load.moved() % (CHUNK as u64 * 3 / 2), 0);
        drop(load);
        let memory = NodeMemory::on(0, 2 << 20).unwrap();
        touch(&memory, 0, 8);
        let written = |line: usize| {
            // SAFETY: it is a line of the first chunk.
            let word = unsafe { memory.start().add(line * LINE_BYTES).cast::<u64>().read() };
            word > 0
        };
        let count = (0..CHUNK / LINE_BYTES).filter(|&line| written(line));
        assert_eq!(count.count() * LINE_BYTES, chunk_bytes(8) - CHUNK);
    }

    #[test]
    fn at_a_rate_it_moves_no_more_whatever_part_is_written() {
        const RATE: f64 = 64e6;
        for writes in [0, ROUND] {
            let load = Load::start(0, &[0], 2 << 20, writes).unwrap();
            let began = Instant::now();
            load.set_rate(Some(RATE));
            // Several chunks, so that the rate matters.
            while load.moved() < 16 * chunk_bytes(writes) as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Read before the clock: a delay in between only raises the bound.
            let moved = load.moved() as f64;
            let seconds = began.elapsed().as_secs_f64();
            // It may be one chunk ahead and catches up with one.
            let max = RATE * seconds + 2.0 * chunk_bytes(writes) as f64;
            assert!(moved <= max, "{writes}: {moved} of {max}");
        }
    }
}
