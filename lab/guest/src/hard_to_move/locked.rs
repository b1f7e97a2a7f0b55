//! Locked memory moves like any other; what was locked is locked afterwards.

use super::memory::{Region, anonymous, ok};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

/// `mlock(2)` of memory that is filled already.
pub fn mlock(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes, 0)?;
    region.fill(plan.seed);
    // SAFETY: locks pages of our own mapping.
    ok(unsafe { libc::mlock(region.words().as_ptr().cast(), region.bytes()) })
        .doing("lock memory")?;
    Ok(Box::new(locked(region, plan.seed)))
}

/// Locked and populated by the call that maps it.
pub fn map_locked(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes, libc::MAP_LOCKED | libc::MAP_POPULATE)?;
    region.fill(plan.seed);
    Ok(Box::new(locked(region, plan.seed)))
}

fn locked(region: Region, seed: u64) -> impl FnMut() -> Result<(), String> {
    move || {
        region.verify(seed)?;
        let locked = region.smaps("Locked").map_err(|e| e.to_string())?;
        if locked == region.bytes() as u64 {
            Ok(())
        } else {
            Err(format!("{locked} of {} bytes are locked", region.bytes()))
        }
    }
}
