//! Fills memory with a pattern that names its own page, and compares every page with it.
//!
//! Each page is a run of a linear congruential generator that starts from a mix of seed and page
//! number: no two pages are alike, none compresses, a page that moved to another place is found,
//! and so is a page of an older seed.

use dormouse_guest::protocol::MemoryVerdict;

pub const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;
/// Multiplier and increment of Knuth's MMIX generator.
const MULTIPLIER: u64 = 6364136223846793005;
const INCREMENT: u64 = 1442695040888963407;

/// Memory of whole pages with a pattern in it.
pub struct Filled {
    words: Vec<u64>,
    seed: u64,
    threads: usize,
}

impl Filled {
    /// Takes `bytes` (rounded down to pages) of memory and fills them with `threads` threads.
    pub fn new(bytes: u64, seed: u64, threads: usize) -> Filled {
        let words = vec![0; (bytes / PAGE_BYTES) as usize * PAGE_WORDS];
        let mut filled = Filled {
            words,
            seed,
            threads: threads.max(1),
        };
        filled.refill(seed);
        filled
    }

    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Writes every page anew, for another seed.
    pub fn refill(&mut self, seed: u64) {
        self.seed = seed;
        let part_pages = self.part_pages();
        std::thread::scope(|scope| {
            for (part, words) in self.words.chunks_mut(part_pages * PAGE_WORDS).enumerate() {
                scope.spawn(move || write_pages(words, seed, part * part_pages));
            }
        });
    }

    /// Compares every word of every page.
    pub fn verify(&self) -> MemoryVerdict {
        let part_pages = self.part_pages();
        let seed = self.seed;
        let (mut bad_pages, mut first_bad_page) = (0, None);
        std::thread::scope(|scope| {
            let parts: Vec<_> = self
                .words
                .chunks(part_pages * PAGE_WORDS)
                .enumerate()
                .map(|(part, words)| {
                    scope.spawn(move || bad_pages_in(words, seed, part * part_pages))
                })
                .collect();
            for part in parts {
                let (bad, first) = part.join().expect("comparing does not panic");
                bad_pages += bad;
                first_bad_page = first_bad_page.or(first);
            }
        });
        MemoryVerdict {
            pages: (self.words.len() / PAGE_WORDS) as u64,
            bad_pages,
            first_bad_page,
        }
    }

    /// Where a page lies.
    pub fn address(&self, page: usize) -> u64 {
        self.words[page * PAGE_WORDS..].as_ptr() as u64
    }

    /// Whether a page begins as it was written: one read.
    pub fn page_begins_well(&self, page: usize) -> bool {
        // Volatile: it is the read that counts.
        let slot = &self.words[page * PAGE_WORDS];
        // SAFETY: a reference is valid for reads.
        let word = unsafe { std::ptr::read_volatile(slot) };
        word == first_word(self.seed, page as u64)
    }

    fn part_pages(&self) -> usize {
        (self.words.len() / PAGE_WORDS)
            .div_ceil(self.threads)
            .max(1)
    }
}

/// Writes the pattern, beginning with page `first_page` of it.
pub fn write_pages(words: &mut [u64], seed: u64, first_page: usize) {
    for (page, words) in words.chunks_exact_mut(PAGE_WORDS).enumerate() {
        write_page(words, first_word(seed, (first_page + page) as u64));
    }
}

/// How many pages differ from the pattern, and which of it is the first.
pub fn bad_pages_in(words: &[u64], seed: u64, first_page: usize) -> (u64, Option<u64>) {
    let (mut bad_pages, mut first_bad_page) = (0, None);
    for (page, words) in words.chunks_exact(PAGE_WORDS).enumerate() {
        let page = (first_page + page) as u64;
        if !page_matches(words, first_word(seed, page)) {
            bad_pages += 1;
            first_bad_page.get_or_insert(page);
        }
    }
    (bad_pages, first_bad_page)
}

/// The splitmix64 finaliser: neighbouring pages and seeds start far apart.
fn first_word(seed: u64, page: u64) -> u64 {
    let mut word = seed.rotate_left(32) ^ page.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn write_page(words: &mut [u64], mut word: u64) {
    for slot in words {
        *slot = word;
        word = word.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
    }
}

fn page_matches(words: &[u64], mut word: u64) -> bool {
    let mut difference = 0;
    for &slot in words {
        difference |= slot ^ word;
        word = word.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn untouched_memory_verifies_whole_with_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            let filled = Filled::new(33 * PAGE_BYTES, 5, threads);
            let verdict = filled.verify();
            assert_eq!((verdict.pages, verdict.bad_pages), (33, 0));
        }
    }

    #[test]
    fn two_swapped_pages_are_found() {
        let mut filled = Filled::new(8 * PAGE_BYTES, 5, 2);
        let (left, right) = filled.words.split_at_mut(3 * PAGE_WORDS);
        left[..PAGE_WORDS].swap_with_slice(&mut right[..PAGE_WORDS]);
        let verdict = filled.verify();
        assert_eq!((verdict.bad_pages, verdict.first_bad_page), (2, Some(0)));
    }

    #[test]
    fn a_page_of_the_last_seed_is_found() {
        let mut filled = Filled::new(8 * PAGE_BYTES, 5, 2);
        let stale = filled.words[..PAGE_WORDS].to_vec();
        filled.refill(6);
        assert_eq!(filled.verify().bad_pages, 0);
        filled.words[..PAGE_WORDS].copy_from_slice(&stale);
        assert_eq!(filled.verify().bad_pages, 1);
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_found(seed: u64, word in 0usize..(4 * PAGE_WORDS), bit in 0u32..64) {
            let mut filled = Filled::new(4 * PAGE_BYTES, seed, 2);
            filled.words[word] ^= 1 << bit;
            let verdict = filled.verify();
            prop_assert_eq!(verdict.bad_pages, 1);
            prop_assert_eq!(verdict.first_bad_page, Some((word / PAGE_WORDS) as u64));
        }
    }
}
