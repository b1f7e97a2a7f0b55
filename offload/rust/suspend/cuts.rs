//! Hand-backs at random instructions: the first suspend runs whole, and from then on each phase ends after a random
//! number of instructions, at most as many as it took last when it ran whole. Every boundary of two instructions is
//! a safe point, in any thread and in an interrupt handler.

use std::collections::BTreeMap;

use dormouse_system::random::Random;

use crate::machine::job::Job;
use crate::machine::outcome::Outcome;

/// What a timer of the small core can count from.
const MIN_TICKS: u64 = 64;
const MAX_TICKS: u64 = 0xff_ffff;
/// Of each eight ticks five instructions are executed: `-icount shift=6` at 25 MHz.
const TICKS: u64 = 8;
const INSTRUCTIONS: u64 = 5;

/// Where phases end.
#[derive(Debug)]
pub struct Cuts {
    random: Random,
    /// Ticks that each function took when it ran whole.
    whole: BTreeMap<String, u64>,
}

impl Cuts {
    /// The places of a seed.
    pub fn new(seed: u64) -> Cuts {
        Cuts {
            random: Random::new(seed),
            whole: BTreeMap::new(),
        }
    }

    /// Lets a job end within the function; the number of instructions until then, or none if it runs whole.
    pub fn cut(&mut self, function: &str, job: &mut Job) -> Option<u64> {
        let whole = *self.whole.get(function)?;
        let ticks = MIN_TICKS + self.random.below(whole);
        job.tick = ticks.min(MAX_TICKS) as u32;
        job.budget = 1;
        Some(u64::from(job.tick) * INSTRUCTIONS / TICKS)
    }

    /// Notes what a function took that ran whole.
    pub fn ran(&mut self, function: &str, outcome: &Outcome) {
        let begin = outcome.counters.get("begin").copied().unwrap_or_default();
        let ticks = (outcome.instructions * TICKS / INSTRUCTIONS).saturating_sub(begin);
        self.whole.insert(function.to_owned(), ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(instructions: u64, begin: u64) -> Outcome {
        Outcome {
            stop: "returned".into(),
            explanation: String::new(),
            registers: [0; 16],
            flags: 0,
            instructions,
            instruction: None,
            encoding: None,
            accessed: None,
            counters: BTreeMap::from([("begin".to_owned(), begin)]),
            processor: None,
        }
    }

    #[test]
    fn a_function_is_cut_within_what_it_took_behind_the_begin_and_only_once_that_is_known() {
        let mut cuts = Cuts::new(7);
        let mut job = Job::new(0, [0; 4]);
        assert_eq!(cuts.cut("dpm_suspend", &mut job), None);
        assert_eq!(job.budget, Job::new(0, [0; 4]).budget);
        cuts.ran("dpm_suspend", &outcome(100_000, 150_000));
        let places: Vec<u64> = (0..1000)
            .filter_map(|_| cuts.cut("dpm_suspend", &mut job))
            .collect();
        let (min, max) = (places.iter().min(), places.iter().max());
        // 100,000 instructions are 160,000 ticks, of which 10,000 are of the function.
        assert!(min < Some(&200) && min >= Some(&40), "{min:?}");
        assert!(max > Some(&6_000) && max <= Some(&6_290), "{max:?}");
        assert_eq!(job.budget, 1);
    }
}
