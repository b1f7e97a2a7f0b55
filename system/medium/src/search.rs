//! Which of the states after a power loss are tried: all, where these are few; otherwise those
//! that tear something at one place, and random ones.

use crate::{LINE_BYTES, Uncertain};

/// For each uncertain word, the number of its value.
pub type Choice = Vec<usize>;

/// SplitMix64 (Steele, Lea and Flood 2014): each seed is a good one, and a test prints it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// One state: everything old, everything new, torn at a word, or a mixture.
    pub fn choice(&mut self, uncertain: &[Uncertain]) -> Choice {
        let words = uncertain.len() as u64;
        let cut = self.below(words.max(1)) as usize;
        match self.below(10) {
            0 => mixed(uncertain, |_, _| false),
            1 => mixed(uncertain, |_, _| true),
            2 => mixed(uncertain, |at, _| at < cut),
            3 => mixed(uncertain, |at, _| at >= cut),
            _ => self.mixture(uncertain),
        }
    }

    fn mixture(&mut self, uncertain: &[Uncertain]) -> Choice {
        // Some states keep nearly all and some lose nearly all: those are the likely accidents.
        let share = self.below(9);
        let newest = self.below(2) == 0;
        uncertain
            .iter()
            .map(|word| {
                let values = word.values.len() as u64;
                match (self.below(8) < share, newest) {
                    (true, _) => self.below(values) as usize,
                    (false, true) => values as usize - 1,
                    (false, false) => 0,
                }
            })
            .collect()
    }
}

/// How many states there are; None: more than 2^64.
pub fn count(uncertain: &[Uncertain]) -> Option<u64> {
    uncertain
        .iter()
        .try_fold(1u64, |all, word| all.checked_mul(word.values.len() as u64))
}

/// The states to try: each one if there are at most `limit`; otherwise nothing, everything, all
/// up to a word and all from a word on, all but a line and nothing but a line, and random ones
/// until there are `limit`.
pub fn choices(
    uncertain: &[Uncertain],
    limit: u64,
    seed: u64,
) -> Box<dyn Iterator<Item = Choice> + '_> {
    match count(uncertain) {
        Some(all) if all <= limit => Box::new((0..all).map(|number| numbered(uncertain, number))),
        _ => Box::new(
            torn(uncertain)
                .chain(random(uncertain, seed))
                .take(limit as usize),
        ),
    }
}

fn numbered(uncertain: &[Uncertain], mut number: u64) -> Choice {
    uncertain
        .iter()
        .map(|word| {
            let values = word.values.len() as u64;
            let value = number % values;
            number /= values;
            value as usize
        })
        .collect()
}

/// The newest value where `is_new` says so, else the durable one.
fn mixed(uncertain: &[Uncertain], is_new: impl Fn(usize, &Uncertain) -> bool) -> Choice {
    let value = |(at, word): (usize, &Uncertain)| {
        if is_new(at, word) {
            word.values.len() - 1
        } else {
            0
        }
    };
    uncertain.iter().enumerate().map(value).collect()
}

fn torn(uncertain: &[Uncertain]) -> impl Iterator<Item = Choice> {
    let mut lines: Vec<u64> = uncertain
        .iter()
        .map(|word| word.offset / LINE_BYTES)
        .collect();
    lines.dedup();
    let whole = [false, true].map(|new| mixed(uncertain, |_, _| new));
    let by_word = (1..uncertain.len()).flat_map(move |cut| {
        [
            mixed(uncertain, |at, _| at < cut),
            mixed(uncertain, |at, _| at >= cut),
        ]
    });
    let by_line = lines.into_iter().flat_map(move |line| {
        [true, false].map(|only| {
            mixed(uncertain, |_, word| {
                (word.offset / LINE_BYTES == line) == only
            })
        })
    });
    // Whole states and lines first: a limit cuts the many words.
    whole.into_iter().chain(by_line).chain(by_word)
}

fn random(uncertain: &[Uncertain], seed: u64) -> impl Iterator<Item = Choice> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || random.choice(uncertain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(number: u64) -> Vec<Uncertain> {
        (0..number)
            .map(|word| Uncertain {
                offset: word * 8,
                values: vec![0, 1],
            })
            .collect()
    }

    #[test]
    fn few_states_are_all_tried_and_each_once() {
        let words = words(6);
        let mut all: Vec<_> = choices(&words, 64, 1).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn many_states_are_tried_up_to_the_limit_with_the_torn_ones_first() {
        let words = words(100);
        assert_eq!(count(&words), None);
        let tried: Vec<_> = choices(&words, 1000, 7).collect();
        assert_eq!(tried.len(), 1000);
        assert!(tried.contains(&vec![0; 100]) && tried.contains(&vec![1; 100]));
        for cut in 1..100 {
            let torn: Choice = (0..100).map(|at| usize::from(at < cut)).collect();
            assert!(tried.contains(&torn), "torn at {cut}");
        }
        assert_eq!(
            tried,
            choices(&words, 1000, 7).collect::<Vec<_>>(),
            "a seed is a run"
        );
    }
}
