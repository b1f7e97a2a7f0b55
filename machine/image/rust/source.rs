//! Where an image is read from: a file, a block device, a DAX device, or bytes in memory.
//!
//! Files are read, not mapped: another program may truncate a file during the read, and a
//! mapping would turn that into SIGBUS. A DAX device can only be mapped; it does not shrink.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};

/// Why a file or device could not be opened as an image. What is wrong *in* an image is
/// reported by [`SleepImage::inspect`] and [`SleepImage::verify`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// cannot open or read it
    #[error("cannot open {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// a directory, pipe, socket or some other character device
    #[error("{path} is neither a file, a block device nor a DAX device")]
    WrongKind {
        /// The path.
        path: PathBuf,
    },
}

enum Source<'a> {
    File(File),
    Device(MmapRaw),
    Bytes(&'a [u8]),
}

/// A sleep image, or what claims to be one. Nothing in it is trusted.
pub struct SleepImage<'a> {
    source: Source<'a>,
    bytes: u64,
}

impl SleepImage<'static> {
    /// Opens a file (also the kernel's `/sys/power/dormouse/header`, which is one header
    /// copy), a block device, or a DAX device that spans the CXL window.
    ///
    /// # Errors
    /// When it cannot be opened for reading or is of another kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let failed = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        // Asked before opening: opening a pipe would wait for a writer.
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if kind.is_file() || kind.is_block_device() {
            let mut file = File::open(path).map_err(failed)?;
            let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
            return Ok(Self {
                source: Source::File(file),
                bytes,
            });
        }
        if kind.is_char_device() {
            let file = File::open(path).map_err(failed)?;
            if let Some(bytes) = dax_device_bytes(&file).map_err(failed)? {
                let length = usize::try_from(bytes).map_err(|e| failed(io::Error::other(e)))?;
                let map = MmapOptions::new().len(length).map_raw_read_only(&file);
                return Ok(Self {
                    source: Source::Device(map.map_err(failed)?),
                    bytes,
                });
            }
        }
        Err(OpenError::WrongKind {
            path: path.to_owned(),
        })
    }
}

impl<'a> SleepImage<'a> {
    /// The image in `bytes`, which stand for the whole CXL window.
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self {
            source: Source::Bytes(bytes),
            bytes: bytes.len() as u64,
        }
    }

    /// Size of the file or device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `to` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the source ends before; whatever reading a file yields.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.source {
            Source::File(file) => file.read_exact_at(to, offset)?,
            Source::Bytes(bytes) => to.copy_from_slice(&bytes[offset as usize..][..to.len()]),
            // SAFETY: the range lies in the mapping (checked above), which stays until self
            // is dropped. No reference to it is made, since others may write the device.
            Source::Device(map) => unsafe {
                map.as_ptr()
                    .add(offset as usize)
                    .copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
            },
        }
        Ok(())
    }

    /// Like `read_at`, but what lies behind the end reads as zeros.
    pub(crate) fn read_or_zeros(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let there = self.bytes.saturating_sub(offset).min(to.len() as u64) as usize;
        let (there, behind) = to.split_at_mut(there);
        behind.fill(0);
        if there.is_empty() {
            Ok(())
        } else {
            self.read_at(offset, there)
        }
    }
}

/// Size of a DAX device, None for any other character device.
fn dax_device_bytes(file: &File) -> io::Result<Option<u64>> {
    let number = file.metadata()?.rdev();
    // glibc's gnu_dev_major and gnu_dev_minor.
    let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
    let minor = (number & 0xff) | (number >> 12 & !0xff);
    let device = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
    let is_dax = fs::canonicalize(device.join("subsystem")).is_ok_and(|bus| bus.ends_with("dax"));
    if !is_dax {
        return Ok(None);
    }
    let mut text = String::new();
    File::open(device.join("size"))?
        .take(64)
        .read_to_string(&mut text)?;
    text.trim()
        .parse()
        .map(Some)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
