//! The reserved part of the CXL window, mapped into this process.

use std::fs::OpenOptions;
use std::num::NonZero;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Doing, GuestError};

/// A mapping of physical memory; firmware changes it behind the compiler's back, so it is only
/// ever copied from and to.
pub struct Window {
    words: NonNull<u64>,
    bytes: NonZero<usize>,
}

impl Window {
    pub fn map(base: u64, bytes: u64) -> Result<Window, GuestError> {
        let bytes = usize::try_from(bytes)
            .ok()
            .and_then(NonZero::new)
            .ok_or_else(|| GuestError::Other("the CXL window is empty".into()))?;
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/mem")
            .doing("open /dev/mem")?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes.get(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                base,
            )
        }
        .doing("map the CXL window")?;
        let words = NonNull::new(address.cast())
            .ok_or_else(|| GuestError::Other("the CXL window is mapped at 0".into()))?;
        Ok(Window { words, bytes })
    }

    /// Whole words; `offset` and `bytes` are multiples of 8.
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.check(offset, bytes);
        (offset / 8..(offset + bytes) / 8)
            .flat_map(|index| {
                // SAFETY: `check` found the range inside the mapping.
                let word = unsafe { self.words.add(index).read_volatile() };
                word.to_le_bytes()
            })
            .collect()
    }

    /// As [`Window::read`].
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        for (index, word) in data.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            // SAFETY: as above; `&mut self` keeps other writers of this process away.
            unsafe { self.words.add(offset / 8 + index).write_volatile(word) };
        }
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(8) && bytes.is_multiple_of(8));
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes.get())
        );
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and no reference into it exists.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), self.bytes.get()) };
    }
}
