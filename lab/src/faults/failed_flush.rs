//! A flush that fails at a power loss: the CXL device loses its last writes and counts the loss.
//!
//! The emulated device is a file and never loses a write by itself. So the effect of a failed flush
//! is written to the file between two power-ons.

use crate::error::LabError;
use crate::faults::draw_below;
use crate::machine::Machine;
use crate::machine::gpf::Gpf;
use crate::machine::image_file::{self, DeviceFile, PAGE_BYTES};

/// Pages that a failed flush loses.
const LOST_PAGES: u64 = 16;

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
    let file = DeviceFile::with_header(machine)?;
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
        file.write(&[0; PAGE_BYTES as usize], page * PAGE_BYTES)?;
    }
    Ok(LOST_PAGES)
}
