//! A device's ring of sampled lines, mapped from its memory.
//!
//! ```text
//!  resourceN + offset ─▶ "LINERING" slots first sample … head     64 bits each, little end first
//!              + first ─▶ slot 0, slot 1, …
//! ```
//!
//! Sample number `n` is in slot `n % slots`, in one word, so it is never half of one and half of
//! another:
//!
//! | bits | what |
//! |---|---|
//! | 0 | the line was written back; otherwise it was read |
//! | 6 to 51 | the line's physical address, as the host has it |
//! | 52 to 63 | `n / slots + 1`: how often that slot was used |
//!
//! `head` is how many samples there have been. It is written before the sample is, and the ring does
//! not wait for its reader: what was overwritten, or is not written yet, is told by the last field.
//!
//! The lab's memory device (`lab/device/cxl_device.c`) has such a ring; no device on the market is
//! known to. Nothing that it says is trusted.

use std::io;
use std::path::{Path, PathBuf};

use crate::resource::{GONE, Resource};

/// `LINERING`.
pub const SIGNATURE: u64 = u64::from_le_bytes(*b"LINERING");
/// Words of the ring's head: signature, slots, first, sample; then, on a line of its own, head.
const WORDS: usize = 9;
const SLOTS: usize = 1;
const FIRST: usize = 2;
const SAMPLE: usize = 3;
const HEAD: usize = 8;
/// More than a ring has.
const MOST_SLOTS: u64 = 1 << 20;
const MOST_BYTES: u64 = 1 << 30;
const MOST_LINES: u64 = 1 << 32;
/// So many samples are read at once: across a bus each takes a microsecond, and a pass is to end.
const MOST_READ: u64 = 1 << 14;

const WRITTEN: u64 = 1;
const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;
const LAP_SHIFT: u32 = 52;
const LAP_MASK: u64 = 0xfff;

/// A line that the device served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Physical, a multiple of 64.
    pub address: u64,
    pub written: bool,
}

/// What went wrong since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Samples that were overwritten before they were read, or too many to be read.
    pub lost: u64,
    /// Slots that hold no sample that could be there.
    pub damaged: u64,
    /// Times at which the number of samples became smaller: the device was reset, or lies.
    pub back: u64,
    /// Times at which the device did not answer.
    pub gone: u64,
}

/// The mapped ring.
#[derive(Debug)]
pub struct Ring {
    path: PathBuf,
    offset: u64,
    words: Resource,
    /// The word that is slot 0.
    first: usize,
    slots: u64,
    lines: u64,
    /// The next sample to be read.
    at: u64,
    /// A sample that was not written yet at the last look.
    awaited: Option<u64>,
    gone: bool,
    trouble: Trouble,
}

impl Ring {
    /// Maps the ring that begins at an offset, in bytes, in a device's `resourceN`; what was sampled
    /// before is not read.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, there is no ring, or it does not fit in.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let head = Resource::map(path, offset, 8 * WORDS as u64)?;
        let [signature, slots, first, lines] = [0, SLOTS, FIRST, SAMPLE].map(|at| head.word(at));
        if signature != SIGNATURE {
            return Err(invalid("there is no ring of sampled lines at that offset"));
        }
        let makes_sense = slots.is_power_of_two()
            && slots <= MOST_SLOTS
            && first.is_multiple_of(8)
            && (8 * WORDS as u64..MOST_BYTES).contains(&first)
            && (1..=MOST_LINES).contains(&lines);
        let senseless = |why: &str| {
            let ring =
                format!("its ring of {slots} slots from {first} on, for one of {lines} lines");
            invalid(format!("{ring}, makes no sense{why}"))
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

    /// Maps the ring of a device anew that was gone and may be back; what went wrong so far stays.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn map_again(&mut self) -> io::Result<()> {
        let ring = Self::open(&self.path, self.offset)?;
        let trouble = self.trouble;
        *self = Self { trouble, ..ring };
        Ok(())
    }

    /// Takes what was sampled since the last time.
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
        let most = self.slots.min(MOST_READ);
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
                // Whoever counted it writes it next, unless it never does.
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

    /// However often a device lies about its head, this stays a number.
    fn lose(&mut self, samples: u64) {
        self.trouble.lost = self.trouble.lost.saturating_add(samples);
    }

    /// Whether the device did not answer when it was asked last.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// One of so many lines is sampled, as the device says.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// What went wrong so far.
    pub fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// Samples so far, as the device says.
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
