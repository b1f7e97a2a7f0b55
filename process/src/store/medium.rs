//! The medium of a store: a thin trait, and the file that is mapped into memory.
//!
//! | medium | written by | durable by |
//! |---|---|---|
//! | file on a file system with a page cache | stores to the mapping | fdatasync |
//! | file on a DAX file system (mapped with MAP_SYNC), DAX character device | non-temporal stores, or stores and CLWB | SFENCE |

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::PAGE_BYTES;
use super::error::StoreError;
use super::flush;

/// Where the bytes of a store lie. Writes become durable in any order, or not at all, until
/// [`Medium::barrier`] returns.
pub trait Medium: Send + Sync + 'static {
    /// Bytes that it has now.
    fn bytes(&self) -> u64;

    /// Makes it larger; never smaller. What is new may hold anything.
    ///
    /// # Errors
    /// There is no more room.
    fn grow(&self, bytes: u64) -> io::Result<()>;

    /// The bytes in a range that is inside of it.
    fn read(&self, offset: u64, bytes: u64) -> &[u8];

    /// Writes bytes into frames that nothing else refers to.
    fn write(&self, offset: u64, bytes: &[u8]);

    /// Everything written before is durable.
    ///
    /// # Errors
    /// The medium could not be written; nothing is known of what was written since the last one.
    fn barrier(&self) -> io::Result<()>;

    /// The file, where pages of it can be mapped privately.
    fn file(&self) -> Option<BorrowedFd<'_>>;
}

/// How a mapped file is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediumKind {
    /// A file system with a page cache.
    PageCache,
    /// A file on a DAX file system.
    DaxFile,
    /// A DAX character device.
    DaxDevice,
}

/// A file or device, mapped and pre-faulted.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    path: PathBuf,
    base: *mut u8,
    reserved: u64,
    mapped: AtomicU64,
    kind: MediumKind,
    writable: bool,
}

