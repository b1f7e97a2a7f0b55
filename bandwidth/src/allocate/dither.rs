//! Small deliberate variations of limits, where the traffic of users cannot be distinguished.
//!
//! ```text
//!  share of user 1  ▔▁▁▔▁▔▔▁     each variation is made up for by another user's, so the total
//!  share of user 2  ▁▔▔▁▔▁▁▔     stays where bytes per CPU second are right, and varies with the
//!                                error where they are wrong: from that they are learned
//! ```
//!
//! Without variation, users with steady limits have CPU times that tell nothing (persistent
//! excitation; Åström and Wittenmark, *Adaptive Control*, 1995).

use super::Load;
use crate::random::Random;

/// A user is varied while the error of its bytes per CPU second is larger than this.
const KNOWN: f64 = 0.1;
/// A user's variation, relative to the threshold, and to its share.
const PART_OF_THRESHOLD: f64 = 0.02;
const PART_OF_SHARE: f64 = 0.5;
/// Steps for which a variation stays: quotas need a few periods to take effect.
const STEPS: u32 = 2;

/// The variations of all users.
#[derive(Clone, Debug)]
pub struct Dither {
    random: Random,
    step: u32,
    /// The sign of each user.
    signs: Vec<(u64, f64)>,
}

impl Dither {
    pub fn new() -> Self {
        Self {
            random: Random::new(0xd17e),
            step: 0,
            signs: Vec::new(),
        }
    }

    /// Varies the shares of those users that are slowed and not known.
    pub fn vary(&mut self, threshold: f64, loads: &[Load], slowed: &[bool], shares: &mut [f64]) {
        let unknown = |at: &usize| slowed[*at] && loads[*at].rate_error > KNOWN;
        let mut varied: Vec<usize> = (0..loads.len()).filter(unknown).collect();
        if varied.len() < 2 {
            self.signs.clear();
            return;
        }
        let same = varied.len() == self.signs.len()
            && varied
                .iter()
                .zip(&self.signs)
                .all(|(at, sign)| loads[*at].id == sign.0);
        if self.step == 0 || !same {
            self.signs = self.draw(varied.iter().map(|at| loads[*at].id).collect());
            self.step = STEPS;
        }
        self.step -= 1;
        // The smallest bound of all keeps the sum at zero.
        let bound = |at: &usize| (PART_OF_SHARE * shares[*at]).min(PART_OF_THRESHOLD * threshold);
        let bounds = varied.iter().map(bound);
        let amplitude = bounds.fold(f64::INFINITY, f64::min);
        for (at, (_, sign)) in varied.drain(..).zip(&self.signs) {
            shares[at] += sign * amplitude;
        }
    }

    /// Half of the users get more and half get less; with an odd number, one is left out.
    fn draw(&mut self, users: Vec<u64>) -> Vec<(u64, f64)> {
        let half = users.len() / 2;
        let mut signs: Vec<f64> = vec![0.0; users.len()];
        signs[..half].fill(1.0);
        signs[half..2 * half].fill(-1.0);
        for last in (1..signs.len()).rev() {
            signs.swap(last, self.random.below(last + 1));
        }
        users.into_iter().zip(signs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(errors: &[f64]) -> Vec<Load> {
        let load = |(id, &rate_error): (u64, &f64)| Load {
            rate_error,
            ..Load::new(id, 1.0, 1.0)
        };
        (0..).zip(errors).map(load).collect()
    }

    #[test]
    fn the_sum_stays_and_no_user_varies_by_more_than_a_fiftieth_of_the_threshold() {
        let mut dither = Dither::new();
        let loads = loads(&[0.5, 0.9, 0.0, 0.3, 0.2, 0.7]);
        let slowed = [true, true, true, true, false, true];
        let before = [0.4, 0.01, 0.3, 0.1, 0.1, 0.09];
        let mut moved = [false; 6];
        for _ in 0..200 {
            let mut shares = before;
            dither.vary(1.0, &loads, &slowed, &mut shares);
            let sum: f64 = shares.iter().sum();
            assert!((sum - before.iter().sum::<f64>()).abs() < 1e-12);
            for at in 0..6 {
                let by = (shares[at] - before[at]).abs();
                assert!(by <= 0.02 + 1e-12 && by <= 0.5 * before[at] + 1e-12);
                moved[at] |= by > 0.0;
            }
        }
        assert_eq!(moved, [true, true, false, true, false, true]);
    }

    #[test]
    fn known_users_and_a_single_one_are_left_alone() {
        let mut dither = Dither::new();
        for errors in [[0.0, 0.05, 0.1], [0.9, 0.0, 0.0]] {
            let mut shares = [0.3; 3];
            dither.vary(1.0, &loads(&errors), &[true; 3], &mut shares);
            assert_eq!(shares, [0.3; 3]);
        }
    }
}
