//! A persistent medium behind caches, for tests: everything that may be on it when power is lost.
//!
//! A program stores into memory; what it stored reaches the medium when the processor likes, word
//! by word of 8 bytes and in any order, unless it was written back and a fence came after.
//!
//! ```text
//!  program's view        in flight, by line                     on the medium
//!  ┌────────────┐  observe  ┌──────────────────────┐  fence   ┌─────────────┐
//!  │ as the CPU │ ────────▶ │ version, version, …  │ ───────▶ │ durable     │
//!  │ sees it    │           │ some leaving the     │          │             │
//!  └────────────┘           │ cache (write_back)   │          └─────────────┘
//!                           └──────────────────────┘
//!  power loss: each word is the durable one or that of any version in flight
//! ```
//!
//! This allows more than hardware does (a line of one store by MOVDIR64B is never torn there), so
//! what holds here holds on each device that keeps what a fence has put behind it.
//!
//! The medium does not see single stores: the test says where something may have changed
//! ([`Medium::observe`]), at the latest before each fence. That finds all states, as long as no
//! word is stored twice between two observations.

mod contents;
mod search;

use std::collections::BTreeMap;

pub use contents::Contents;
pub use search::{Choice, Random, choices, count};

/// What reaches the medium as a whole.
pub const WORD_BYTES: u64 = 8;
/// What the caches hold and write back.
pub const LINE_BYTES: u64 = 64;
/// The unit in which contents are kept.
pub const PAGE_BYTES: u64 = 4096;

/// The words of a line.
pub type Line = [u64; 8];

/// What the program sees: memory with all its stores done.
pub trait View {
    /// The line at an offset that is a multiple of 64.
    fn line(&self, offset: u64) -> Line;
}

impl View for [u8] {
    fn line(&self, offset: u64) -> Line {
        let bytes = &self[offset as usize..][..LINE_BYTES as usize];
        let mut words = bytes.chunks_exact(8);
        std::array::from_fn(|_| {
            let word = words.next().expect("eight words");
            u64::from_le_bytes(word.try_into().expect("eight bytes"))
        })
    }
}

/// A line as it was at one moment after it was last durable.
#[derive(Clone, Debug)]
struct Version {
    words: Line,
    /// Written back, or stored past the caches: the next fence makes it durable.
    leaving: bool,
}

/// The medium, and what is on its way there.
#[derive(Clone, Debug, Default)]
pub struct Medium {
    durable: Contents,
    in_flight: BTreeMap<u64, Vec<Version>>,
}

/// A word of which it is not known what the medium holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncertain {
    /// Where it is.
    pub offset: u64,
    /// What it may be: first what was durable, last what the program sees.
    pub values: Vec<u64>,
}

impl Medium {
    /// A medium that holds this, with nothing on its way.
    pub fn new(durable: Contents) -> Self {
        Self {
            durable,
            in_flight: BTreeMap::new(),
        }
    }

    /// What certainly is on the medium.
    pub fn durable(&self) -> &Contents {
        &self.durable
    }

    /// These lines may have been stored to: what they are now may be on the medium from now on.
    pub fn observe<V: View + ?Sized>(&mut self, view: &V, offset: u64, bytes: u64) {
        for line in lines(offset, bytes) {
            self.note(line, view.line(line), false);
        }
    }

    /// These lines leave the cache (CLWB, CLFLUSHOPT, CLFLUSH), or were stored past it (MOVNTI,
    /// MOVDIR64B): they are durable after the next fence.
    pub fn write_back<V: View + ?Sized>(&mut self, view: &V, offset: u64, bytes: u64) {
        for line in lines(offset, bytes) {
            self.note(line, view.line(line), true);
        }
    }

