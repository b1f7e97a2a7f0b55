//! What is measured, and the parties of each case.

use clap::ValueEnum;

/// Sizes for persist and restore, in MiB.
pub const SIZES: [u64; 6] = [1, 64, 256, 1024, 4096, 8192];
/// Where goals are held against CRIU.
pub const GOAL_MIB: u64 = 1024;
/// CRIU is measured up to here: what it takes for more follows.
const CRIU_MAX_MIB: u64 = 1024;
/// Of [`SIZES`], those that are measured under a dirty budget.
const BUDGET_MIN_MIB: u64 = 64;
/// As in Streicher 2024: 1 MiB to 500 MiB.
pub const PASS_SIZES: [u64; 4] = [1, 16, 128, 500];
/// Bytes of redis' values. Streicher 2024 has four sizes, too, but does not give them.
pub const PAYLOADS: [u64; 4] = [8, 128, 1024, 4096];
/// `--epoch-interval`, milliseconds: as often as it can, down to what is of no weight.
pub const EPOCH_INTERVALS_MS: [u64; 4] = [10, 100, 1000, 10_000];
/// Bytes of redis' values beside frequent epochs.
pub const EPOCHS_PAYLOAD: u64 = 128;
/// redis-benchmark's tests, as in Streicher 2024.
pub const REDIS_TESTS: [&str; 3] = ["SET", "LPUSH", "LRANGE_600"];
/// Logarithms of the dictionaries of `7z b`: 4 MiB to 32 MiB.
pub const DICTIONARIES: [u32; 4] = [22, 23, 24, 25];
/// `--budget` where there is one.
pub const BUDGET: &str = "64MiB";

/// One measured situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Persist a program of which nothing was synced before, then restore it.
    Cycle { mib: u64 },
    /// Persist a program of which 1 % was written to since all of it was synced.
    Dirty { mib: u64 },
    /// Persist a program that writes all the time, under a dirty budget.
    Budget { mib: u64 },
    /// The loop of Streicher 2024: map, fill, unmap.
    Passes { mib: u64 },
    /// redis-benchmark with values of so many bytes.
    Redis { bytes: u64 },
    /// redis-benchmark beside background epochs at this interval.
    Epochs { interval_ms: u64 },
    /// `7z b` beside a program that writes all the time.
    Beside,
}

/// A party of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Party {
    /// `dormouse process`.
    Ours,
    /// `criu dump`, `criu restore`.
    Criu,
    /// `criu pre-dump` before, and then a dump of what has changed.
    #[value(name = "criu-track-mem")]
    CriuTracking,
    /// A program under `dormouse process run` as it is without options.
    Tracked,
    /// The same with a dirty budget.
    Budgeted,
    /// The same program without us.
    Untracked,
}

impl Party {
    /// Identifies it in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Party::Ours => "ours",
            Party::Criu => "criu",
            Party::CriuTracking => "criu-track-mem",
            Party::Tracked => "tracked",
            Party::Budgeted => "budgeted",
            Party::Untracked => "untracked",
        }
    }
}

impl Case {
    /// Identifies it in the journal.
    pub fn name(self) -> String {
        match self {
            Case::Cycle { mib } => format!("cycle {mib}M"),
            Case::Dirty { mib } => format!("dirty {mib}M"),
            Case::Budget { mib } => format!("budget {mib}M"),
            Case::Passes { mib } => format!("passes {mib}M"),
            Case::Redis { bytes } => format!("redis {bytes}B"),
            Case::Epochs { interval_ms } => format!("epochs {interval_ms}ms"),
            Case::Beside => "beside 7z".to_owned(),
        }
    }

    /// Party takes part.
    pub fn parties(self) -> &'static [Party] {
        match self {
            Case::Cycle { mib } if mib > CRIU_MAX_MIB => &[Party::Ours],
            Case::Cycle { .. } => &[Party::Ours, Party::Criu],
            Case::Dirty { .. } => &[Party::Ours, Party::Criu, Party::CriuTracking],
            Case::Budget { .. } => &[Party::Ours],
            Case::Epochs { .. } => &[Party::Tracked, Party::Untracked],
            Case::Passes { .. } | Case::Redis { .. } | Case::Beside => {
                &[Party::Tracked, Party::Untracked, Party::Budgeted]
            }
        }
    }

    /// Bytes that the program and what is kept of it take together.
    pub fn needed_bytes(self) -> u64 {
        let mib = match self {
            Case::Cycle { mib } => 2 * mib + mib / 4,
            // One epoch is kept until the next one is complete; of the whole program where it writes all the time.
            Case::Dirty { mib } => 2 * mib + mib / 2,
            Case::Budget { mib } | Case::Passes { mib } => 3 * mib,
            Case::Redis { .. } | Case::Epochs { .. } => 2048,
            Case::Beside => 4096,
        };
        (mib + 256) << 20
    }
}

/// All of them, in the order of a round. `max_mib` is the largest program.
pub fn cases(max_mib: u64) -> Vec<Case> {
    let sizes = || SIZES.into_iter().filter(move |mib| *mib <= max_mib);
    let mut cases: Vec<Case> = sizes().map(|mib| Case::Cycle { mib }).collect();
    cases.push(Case::Dirty { mib: GOAL_MIB });
    cases.extend(
        sizes()
            .filter(|mib| *mib >= BUDGET_MIN_MIB)
            .map(|mib| Case::Budget { mib }),
    );
    cases.extend(PASS_SIZES.map(|mib| Case::Passes { mib }));
    cases.extend(PAYLOADS.map(|bytes| Case::Redis { bytes }));
    cases.extend(EPOCH_INTERVALS_MS.map(|interval_ms| Case::Epochs { interval_ms }));
    cases.push(Case::Beside);
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_somebody_to_measure() {
        let cases = cases(8192);
        let mut names: Vec<String> = cases.iter().map(|case| case.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| !case.parties().is_empty()));
        assert!(cases.contains(&Case::Cycle { mib: GOAL_MIB }));
    }

    #[test]
    fn criu_is_beside_us_wherever_a_goal_asks_for_it() {
        for case in [Case::Cycle { mib: 1 }, Case::Cycle { mib: GOAL_MIB }] {
            assert!(case.parties().contains(&Party::Criu));
        }
        assert!(
            Case::Dirty { mib: GOAL_MIB }
                .parties()
                .contains(&Party::Criu)
        );
    }
}
