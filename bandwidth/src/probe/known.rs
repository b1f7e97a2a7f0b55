//! Moves a known number of bytes from and to a node, so that a counter can be compared with it.
//!
//! ```text
//!  flush every line ─▶ read every line once             each line is read once
//!  flush every line ─▶ write every line once ─▶ flush   each line is read once and written once
//! ```
//!
//! No cache holds a line when a round begins, and none holds a changed one when it ends, so the
//! device carries each line once in each direction, also if the memory does not fit into a cache.
//! Lines that the processor fetches ahead are lines of the same round.

use super::chase::flush;
use super::memory::{LINE_BYTES, MemoryError, NodeMemory};

/// Bytes that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From the device.
    pub read_bytes: u64,
    /// To the device.
    pub write_bytes: u64,
}

/// Memory of a node whose lines are moved in rounds.
#[derive(Debug)]
pub struct KnownTraffic {
    memory: NodeMemory,
}

impl KnownTraffic {
    /// With this many bytes of the node.
    ///
    /// # Errors
    /// The node does not exist or has too little free memory.
    pub fn on(node: u32, bytes: usize) -> Result<Self, MemoryError> {
        let memory = NodeMemory::on(node, bytes)?;
        let traffic = Self { memory };
        // New memory was written when it was allocated.
        traffic.flush();
        Ok(traffic)
    }

    /// Reads each line once.
    pub fn read(&mut self) -> Moved {
        for line in 0..self.lines() {
            // SAFETY: it is a line of the memory.
            unsafe { self.line(line).read_volatile() };
        }
        self.flush();
        Moved {
            read_bytes: self.memory.bytes() as u64,
            write_bytes: 0,
        }
    }

    /// Writes each line once, which reads it before.
    pub fn write(&mut self) -> Moved {
        for line in 0..self.lines() {
            // SAFETY: it is a line of the memory.
            unsafe {
                let word = self.line(line);
                word.write_volatile(word.read_volatile().wrapping_add(1));
            }
        }
        self.flush();
        let bytes = self.memory.bytes() as u64;
        Moved {
            read_bytes: bytes,
            write_bytes: bytes,
        }
    }

    fn lines(&self) -> usize {
        self.memory.bytes() / LINE_BYTES
    }

    fn line(&self, line: usize) -> *mut u64 {
        debug_assert!(line < self.lines());
        // SAFETY: within the memory.
        unsafe { self.memory.start().add(line * LINE_BYTES).cast() }
    }

    fn flush(&self) {
        for line in 0..self.lines() {
            flush(self.line(line));
        }
        // Write-backs are on their way before the counters are read.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_moves_each_line_once_in_each_direction() {
        let mut traffic = KnownTraffic::on(0, 2 << 20).unwrap();
        let word = |traffic: &KnownTraffic, line: usize| {
            // SAFETY: it is a line of the memory.
            unsafe { traffic.line(line).read_volatile() }
        };
        let bytes = 2 << 20;
        assert_eq!(
            traffic.read(),
            Moved {
                read_bytes: bytes,
                write_bytes: 0
            }
        );
        for round in 1..=2 {
            assert_eq!(
                traffic.write(),
                Moved {
                    read_bytes: bytes,
                    write_bytes: bytes
                }
            );
            assert!((0..traffic.lines()).all(|line| word(&traffic, line) == round));
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_named() {
        let error = KnownTraffic::on(999, 1).unwrap_err();
        assert!(error.to_string().contains("no node 999"), "{error}");
    }
}
