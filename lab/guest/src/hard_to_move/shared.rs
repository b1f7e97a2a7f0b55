//! Shared memory that several processes map, and shared memory that no process maps.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd};

use super::children::{Child, fork};
use super::memory::{Region, map, ok, verify_pattern, verify_words, write_pattern};
use super::pinned::memfd;
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const READERS: usize = 3;

/// Every process compares the whole of it, each in its own address space.
pub struct Shared {
    words: &'static [u64],
    seed: u64,
    readers: Vec<Child>,
}

fn start_readers(words: &'static [u64], seed: u64) -> Result<Box<dyn Kind>, GuestError> {
    let compare = move || verify_words(words, seed, 0);
    let readers = (0..READERS)
        .map(|_| fork(compare))
        .collect::<Result<_, _>>()?;
    Ok(Box::new(Shared {
        words,
        seed,
        readers,
    }))
}

/// A System V segment.
pub fn sysv(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    // SAFETY: a new segment, attached where the kernel likes, marked to vanish with its last user.
    let words = unsafe {
        let id = ok(libc::shmget(libc::IPC_PRIVATE, plan.bytes, 0o600)).doing("make a segment")?;
        let base = libc::shmat(id as i32, std::ptr::null(), 0);
        if base as isize == -1 {
            return Err(std::io::Error::last_os_error()).doing("attach the segment");
        }
        libc::shmctl(id as i32, libc::IPC_RMID, std::ptr::null_mut());
        std::slice::from_raw_parts_mut(base.cast::<u64>(), plan.bytes / 8)
    };
    crate::workload::fill::write_pages(words, plan.seed, 0);
    start_readers(words, plan.seed)
}

fn create(path: &str) -> Result<File, GuestError> {
    File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .doing(format!("create {path}"))
}

/// What `shm_open(3)` makes: a file in /dev/shm.
pub fn posix(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let path = "/dev/shm/hard-to-move-posix";
    let file = create(path)?;
    file.set_len(plan.bytes as u64).doing("size it")?;
    let region: &'static mut Region = Box::leak(Box::new(map(
        plan.bytes,
        libc::MAP_SHARED,
        Some(file.as_fd()),
    )?));
    region.fill(plan.seed);
    fs::remove_file(path).doing(format!("remove {path}"))?;
    start_readers(region.words(), plan.seed)
}

impl Kind for Shared {
    fn verify(&mut self) -> Result<(), String> {
        verify_words(self.words, self.seed, 0)?;
        self.readers.iter_mut().try_for_each(Child::ask)
    }
}

/// A file in memory that is open or has a name, and that no process maps.
pub struct Unmapped {
    file: File,
    bytes: usize,
    seed: u64,
    sealed: bool,
}

/// A file in tmpfs.
pub fn tmpfs(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let path = "/dev/shm/hard-to-move-file";
    let mut file = create(path)?;
    write_pattern(&mut file, plan.bytes, plan.seed).doing(format!("write {path}"))?;
    Ok(Box::new(Unmapped {
        file,
        bytes: plan.bytes,
        seed: plan.seed,
        sealed: false,
    }))
}

/// A memfd that was written, sealed, and is only held open.
pub fn sealed_memfd(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let mut file = memfd("sealed", libc::MFD_ALLOW_SEALING)?;
    write_pattern(&mut file, plan.bytes, plan.seed).doing("write the memfd")?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain call on our own file.
    ok(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).doing("seal it")?;
    Ok(Box::new(Unmapped {
        file,
        bytes: plan.bytes,
        seed: plan.seed,
        sealed: true,
    }))
}

impl Kind for Unmapped {
    fn verify(&mut self) -> Result<(), String> {
        self.file.rewind().map_err(|error| error.to_string())?;
        verify_pattern(&mut self.file, self.bytes, self.seed)?;
        if self.sealed && self.file.write_all(b"x").is_ok() {
            return Err("the seal is gone".into());
        }
        Ok(())
    }
}
