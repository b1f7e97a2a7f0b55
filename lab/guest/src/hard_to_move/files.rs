//! Dirty mappings of a file on the disk.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

use super::memory::{Region, map, verify_pattern, write_pattern};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

pub struct Mapped {
    path: String,
    region: Region,
    seed: u64,
    /// The file's own contents; the same as the mapping's where it is shared.
    file_seed: u64,
}

fn file(plan: &Plan) -> Result<(String, File), GuestError> {
    let path = format!("/var/tmp/hard-to-move-{}", plan.name);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .doing(format!("create {path}"))?;
    write_pattern(&mut file, plan.bytes, plan.seed).doing(format!("write {path}"))?;
    Ok((path, file))
}

/// Maps a file and writes other contents; `reaches_file`: they are in the file, too.
fn mapped(plan: &Plan, flags: i32, reaches_file: bool) -> Result<Box<dyn Kind>, GuestError> {
    let (path, file) = file(plan)?;
    let mut region = map(plan.bytes, flags, Some(file.as_fd()))?;
    let seed = plan.seed.wrapping_add(1);
    region.fill(seed);
    Ok(Box::new(Mapped {
        path,
        region,
        seed,
        file_seed: if reaches_file { seed } else { plan.seed },
    }))
}

/// What is written to a private mapping is never in the file.
pub fn private(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    mapped(plan, libc::MAP_PRIVATE, false)
}

/// What is written to a shared mapping is in the file, however late.
pub fn shared(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    mapped(plan, libc::MAP_SHARED, true)
}

impl Kind for Mapped {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)?;
        let mut file = File::open(&self.path).map_err(|error| error.to_string())?;
        verify_pattern(&mut file, self.region.bytes(), self.file_seed)
            .map_err(|why| format!("the file: {why}"))
    }
}
