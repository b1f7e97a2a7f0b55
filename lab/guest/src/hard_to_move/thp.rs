//! Transparent huge pages stay whole, down and up.

use std::fs;

use super::memory::{Region, anonymous, counter};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const SCAN_PAUSE: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
const HUGE_BYTES: usize = 2 << 20;

pub struct Transparent {
    region: Region,
    huge_bytes: u64,
    split: u64,
    seed: u64,
}

/// Huge pages that were split because they had to move.
fn split_by_migration() -> u64 {
    counter("/proc/vmstat", "thp_migration_split")
}

pub fn transparent(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    // What was split must not be put together again before it is verified.
    fs::write(SCAN_PAUSE, "4000000000").doing("stop collapsing of huge pages")?;
    let bytes = plan.bytes.next_multiple_of(HUGE_BYTES);
    // One more, because the mapping may begin between two.
    let mut region = anonymous(bytes + HUGE_BYTES, 0)?;
    region.advise(libc::MADV_HUGEPAGE, "ask for huge pages")?;
    region.fill(plan.seed);
    let huge_bytes = region.smaps("AnonHugePages")?;
    if huge_bytes < bytes as u64 {
        let text = format!("only {huge_bytes} of {bytes} bytes became huge pages");
        return Err(GuestError::Other(text));
    }
    Ok(Box::new(Transparent {
        region,
        huge_bytes,
        split: split_by_migration(),
        seed: plan.seed,
    }))
}

impl Kind for Transparent {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)?;
        let huge_bytes = self.region.smaps("AnonHugePages");
        let huge_bytes = huge_bytes.map_err(|error| error.to_string())?;
        let split = split_by_migration() - self.split;
        if huge_bytes == self.huge_bytes && split == 0 {
            Ok(())
        } else {
            Err(format!(
                "{huge_bytes} of {} bytes are huge pages still, {split} were split",
                self.huge_bytes
            ))
        }
    }
}
