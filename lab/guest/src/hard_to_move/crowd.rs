//! DRAM that is nearly full: of anonymous memory, and of page cache.

use std::fs::File;
use std::io::Read;

use super::memory::{Region, anonymous, counter};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const MEMINFO: &str = "/proc/meminfo";
/// Of all memory: what stays available, and what stays free.
const AVAILABLE_PERCENT: u64 = 14;
const FREE_PERCENT: u64 = 5;
const STEP_BYTES: usize = 4 << 20;
/// What is read to fill the page cache.
const DISK: &str = "/dev/vda";

pub struct Crowd {
    regions: Vec<Region>,
    seed: u64,
}

fn percent(field: &str) -> u64 {
    let total = counter(MEMINFO, "MemTotal").max(1);
    counter(MEMINFO, field) * 100 / total
}

pub fn dram_full(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut regions = Vec::new();
    while percent("MemAvailable") > AVAILABLE_PERCENT {
        let mut region = anonymous(STEP_BYTES, 0)?;
        region.fill(plan.seed.wrapping_add(regions.len() as u64));
        regions.push(region);
    }
    let mut disk = File::open(DISK).doing(format!("open {DISK}"))?;
    let mut bytes = vec![0; 1 << 20];
    while percent("MemFree") > FREE_PERCENT {
        if disk.read(&mut bytes).doing(format!("read {DISK}"))? == 0 {
            break;
        }
    }
    if percent("MemFree") > 2 * FREE_PERCENT {
        return Err(GuestError::Other(format!(
            "{} % of memory are still free",
            percent("MemFree")
        )));
    }
    Ok(Box::new(Crowd {
        regions,
        seed: plan.seed,
    }))
}

impl Kind for Crowd {
    fn verify(&mut self) -> Result<(), String> {
        for (step, region) in self.regions.iter().enumerate() {
            region.verify(self.seed.wrapping_add(step as u64))?;
        }
        Ok(())
    }
}
