//! How the emulated CXL device behaves when its power goes.
//!
//! A real device holds accepted writes in buffers of its own. Global Persistent Flush (GPF) brings
//! them to its persistent memory on the last of the power.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What becomes of the last writes when power goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gpf {
    /// The device flushes, and says that it can
    #[default]
    Works,
    /// It says that it can, but the flush fails: some pages are lost, and it counts that
    Fails,
    /// It has none and says so; what it was written it keeps by luck
    Absent,
}

/// Bits of what the board states to firmware: machine/firmware/driver/dormouse.h.
const HAS_GPF: u64 = 1;
const ARMED: u64 = 2;
const COUNTS: u64 = 4;

impl Gpf {
    /// What the board states about the device.
    pub fn statement(self) -> u64 {
        match self {
            // Both look alike until the power goes.
            Gpf::Works | Gpf::Fails => HAS_GPF | ARMED | COUNTS,
            Gpf::Absent => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_will_fail_looks_like_one_that_works() {
        assert_eq!(Gpf::Works.statement(), Gpf::Fails.statement());
        assert_eq!(Gpf::Absent.statement(), 0);
    }

    #[test]
    fn a_machine_made_before_has_a_flush_that_works() {
        assert_eq!(Gpf::default(), Gpf::Works);
        assert_eq!(serde_json::to_string(&Gpf::Fails).unwrap(), "\"fails\"");
    }
}
