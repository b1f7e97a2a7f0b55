//! Behaviour of the emulated CXL device at a power loss.
//!
//! A real device holds accepted writes in buffers. Global Persistent Flush (GPF) writes them to its
//! persistent memory with the last energy.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Whether the last writes survive a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gpf {
    /// The device states that it flushes, and does
    #[default]
    Works,
    /// The device states that it flushes, but the flush fails: some pages are lost and counted
    Fails,
    /// The device states that it has no flush; contents survive by chance
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
            // Both are identical until a power loss.
            Gpf::Works | Gpf::Fails => HAS_GPF | ARMED | COUNTS,
            Gpf::Absent => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_does_not_announce_that_its_flush_will_fail() {
        assert_eq!(Gpf::Works.statement(), Gpf::Fails.statement());
        assert_eq!(Gpf::Absent.statement(), 0);
    }

    #[test]
    fn a_machine_made_before_has_a_flush_that_works() {
        assert_eq!(Gpf::default(), Gpf::Works);
        assert_eq!(serde_json::to_string(&Gpf::Fails).unwrap(), "\"fails\"");
    }
}
