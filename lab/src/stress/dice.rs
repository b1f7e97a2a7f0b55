//! Random decisions that depend on a seed and a cycle's number only.

use dormouse_guest::protocol::stress::mixed;

/// A stream of random numbers: splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
/// number generators", 2014), which passes BigCrush and needs no state beyond a counter.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    number: u64,
}

impl Dice {
    /// The stream of one cycle.
    pub fn new(seed: u64, cycle: u64) -> Dice {
        Dice {
            seed: mixed(seed, cycle),
            number: 0,
        }
    }

    pub fn word(&mut self) -> u64 {
        self.number += 1;
        mixed(self.seed, self.number)
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.word() % (high - low + 1)
    }

    /// Uniform in 0..1.
    pub fn fraction(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[(self.word() % choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_has_the_same_numbers_each_time_and_another_cycle_others() {
        let numbers = |seed, cycle| {
            let mut dice = Dice::new(seed, cycle);
            (0..8).map(|_| dice.word()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn fractions_fill_their_range_evenly() {
        let mut tenths = [0u32; 10];
        for cycle in 0..10_000 {
            tenths[(Dice::new(7, cycle).fraction() * 10.0) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|&count| (850..1150).contains(&count)),
            "{tenths:?}"
        );
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut dice = Dice::new(3, 3);
        let numbers: Vec<u64> = (0..200).map(|_| dice.between(4, 6)).collect();
        assert!((4..=6).all(|number| numbers.contains(&number)));
        assert!(numbers.iter().all(|number| (4..=6).contains(number)));
    }
}
