//! Messages of a stress run: the load of one cycle, and the results of comparing it.

use serde::{Deserialize, Serialize};

/// Where the scratch disk is mounted.
pub const SCRATCH: &str = "/mnt/scratch";
/// Its serial number.
pub const SCRATCH_DISK: &str = "dormouse-scratch";

/// A file system that files are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The root disk: qcow2, whose new clusters count only after a flush.
    Root,
    /// A disk of its own, raw: what was written stays.
    Scratch,
}

impl Place {
    /// Every place.
    pub const ALL: [Place; 2] = [Place::Root, Place::Scratch];

    /// The folder for everything of a stress run.
    pub fn folder(self) -> &'static str {
        match self {
            Place::Root => "/var/tmp/stress",
            Place::Scratch => "/mnt/scratch/stress",
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Place::Root => "root",
            Place::Scratch => "scratch",
        }
    }
}

/// What the lab asks of a stress run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum StressCall {
    /// Mount the scratch disk (which replays its journal). Answer: null.
    Mount,
    /// Hold each file system still and let e2fsck look at it. Answer: complaints.
    CheckFileSystems,
    /// Start this load; an earlier one ends. Answer: null.
    Start(StressPlan),
    /// What is durable by now? Answer: [`Durable`].
    Durable,
    /// Compare everything while the load runs. Answer: [`StressVerdict`].
    Verify,
    /// End the load. Answer: [`StressVerdict`], of everything and of how it ended.
    Stop,
    /// After a cold boot: is there what was durable? Answer: [`StressVerdict`].
    VerifyDurable {
        /// The load of that cycle.
        plan: StressPlan,
        /// What was durable.
        durable: Durable,
    },
}

impl StressCall {
    /// What is awaited, for error messages.
    pub fn describe(&self) -> &'static str {
        match self {
            StressCall::Mount => "mounting the scratch disk",
            StressCall::CheckFileSystems => "checking file systems",
            StressCall::Start(_) => "starting the stress load",
            StressCall::Durable => "reading what is durable",
            StressCall::Verify => "comparing what the stress load did",
            StressCall::Stop => "ending the stress load",
            StressCall::VerifyDurable { .. } => "comparing what was durable",
        }
    }
}

/// The load of one cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StressPlan {
    /// Seed of the load.
    pub seed: u64,
    /// stress-ng's arguments, one instance for each entry, with its temporary files there.
    pub stress_ng: Vec<(Place, Vec<String>)>,
    /// Where files are written all the time.
    pub files: Vec<Place>,
    /// redis with an append-only file on the scratch disk, and a client.
    pub redis: bool,
}

/// How many writes of each writer are durable: those below that number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durable {
    /// Files that are durable, by place.
    pub files: Vec<(Place, u64)>,
    /// Keys that are durable.
    pub redis_keys: u64,
}

/// What is not as it must be, one sentence each; all empty when all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StressVerdict {
    /// A file is missing or has other contents.
    pub files: Vec<String>,
    /// redis lost a key that it had acknowledged, or does not serve.
    pub redis: Vec<String>,
    /// stress-ng or a writer has ended, stands still, or found an error itself.
    pub load: Vec<String>,
}

impl StressVerdict {
    /// Whether there is no complaint.
    pub fn is_well(&self) -> bool {
        self == &StressVerdict::default()
    }
}

/// Writers rewrite this many files or keys in turn.
pub const SLOTS: u64 = 192;

/// The last write to `slot` among the first `count` writes; None where there was none.
pub fn last_write(count: u64, slot: u64) -> Option<u64> {
    let last = count.checked_sub(1)?;
    let behind = (last % SLOTS + SLOTS - slot % SLOTS) % SLOTS;
    last.checked_sub(behind)
}

/// One of a stream of numbers that depend on seed and number only (splitmix64's finaliser).
pub fn mixed(seed: u64, number: u64) -> u64 {
    let mut word = seed
        .rotate_left(29)
        .wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_the_last_write_that_went_there() {
        for count in [0, 1, 5, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 7] {
            for slot in 0..SLOTS {
                let expected = (0..count).rfind(|write| write % SLOTS == slot);
                assert_eq!(last_write(count, slot), expected, "{count} {slot}");
            }
        }
    }

    #[test]
    fn a_request_reads_back() {
        let plan = StressPlan {
            seed: 7,
            stress_ng: vec![(Place::Scratch, vec!["--vm".into(), "1".into()])],
            files: vec![Place::Root],
            redis: true,
        };
        let call = StressCall::VerifyDurable {
            plan,
            durable: Durable {
                files: vec![(Place::Root, 3)],
                redis_keys: 9,
            },
        };
        let text = serde_json::to_string(&call).unwrap();
        let again: StressCall = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
