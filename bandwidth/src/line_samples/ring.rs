//! A device's ring of cache-line samples, mapped from its memory.
//!
//! ```text
//!  resourceN + offset ─▶ "LINERING" slots first sample … head     64 bits each, little-endian
//!              + first ─▶ slot 0, slot 1, …
//! ```
//!
//! Sample number `n` is in slot `n % slots`, in one word, so that it is read as a whole:
//!
//! | bits | content |
//! |---|---|
//! | 0 | the line was written back; otherwise it was read |
//! | 6 to 51 | physical address of the line on the host |
//! | 52 to 63 | `n / slots + 1`: how often that slot was used |
//!
//! `head` is the number of samples so far. The device writes it before the sample and does not
//! wait for the reader: the last field shows whether a slot was overwritten or is not written yet.
//!
//! The lab's memory device (`lab/device/cxl_device.c`) has such a ring; no device on the market is
//! known to have one. Its contents are not trusted.

use std::io;
use std::path::{Path, PathBuf};

use crate::resource::{GONE, Resource};

/// `LINERING`.
pub const SIGNATURE: u64 = u64::from_le_bytes(*b"LINERING");
/// Words of the ring's header: signature, slots, first, sample; then, on a cache line of its own,
/// head.
const WORDS: usize = 9;
const SLOTS: usize = 1;
const FIRST: usize = 2;
const SAMPLE: usize = 3;
const HEAD: usize = 8;
/// An upper bound of valid rings.
const MAX_SLOTS: u64 = 1 << 20;
const MAX_BYTES: u64 = 1 << 30;
const MAX_LINES: u64 = 1 << 32;
/// Samples read in one pass: across a bus each takes a microsecond, and a pass must end.
const MAX_READ: u64 = 1 << 14;

const WRITTEN: u64 = 1;
const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;
const LAP_SHIFT: u32 = 52;
const LAP_MASK: u64 = 0xfff;

/// A cache line that the device transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Physical, a multiple of 64.
    pub address: u64,
    pub written: bool,
}

/// Problem counters since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Samples that were overwritten before they were read, or that were too many.
    pub lost: u64,
    /// Slots without a valid sample.
    pub damaged: u64,
    /// How often the number of samples decreased: the device was reset, or is faulty.
    pub back: u64,
    /// How often the device did not answer.
    pub gone: u64,
}

/// The mapped ring.
#[derive(Debug)]
pub struct Ring {
    path: PathBuf,
    offset: u64,
    words: Resource,
    /// Index of the word that is slot 0.
    first: usize,
    slots: u64,
    lines: u64,
    /// The number of the next sample.
    at: u64,
    /// A sample that was counted but not written at the last reading.
    awaited: Option<u64>,
    gone: bool,
    trouble: Trouble,
}

impl Ring {
    /// Maps the ring at an offset, in bytes, in a device's `resourceN`; skips earlier samples.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, there is no ring, or the ring exceeds the file.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let head = Resource::map(path, offset, 8 * WORDS as u64)?;
        let [signature, slots, first, lines] = [0, SLOTS, FIRST, SAMPLE].map(|at| head.word(at));
        if signature != SIGNATURE {
            return Err(invalid(
                "there is no ring of cache-line samples at that offset",
            ));
        }
        let makes_sense = slots.is_power_of_two()
            && slots <= MAX_SLOTS
            && first.is_multiple_of(8)
            && (8 * WORDS as u64..MAX_BYTES).contains(&first)
            && (1..=MAX_LINES).contains(&lines);
        let senseless = |why: &str| {
            let ring =
                format!("its ring of {slots} slots from {first} on, one sample in {lines} lines");
            invalid(format!("{ring}, is invalid{why}"))
        };
        if !makes_sense {
            return Err(senseless(""));
        }
        let words = Resource::map(path, offset, first + 8 * slots)
            .map_err(|error| senseless(&format!(": {error}")))?;
        Ok(Self {
            path: path.to_owned(),
            offset,
            at: words.word(HEAD),
            words,
            first: first as usize / 8,
            slots,
            lines,
            awaited: None,
            gone: false,
            trouble: Trouble::default(),
        })
    }

    /// Maps the ring of a device that has returned; the problem counters stay.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn map_again(&mut self) -> io::Result<()> {
        let ring = Self::open(&self.path, self.offset)?;
        let trouble = self.trouble;
        *self = Self { trouble, ..ring };
        Ok(())
    }

    /// Reads the samples since the last call.
    pub fn drain(&mut self, mut each: impl FnMut(Line)) {
        let there = self.words.is_there();
        let head = there.then(|| self.samples()).filter(|head| *head != GONE);
        self.gone = head.is_none();
        let Some(head) = head else {
            self.trouble.gone += 1;
            return;
        };
        if head < self.at {
            self.trouble.back += 1;
            self.at = head;
            self.awaited = None;
            return;
        }
        let most = self.slots.min(MAX_READ);
        if head - self.at > most {
            self.lose(head - most - self.at);
            self.at = head - most;
        }
        while self.at < head {
            let at = self.at;
            let word = self.words.word(self.first + (at % self.slots) as usize);
            let lap = (at / self.slots).wrapping_add(1) & LAP_MASK;
            let found = word >> LAP_SHIFT;
            if found == lap {
                each(Line {
                    address: word & ADDRESS,
                    written: word & WRITTEN != 0,
                });
            } else if found == lap.wrapping_sub(1) & LAP_MASK {
                // The device counts a sample first and writes it next; it may never do so.
                if self.awaited != Some(at) {
                    self.awaited = Some(at);
                    return;
                }
                self.trouble.damaged += 1;
            } else if found == lap.wrapping_add(1) & LAP_MASK {
                self.lose(1);
            } else {
                self.trouble.damaged += 1;
            }
            self.at += 1;
        }
    }

    /// Saturates, however often a faulty device changes its head.
    fn lose(&mut self, samples: u64) {
        self.trouble.lost = self.trouble.lost.saturating_add(samples);
    }

    /// Whether the device did not answer the last time.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// One in this many lines is sampled, as the device reports.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The problem counters.
    pub fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// The number of samples, as the device reports.
    pub fn samples(&self) -> u64 {
        self.words.word(HEAD)
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
