//! Buffers registered with io_uring: the kernel holds their physical pages for good.
//!
//! After waking the ring writes from them and reads into them: that works only if the pages it
//! holds and the pages that the process sees are still the same ones.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};

use io_uring::{IoUring, opcode, types};

use super::memory::{Region, anonymous, ok, pattern, verify_bytes};
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

pub struct Pinned {
    ring: IoUring,
    region: Region,
    seed: u64,
}

pub fn io_uring(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let ring = IoUring::new(4).doing("set up a ring")?;
    let mut region = anonymous(plan.bytes, 0)?;
    region.fill(plan.seed);
    let buffer = libc::iovec {
        iov_base: region.words_mut().as_mut_ptr().cast(),
        iov_len: region.bytes(),
    };
    // SAFETY: the region lives as long as the ring, in the same struct.
    unsafe { ring.submitter().register_buffers(&[buffer]) }.doing("register buffers")?;
    Ok(Box::new(Pinned {
        ring,
        region,
        seed: plan.seed,
    }))
}

impl Pinned {
    fn submit(&mut self, entry: &io_uring::squeue::Entry) -> Result<(), GuestError> {
        // SAFETY: buffers of entries are part of the region, which outlives the wait below.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|error| GuestError::Other(format!("the ring: {error}")))?;
        self.ring.submit_and_wait(1).doing("wait for the ring")?;
        let result = self.ring.completion().next().map(|done| done.result());
        match result {
            Some(count) if count as usize == self.region.bytes() => Ok(()),
            other => Err(GuestError::Other(format!("the ring moved {other:?} bytes"))),
        }
    }

    fn exchange(&mut self) -> Result<(), GuestError> {
        let mut file = memfd("exchange", 0)?;
        let fd = types::Fd(file.as_raw_fd());
        let bytes = self.region.bytes() as u32;
        let base = self.region.words_mut().as_mut_ptr().cast::<u8>();

        self.submit(&opcode::WriteFixed::new(fd, base, bytes, 0).build())?;
        let mut seen = Vec::new();
        file.rewind().doing("rewind")?;
        file.read_to_end(&mut seen).doing("read back")?;
        verify_bytes(&seen, self.seed)
            .map_err(|why| GuestError::Other(format!("written by the ring: {why}")))?;

        let next_seed = self.seed.wrapping_add(1);
        file.rewind().doing("rewind")?;
        file.write_all(&pattern(bytes as usize, next_seed))
            .doing("write anew")?;
        self.submit(&opcode::ReadFixed::new(fd, base, bytes, 0).build())?;
        self.seed = next_seed;
        self.region
            .verify(self.seed)
            .map_err(|why| GuestError::Other(format!("read by the ring: {why}")))
    }
}

impl Kind for Pinned {
    fn verify(&mut self) -> Result<(), String> {
        self.region.verify(self.seed)?;
        self.exchange().map_err(|error| error.to_string())
    }
}

/// A file in memory without a name.
pub fn memfd(name: &str, flags: u32) -> Result<File, GuestError> {
    let name = std::ffi::CString::new(name).expect("our own text");
    // SAFETY: a new file descriptor without another owner.
    let fd = ok(unsafe { libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC) })
        .doing("make a file in memory")?;
    // SAFETY: as above.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}
