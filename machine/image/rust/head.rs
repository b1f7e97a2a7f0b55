//! The head of a sleep by the kernel's snapshot, mapped: headers, bitmap, table and data are stored
//! through the C functions that flush them.

use std::fs::OpenOptions;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};

use crate::check::{self, HEADER_COPIES, Header};
use crate::digest::{CopyMethod, Xxh64};
use crate::names::Reason;
use crate::snapshot::Mapped;
use crate::source::OpenError;
use crate::sys;

/// A device or file that is mapped whole.
pub struct Device {
    path: PathBuf,
    map: MmapRaw,
    writable: bool,
}

impl Device {
    /// Maps `bytes` of a DAX device or a file; to write where `writable`.
    ///
    /// # Errors
    /// It cannot be opened or mapped.
    pub fn open(path: &Path, bytes: u64, writable: bool) -> Result<Device, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .open(path)
            .map_err(failed)?;
        let length = usize::try_from(bytes).map_err(|e| failed(io::Error::other(e)))?;
        let mut options = MmapOptions::new();
        options.len(length);
        let map = if writable {
            options.map_raw(&file)
        } else {
            options.map_raw_read_only(&file)
        };
        Ok(Device {
            path: path.to_owned(),
            map: map.map_err(failed)?,
            writable,
        })
    }

    /// Path of the device or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// All of it, for comparing.
    pub fn mapped(&self) -> Mapped<'_> {
        Mapped {
            at: self.map.as_ptr(),
            bytes: self.map.len(),
            _of: PhantomData,
        }
    }

    fn part(&self, offset: u64, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes as u64);
        assert!(
            end.is_some_and(|end| end <= self.bytes()),
            "a part inside of the device"
        );
        // SAFETY: inside of the mapping, by the assertion.
        unsafe { self.map.as_mut_ptr().add(offset as usize) }
    }

    /// Copies a part out.
    ///
    /// # Panics
    /// When the part is not inside.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let from = self.part(offset, to.len());
        // SAFETY: the part is mapped; no reference to it exists, since others may write it.
        unsafe {
            from.cast_const()
                .copy_to_nonoverlapping(to.as_mut_ptr(), to.len())
        };
    }

    /// Copies a part out and adds it to `hash`.
    ///
    /// # Panics
    /// When the part is not inside.
    pub fn read_digest(&self, offset: u64, to: &mut [u8], hash: &mut Xxh64) {
        self.read(offset, to);
        hash.update(to);
    }

    /// The first `bytes` as words.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn read_words(&self, bytes: u64) -> Vec<u64> {
        let mut words = vec![0u64; (bytes as usize).div_ceil(8)];
        let from = self.part(0, words.len() * 8);
        // SAFETY: as in `read`; a word has no invalid bit pattern.
        unsafe {
            from.cast_const()
                .copy_to_nonoverlapping(words.as_mut_ptr().cast(), words.len() * 8);
        }
        words
    }
}

/// The head: a device that begins with two header copies.
pub struct Head {
    device: Device,
}

impl Head {
    /// Maps it.
    ///
    /// # Errors
    /// It cannot be opened or mapped, or is too small for its headers.
    pub fn open(path: &Path, bytes: u64, writable: bool) -> Result<Head, OpenError> {
        if bytes < sys::DORMOUSE_BITMAPS_OFFSET.into() {
            return Err(OpenError::WrongKind {
                path: path.to_owned(),
            });
        }
        Device::open(path, bytes, writable).map(|device| Head { device })
    }

    /// The device that holds the image.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Our own copy of both headers.
    pub fn copies(&self) -> check::HeaderCopies {
        let mut copies = check::HeaderCopies::default();
        for (index, copy) in copies.iter_mut().enumerate() {
            let mut bytes = [0; check::HEADER_BYTES];
            let offset = (index * check::HEADER_BYTES) as u64;
            self.device.read(offset, &mut bytes);
            *copy = *check::header_from(&bytes);
        }
        copies
    }

    /// The header that counts.
    ///
    /// # Errors
    /// Why no copy is valid.
    pub fn header(&self) -> Result<Box<Header>, Reason> {
        let copies = self.copies();
        check::select(&copies).map(|index| Box::new(copies[index]))
    }

    /// Commits a header: over the copy that does not count, flushed.
    ///
    /// # Panics
    /// When the head is mapped read-only.
    pub fn commit(&mut self, header: &mut Header) {
        assert!(self.device.writable, "a head that is mapped to be written");
        let copies = self
            .device
            .part(0, HEADER_COPIES * check::HEADER_BYTES)
            .cast::<Header>();
        // SAFETY: both copies are mapped, page-aligned and writable; `header` is our own.
        unsafe { sys::dormouse_header_commit(copies, header) };
    }

    /// Stores `data` at `offset` and adds it to `hash`; on its way to memory when this returns.
    ///
    /// # Panics
    /// When the part is not inside, or the head is mapped read-only.
    pub fn store(&mut self, offset: u64, data: &[u8], hash: &mut Xxh64) {
        assert!(self.device.writable, "a head that is mapped to be written");
        let to = self.device.part(offset, data.len());
        // SAFETY: `data.len()` bytes are mapped and writable; nothing else refers to them.
        let to = unsafe { std::slice::from_raw_parts_mut(to, data.len()) };
        crate::digest::copy_digest(CopyMethod::best(true), to, data, hash);
    }
}
