//! Why an image is not sealed, or not opened.

use std::io;

/// Everything that ends sealing or opening. All but `Io`, `Random` and `Consumer` mean that the
/// image must not be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// the machine has no random numbers
    #[error("the operating system gives no random numbers; nothing is sealed without them")]
    Random,
    /// more data than one image has room for
    #[error("an image has room for {limit} bytes of the kernel's pages, and there are more")]
    TooLong {
        /// Bytes of 2^32 - 1 chunks.
        limit: u64,
    },
    /// an algorithm of another version
    #[error("the image is sealed with algorithm {found}, which this version does not know")]
    Algorithm {
        /// The number in the header.
        found: u32,
    },
    /// bytes in the header's encryption record that must be zero
    #[error("the image's encryption record has bytes set that this version does not know")]
    Reserved,
    /// the key is another one
    #[error("the image was sealed with another key; unlock the key that it names")]
    WrongKey,
    /// header, bitmaps, digests or table of tags were changed
    #[error("the image's metadata was changed after it was sealed")]
    Metadata,
    /// the image was replaced by an older one
    #[error("the image is an older one: it has counter {image}, the machine stands at {machine}")]
    Older {
        /// The image's.
        image: u64,
        /// The monotonic counter's.
        machine: u64,
    },
    /// a chunk was changed, moved, left out or taken from another image
    #[error("chunk {index} of the kernel's pages was changed after it was sealed")]
    Chunk {
        /// Its number, from 0.
        index: u64,
    },
    /// the data ends early
    #[error("the kernel's pages end after {found} of {expected} bytes")]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes that were sealed.
        expected: u64,
    },
    /// data after the last chunk
    #[error("there is more data than the {expected} bytes that were sealed")]
    Longer {
        /// Bytes that were sealed.
        expected: u64,
    },
    /// reading or writing failed
    #[error("reading or writing the image: {0}")]
    Io(#[from] io::Error),
}

impl SealError {
    /// A name for scripts and logs that stays the same.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::TooLong { .. } => "too-long",
            Self::Algorithm { .. } => "algorithm",
            Self::Reserved => "reserved",
            Self::WrongKey => "wrong-key",
            Self::Metadata => "metadata",
            Self::Older { .. } => "older",
            Self::Chunk { .. } => "chunk",
            Self::Truncated { .. } => "truncated",
            Self::Longer { .. } => "longer",
            Self::Io(_) => "io",
        }
    }
}
