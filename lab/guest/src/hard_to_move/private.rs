//! Memory that stays private: excluded from fork, or without a kernel mapping.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd};

use super::memory::{Region, anonymous, map, ok};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

pub struct Private {
    region: Region,
    seed: u64,
    _file: Option<File>,
}

/// Children do not inherit it.
pub fn dont_fork(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut region = anonymous(plan.bytes, 0)?;
    region.advise(libc::MADV_DONTFORK, "keep memory from children")?;
    region.fill(plan.seed);
    Ok(Box::new(Private {
        region,
        seed: plan.seed,
        _file: None,
    }))
}

/// `memfd_secret(2)`: not even the kernel maps it, and it never moves.
pub fn secret(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    // SAFETY: a new file descriptor without another owner.
    let fd = ok(unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) })
        .doing("make secret memory")?;
    // SAFETY: as above.
    let file = unsafe { File::from_raw_fd(fd as i32) };
    file.set_len(plan.bytes as u64)
        .doing("size secret memory")?;
    let mut region = map(plan.bytes, libc::MAP_SHARED, Some(file.as_fd()))?;
    region.fill(plan.seed);
    Ok(Box::new(Private {
        region,
        seed: plan.seed,
        _file: Some(file),
    }))
}

impl Kind for Private {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)
    }
}
