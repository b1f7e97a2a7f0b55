//! Memory in control groups with limits of their own: no CXL node, no more memory.

use std::fs;

use super::memory::{Region, anonymous};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};
use crate::system::cgroups;

/// Room for the process itself, beside what it fills.
const MARGIN_BYTES: usize = 1 << 20;

pub struct Limited {
    region: Region,
    /// A file of the group and what must be in it.
    file: String,
    value: String,
    seed: u64,
}

fn limited(plan: &Plan, setting: &str, value: &str) -> Result<Limited, GuestError> {
    let file = format!("{}/{setting}", cgroups::path_of(&plan.group())?.display());
    fs::write(&file, value).doing(format!("write {value} to {file}"))?;
    let mut region = anonymous(plan.bytes, 0)?;
    region.fill(plan.seed);
    Ok(Limited {
        region,
        file,
        value: value.to_owned(),
        seed: plan.seed,
    })
}

/// A group whose memory must lie on the DRAM node.
pub fn dram_only(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    Ok(Box::new(limited(plan, "cpuset.mems", "0")?))
}

/// A group that is at its limit: what it charges more is refused.
pub fn at_limit(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let limit = plan.bytes + 4 * MARGIN_BYTES;
    let group = cgroups::path_of(&plan.group())?;
    let limited = limited(plan, "memory.max", &limit.to_string())?;
    let swap = group.join("memory.swap.max");
    fs::write(&swap, "0").doing("forbid the group to swap")?;
    // Down to what it uses, but for some pages.
    let current = fs::read_to_string(group.join("memory.current")).doing("read memory.current")?;
    let current: usize = current.trim().parse().unwrap_or(limit);
    let value = (current + MARGIN_BYTES / 4) / 4096 * 4096;
    let value = value.to_string();
    fs::write(&limited.file, &value).doing("lower the limit")?;
    Ok(Box::new(Limited { value, ..limited }))
}

impl Kind for Limited {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)?;
        let found = fs::read_to_string(&self.file).map_err(|error| error.to_string())?;
        if found.trim() == self.value {
            Ok(())
        } else {
            Err(format!("{} is {} now", self.file, found.trim()))
        }
    }
}
