//! Random numbers that repeat from run to run: SplitMix64 (Steele, Lea, Flood, *Fast splittable
//! pseudorandom number generators*, 2014), which passes BigCrush and needs one word of state.
//!
//! The stream of a seed is part of recorded results; a crate's generator may change with its
//! version, this one does not.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser: neighbouring numbers become numbers far apart.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    /// True with a probability in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // The first outputs for seed 1234567, from the reference implementation (Vigna, 2015).
        let mut random = Random::new(1_234_567);
        let words = [0; 3].map(|_| random.word());
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn bounds_are_kept() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&random.unit()) && random.below(3) < 3);
        }
        assert_eq!(random.below(0), 0);
        assert!(random.chance(100) && !random.chance(0));
    }
}