// SAFETY: the mapping stays where it is for the life of the value; callers write only to frames
// that no one else refers to (see `Frames`).
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps a file as long as it is; address space is reserved for `limit` bytes, so that it can
    /// grow where it is.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn map(file: File, path: &Path, limit: u64, writable: bool) -> Result<Self, StoreError> {
        let io = |doing| {
            let path = path.to_owned();
            move |source: io::Error| StoreError::Io {
                path,
                doing,
                source,
            }
        };
        let metadata = file.metadata().map_err(io("read its metadata"))?;
        let device = metadata.file_type().is_char_device();
        let bytes = if device {
            device_bytes(metadata.rdev()).map_err(io("learn its size"))?
        } else {
            metadata.len() / PAGE_BYTES * PAGE_BYTES
        };
        let reserved = limit.max(bytes).next_multiple_of(1 << 21);
        // SAFETY: a fresh reservation touches no other memory.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                (reserved + (1 << 21)) as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|error| io("reserve address space for it")(error.into()))?;
        // Aligned, so that huge pages of the file can be mapped as such.
        let skip = base.cast::<u8>().align_offset(1 << 21);
        let mut medium = Self {
            file,
            path: path.to_owned(),
            // SAFETY: less than 2 MiB, which the reservation has more than is used.
            base: unsafe { base.cast::<u8>().add(skip) },
            reserved,
            mapped: AtomicU64::new(0),
            kind: if device {
                MediumKind::DaxDevice
            } else {
                MediumKind::PageCache
            },
            writable,
        };
        if !device && medium.try_dax().map_err(io("map it"))? {
            medium.kind = MediumKind::DaxFile;
        }
        medium.map_to(bytes).map_err(io("map it"))?;
        Ok(medium)
    }

    /// Whether the file system promises that a store is durable once it left the caches.
    fn try_dax(&self) -> io::Result<bool> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let probe = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES as usize,
                libc::PROT_READ,
                libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
                self.file.as_raw_fd(),
                0,
            )
        };
        if probe == libc::MAP_FAILED {
            return Ok(false);
        }
        // SAFETY: the mapping made just above, not used by anything.
        unsafe { rustix::mm::munmap(probe, PAGE_BYTES as usize) }?;
        Ok(true)
    }

    fn map_to(&self, bytes: u64) -> io::Result<()> {
        let from = self.mapped.load(Ordering::Acquire);
        if bytes <= from {
            return Ok(());
        }
        if bytes > self.reserved {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let mut flags = libc::MAP_FIXED;
        flags |= match self.kind {
            MediumKind::DaxFile => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            _ => libc::MAP_SHARED,
        };
        let mut protection = libc::PROT_READ;
        if self.writable {
            protection |= libc::PROT_WRITE;
        }
        if from > 0 {
            // Room is made to be written to. What was there before is brought in by `populate`,
            // in the background, because a restore must not wait for it.
            flags |= libc::MAP_POPULATE;
        }
        // SAFETY: the range lies in the reservation of `map`, past everything mapped before.
        let mapped = unsafe {
            libc::mmap(
                self.base.add(from as usize).cast::<c_void>(),
                (bytes - from) as usize,
                protection,
                flags,
                self.file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.mapped.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Brings the page tables of all that is mapped into being, so that copies need not wait for
    /// the kernel; it takes about a second for 8 GiB.
    pub fn populate(&self) {
        const PART: u64 = 8 << 20;
        let bytes = self.mapped.load(Ordering::Acquire);
        for start in (0..bytes).step_by(PART as usize) {
            let length = PART.min(bytes - start) as usize;
            // SAFETY: inside of our own mapping; no contents change. A kernel without it (before
            // 5.14) does nothing.
            unsafe {
                let start = self.base.add(start as usize).cast();
                libc::madvise(start, length, libc::MADV_POPULATE_READ);
            }
        }
    }

    /// How writes become durable here.
    pub fn kind(&self) -> MediumKind {
        self.kind
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it can grow to.
    pub fn limit(&self) -> u64 {
        self.reserved
    }

    /// Where the byte at `offset` is mapped, for copies straight into frames that nothing refers
    /// to. Panics outside of what is mapped.
    pub fn pointer(&self, offset: u64, bytes: u64) -> *mut u8 {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes());
        assert!(inside, "{offset}+{bytes} is outside of the store");
        // SAFETY: inside of the mapping, as just checked.
        unsafe { self.base.add(offset as usize) }
    }

    /// These bytes have been written through [`MappedFile::pointer`] by this thread, with
    /// ordinary stores: starts to make them durable.
    pub fn written(&self, offset: u64, bytes: u64) {
        match self.kind {
            MediumKind::PageCache => {
                // Only a start: `barrier` is what counts, and reports errors.
                // SAFETY: a system call on our own descriptor, no memory involved.
                unsafe {
                    libc::sync_file_range(
                        self.file.as_raw_fd(),
                        offset as libc::off64_t,
                        bytes as libc::off64_t,
                        libc::SYNC_FILE_RANGE_WRITE,
                    );
                }
            }
            MediumKind::DaxFile | MediumKind::DaxDevice => {
                flush::write_back(self.read(offset, bytes));
                flush::fence();
            }
        }
    }
}

/// Bytes of a DAX character device.
fn device_bytes(number: u64) -> io::Result<u64> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let text = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size"))?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other("its size is no number; is it a DAX device?"))
}

impl Medium for MappedFile {
    fn bytes(&self) -> u64 {
        self.mapped.load(Ordering::Acquire)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let from = self.bytes();
        if bytes <= from {
            return Ok(());
        }
        if self.kind == MediumKind::DaxDevice || bytes > self.reserved {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        allocate(&self.file, from, bytes)?;
        self.map_to(bytes)
    }

    fn read(&self, offset: u64, bytes: u64) -> &[u8] {
        let at = self.pointer(offset, bytes);
        // SAFETY: mapped, readable, and as long as the value lives.
        unsafe { std::slice::from_raw_parts(at, bytes as usize) }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len() as u64);
        match self.kind {
            MediumKind::PageCache => {
                // SAFETY: mapped and writable, and the caller's alone.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                self.written(offset, bytes.len() as u64);
            }
            MediumKind::DaxFile | MediumKind::DaxDevice => {
                let whole = bytes.len() / 64 * 64;
                // SAFETY: as above; frames are aligned to 4 KiB and `whole` to 64.
                unsafe {
                    flush::copy_non_temporal(to, &bytes[..whole]);
                    let rest = &bytes[whole..];
                    std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(whole), rest.len());
                }
                if whole < bytes.len() {
                    let tail = offset + whole as u64;
                    flush::write_back(self.read(tail, (bytes.len() - whole) as u64));
                }
                flush::fence();
            }
        }
    }

    fn barrier(&self) -> io::Result<()> {
        match self.kind {
            MediumKind::PageCache => Ok(rustix::fs::fdatasync(&self.file)?),
            MediumKind::DaxFile | MediumKind::DaxDevice => {
                flush::fence();
                Ok(())
            }
        }
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        (self.kind != MediumKind::DaxDevice).then(|| self.file.as_fd())
    }
}

/// Gives a file blocks in a range past its end: a full file system must show here, not as SIGBUS at a store.
///
/// # Errors
/// There is no room.
pub(super) fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from) {
        // Then zeros are written.
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        result => return Ok(result?),
    }
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let part = (to - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], at)?;
        at += part;
    }
    Ok(())
}

/// Gives a file blocks wherever it has none, where the file system can; a store has none in places if an earlier
/// version made it, or if it is a sparse copy.
///
/// # Errors
/// There is no room.
pub(super) fn fill_holes(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.blocks() * 512 >= metadata.len() {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, metadata.len()) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // The reservation stays a little larger than this at both ends; it is only addresses.
        // SAFETY: our own mapping; nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast::<c_void>(), self.reserved as usize) };
    }
}
