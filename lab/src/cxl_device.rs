//! How the emulated CXL device behaves when its power goes.
//!
//! A real device holds accepted writes in buffers of its own; Global Persistent Flush (GPF) is
//! what brings them to its persistent memory on the last of the power. The emulated device is a
//! file, so nothing is ever lost by itself: what a device without a working flush does is done to
//! the file between two power-ons.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, LabError};
use crate::fault::draw_below;
use crate::image_file::{self, PAGE_BYTES};
use crate::machine::Machine;

/// Pages that a failed flush loses.
const LOST_PAGES: u64 = 16;

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

/// The power was gone since the machine last ran. Returns how many pages the device lost; which
/// ones depends on the number of power-ons only.
///
/// # Errors
/// The device's file cannot be changed.
pub fn power_was_gone(machine: &mut Machine) -> Result<u64, LabError> {
    if machine.config.gpf != Gpf::Fails {
        return Ok(0);
    }
    machine.config.dirty_shutdown_count += 1;
    machine.save()?;
    let path = machine.cxl_file();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .doing(format!("open {}", path.display()))?;
    // Without an image nobody will look at what is lost.
    let Ok((_, header)) = image_file::newest_copy(&file) else {
        return Ok(0);
    };
    // A device writes back in an order of its own. The header is never among the lost here: the
    // count alone must keep the image from being used.
    let pages = header.cxl_bytes / PAGE_BYTES;
    let first = header.data_offset / PAGE_BYTES;
    let span = pages.saturating_sub(first).max(1);
    for number in 0..LOST_PAGES {
        let page = first + draw_below(machine.power_ons().into(), number, span);
        file.write_all_at(&[0; PAGE_BYTES as usize], page * PAGE_BYTES)
            .doing("lose a page of the CXL device")?;
    }
    Ok(LOST_PAGES)
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
