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

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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

const WRITTEN: u64 = 1;
const ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;
const LAP_SHIFT: u32 = 52;
const LAP_MASK: u64 = 0xfff;
/// What a device says that is not there any more.
const GONE: u64 = u64::MAX;

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
    /// Samples that were overwritten before they were read.
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
    /// To find out whether it has become shorter, which a device never does and a file may.
    file: File,
    map: NonNull<u8>,
    map_bytes: usize,
    end: u64,
    head: usize,
    first: usize,
    slots: u64,
    lines: u64,
    /// The next sample to be read.
    at: u64,
    /// A sample that was not written yet at the last look.
    awaited: Option<u64>,
    trouble: Trouble,
}

// SAFETY: the map belongs to this value alone and is only read.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring that begins at an offset, in bytes, in a device's `resourceN`; what was sampled
    /// before is not read.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, there is no ring, or it does not fit in.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let map = |end: u64| -> io::Result<(NonNull<u8>, usize, usize)> {
            let page = rustix::param::page_size() as u64;
            let from = offset / page * page;
            let map_bytes = (end - from) as usize;
            // SAFETY: the kernel chooses where; nothing that exists is replaced.
            let map = unsafe {
                let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
                mmap(ptr::null_mut(), map_bytes, read, shared, &file, from)?
            };
            let map = NonNull::new(map.cast()).ok_or_else(|| invalid("it is mapped at 0"))?;
            Ok((map, map_bytes, (offset - from) as usize))
        };
        let head_end = offset.saturating_add(8 * WORDS as u64);
        if !offset.is_multiple_of(8) || head_end > length {
            return Err(invalid("it has no room for a ring at that offset"));
        }
        let (head_map, head_bytes, skipped) = map(head_end)?;
        // A ring of no slots, which unmaps its head whatever comes.
        let mut ring = Self {
            map: head_map,
            map_bytes: head_bytes,
            end: head_end,
            head: skipped,
            first: 0,
            slots: 0,
            lines: 1,
            at: 0,
            awaited: None,
            trouble: Trouble::default(),
            file: file.try_clone()?,
        };
        let words = [0, SLOTS, FIRST, SAMPLE];
        let [signature, slots, first, lines] = words.map(|at| ring.word(skipped + 8 * at));
        if signature != SIGNATURE {
            return Err(invalid("there is no ring of sampled lines at that offset"));
        }
        let fits = slots.is_power_of_two()
            && slots <= MOST_SLOTS
            && first.is_multiple_of(8)
            && (8 * WORDS as u64..MOST_BYTES).contains(&first)
            && offset + first + 8 * slots <= length
            && (1..=MOST_LINES).contains(&lines);
        if !fits {
            let what = format!(
                "its ring of {slots} slots from {first} on, for one of {lines} lines, makes no sense"
            );
            return Err(invalid(what));
        }
        let end = offset + first + 8 * slots;
        let (map, map_bytes, skipped) = map(end)?;
        ring.unmap();
        ring.map = map;
        ring.map_bytes = map_bytes;
        ring.end = end;
        ring.first = skipped + first as usize;
        ring.slots = slots;
        ring.lines = lines;
        ring.at = ring.samples();
        Ok(ring)
    }

    /// Takes what was sampled since the last time.
    pub fn drain(&mut self, mut each: impl FnMut(Line)) {
        let there = self.file.metadata();
        if !there.is_ok_and(|file| file.len() >= self.end) {
            self.trouble.gone += 1;
            return;
        }
        let head = self.samples();
        if head == GONE {
            self.trouble.gone += 1;
            return;
        }
        if head < self.at {
            self.trouble.back += 1;
            self.at = head;
            self.awaited = None;
            return;
        }
        if head - self.at > self.slots {
            self.trouble.lost += head - self.slots - self.at;
            self.at = head - self.slots;
        }
        while self.at < head {
            let at = self.at;
            let word = self.word(self.first + 8 * (at % self.slots) as usize);
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
                self.trouble.lost += 1;
            } else {
                self.trouble.damaged += 1;
            }
            self.at += 1;
        }
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
        self.word(self.head + 8 * HEAD)
    }

    /// A word of the map, in one access: a device answers each access with what it has then.
    fn word(&self, at: usize) -> u64 {
        debug_assert!(at + 8 <= self.map_bytes && at.is_multiple_of(8));
        // SAFETY: callers stay within the map, which lives as long as `self`; words are at
        // multiples of 8 bytes.
        let value = unsafe { ptr::read_volatile(self.map.as_ptr().add(at).cast::<u64>()) };
        u64::from_le(value)
    }

    fn unmap(&mut self) {
        // SAFETY: it was mapped with this length, and nobody else knows of it.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.unmap();
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