    /// Everything that left the cache before is durable (SFENCE).
    pub fn fence(&mut self) {
        let durable = &mut self.durable;
        self.in_flight.retain(|&line, versions| {
            if let Some(last) = versions.iter().rposition(|version| version.leaving) {
                durable.set_line(line, &versions[last].words);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    fn note(&mut self, line: u64, words: Line, leaving: bool) {
        if let Some(versions) = self.in_flight.get_mut(&line) {
            let last = versions.last_mut().expect("no list is empty");
            if last.words == words {
                last.leaving |= leaving;
            } else {
                versions.push(Version { words, leaving });
            }
        } else if self.durable.line(line) != words {
            self.in_flight
                .insert(line, vec![Version { words, leaving }]);
        }
    }

    /// The words that power loss leaves open, by offset.
    pub fn uncertain(&self) -> Vec<Uncertain> {
        let mut open = Vec::new();
        for (&line, versions) in &self.in_flight {
            let durable = self.durable.line(line);
            for (word, &old) in durable.iter().enumerate() {
                let mut values = vec![old];
                for version in versions {
                    // A value that comes again is at the place of its latest.
                    values.retain(|&value| value != version.words[word]);
                    values.push(version.words[word]);
                }
                if values.len() > 1 {
                    let offset = line + word as u64 * WORD_BYTES;
                    open.push(Uncertain { offset, values });
                }
            }
        }
        open
    }

    /// Power is lost, and each uncertain word is what `choice` says.
    ///
    /// # Panics
    /// When the choice is not one of `uncertain`.
    pub fn after_power_loss(&self, uncertain: &[Uncertain], choice: &Choice) -> Contents {
        let mut left = self.durable.clone();
        for (word, &value) in uncertain.iter().zip(choice) {
            // The first one is what is there.
            if value > 0 {
                left.set_word(word.offset, word.values[value]);
            }
        }
        left
    }
}

/// Offsets of the lines of a range.
fn lines(offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = offset / LINE_BYTES * LINE_BYTES;
    (first..offset + bytes).step_by(LINE_BYTES as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(view: &mut [u8], offset: usize, value: u64) {
        view[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn values(medium: &Medium, offset: u64) -> Vec<u64> {
        let open = medium.uncertain();
        let word = open.iter().find(|word| word.offset == offset);
        word.map_or_else(Vec::new, |word| word.values.clone())
    }

    #[test]
    fn a_store_may_be_there_or_not_until_it_left_the_cache_and_a_fence_came() {
        let (mut view, mut medium) = (vec![0; 4096], Medium::default());
        store(&mut view, 8, 1);
        medium.observe(&view[..], 8, 8);
        assert_eq!(values(&medium, 8), [0, 1]);
        medium.fence();
        assert_eq!(
            values(&medium, 8),
            [0, 1],
            "a fence alone writes nothing back"
        );
        medium.write_back(&view[..], 8, 8);
        assert_eq!(
            values(&medium, 8),
            [0, 1],
            "nothing is durable before the fence"
        );
        medium.fence();
        assert_eq!(values(&medium, 8), [0; 0]);
        assert_eq!(medium.durable().line(0)[1], 1);
    }

    #[test]
    fn a_store_after_the_write_back_is_not_made_durable_by_its_fence() {
        let (mut view, mut medium) = (vec![0; 4096], Medium::default());
        store(&mut view, 0, 1);
        medium.write_back(&view[..], 0, 64);
        store(&mut view, 0, 2);
        medium.observe(&view[..], 0, 64);
        assert_eq!(values(&medium, 0), [0, 1, 2]);
        medium.fence();
        assert_eq!(values(&medium, 0), [1, 2]);
    }

    #[test]
    fn words_of_a_line_are_lost_one_by_one() {
        let (mut view, mut medium) = (vec![0; 4096], Medium::default());
        store(&mut view, 64, 1);
        store(&mut view, 72, 2);
        medium.observe(&view[..], 64, 16);
        let open = medium.uncertain();
        assert_eq!(count(&open), Some(4));
        let left: Vec<_> = choices(&open, 100, 1)
            .map(|choice| medium.after_power_loss(&open, &choice).line(64))
            .collect();
        assert_eq!(left.len(), 4);
        for expected in [[0, 0], [1, 0], [0, 2], [1, 2]] {
            assert!(left.iter().any(|line| line[..2] == expected));
        }
    }

    #[test]
    fn a_value_that_comes_back_to_the_durable_one_is_still_uncertain() {
        let (mut view, mut medium) = (vec![0; 4096], Medium::default());
        for value in [1, 0] {
            store(&mut view, 0, value);
            medium.observe(&view[..], 0, 8);
        }
        assert_eq!(values(&medium, 0), [1, 0]);
    }
}
