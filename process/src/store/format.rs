//! The bytes of a store: superblock and roots. Encoding and checked decoding; index segments are
//! in `segment`.
//!
//! ```text
//!  frame 0        1        2        3 …
//! ┌────────────┬────────┬────────┬──────────────────────────────────────────────────────────┐
//! │ superblock │ root A │ root B │ frames of 4 KiB: pages, index segments, descriptions     │
//! └────────────┴───┬────┴────────┴──────────────────────────────────────────────────────────┘
//!                  │ epoch e: A if e is odd, B if even; the valid one with the higher e counts
//!                  ├─► description      (frame, bytes, checksum)
//!                  └─► segment 0 … n    (frame, bytes, checksum, frames of sums), each applied over
//!                                       those before
//! ```
//!
//! All numbers are little-endian. Nothing here trusts a number that it has read.

use xxhash_rust::xxh3::xxh3_64;

use super::PAGE_BYTES;
use super::error::FormatError;

/// The format's version. Version 1 is read, too: its segments have no sums behind them.
pub const VERSION: u32 = 2;
const FIRST_VERSION: u32 = 1;
/// Frames before the first one that can be allocated: superblock and two roots.
pub const RESERVED_FRAMES: u32 = 3;
/// Index segments that a root can name.
pub const MAX_SEGMENTS: usize = 96;
/// Bytes of a name at most.
pub const MAX_NAME: usize = 200;

const PAGE: usize = PAGE_BYTES as usize;
const SUPER_MAGIC: &[u8; 8] = b"DORMPROC";
const ROOT_MAGIC: &[u8; 8] = b"DORMROOT";
const ROOT_HEADER: usize = 104;

/// The checksum of everything in a store: XXH3, 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// What never changes in a store's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Random; roots and segments carry it, so that those of a former store do not count.
    pub identity: u128,
    /// When it was made, nanoseconds since 1970.
    pub created_ns: u64,
    /// The program's name in the store.
    pub name: String,
}

/// Where a checked piece of metadata lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First frame; the rest follows side by side.
    pub frame: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// XXH3 of these bytes.
    pub checksum: u64,
    /// Frames behind them that this checksum does not cover: page checksums of a segment, whose
    /// digests are among its bytes.
    pub sums: u32,
}

impl Piece {
    /// Frames that it takes, those of its sums included.
    pub fn frames(&self) -> u64 {
        self.bytes
            .div_ceil(PAGE_BYTES)
            .saturating_add(self.sums.into())
    }

    /// Where its sums begin, in bytes from its start.
    pub fn sums_at(&self) -> u64 {
        self.bytes.next_multiple_of(PAGE_BYTES)
    }
}

/// Why an epoch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// By the background sync.
    Background,
    /// By a persist: before a power loss, or on request.
    Persist,
    /// The program ended; there is nothing to restore.
    Cleared,
}

/// The commit record of one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// When it was committed, nanoseconds since 1970.
    pub committed_ns: u64,
    /// Why.
    pub cause: Cause,
    /// Pages that it holds.
    pub pages: u64,
    /// The highest space number given out so far.
    pub last_space: u32,
    /// The tree's description.
    pub description: Piece,
    /// The index, oldest first.
    pub segments: Vec<Piece>,
}

pub(super) fn number(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

pub(super) fn small(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// Puts the checksum of everything before it into the last eight bytes of a frame.
fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(PAGE, 0);
    let sum = checksum(&frame[..PAGE - 8]);
    frame[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// Returns the version.
fn check_seal(frame: &[u8], magic: &[u8; 8], what: &'static str) -> Result<u32, FormatError> {
    if frame.len() < PAGE {
        return Err(FormatError::Bounds {
            what,
            value: frame.len() as u64,
        });
    }
    if &frame[..8] != magic {
        return Err(FormatError::Magic(what));
    }
    let version = small(frame, 8);
    if !(FIRST_VERSION..=VERSION).contains(&version) {
        return Err(FormatError::Version(version));
    }
    if checksum(&frame[..PAGE - 8]) != number(frame, PAGE - 8) {
        return Err(FormatError::Checksum(what));
    }
    Ok(version)
}

impl Superblock {
    /// One frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(PAGE);
        frame.extend_from_slice(SUPER_MAGIC);
        frame.extend_from_slice(&VERSION.to_le_bytes());
        frame.extend_from_slice(&(PAGE as u32).to_le_bytes());
        frame.extend_from_slice(&self.identity.to_le_bytes());
        frame.extend_from_slice(&self.created_ns.to_le_bytes());
        frame.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        frame.extend_from_slice(self.name.as_bytes());
        sealed(frame)
    }

    /// Reads one frame.
    ///
    /// # Errors
    /// It is no superblock, or one of another version, or it was changed.
    pub fn decode(frame: &[u8]) -> Result<Self, FormatError> {
        check_seal(frame, SUPER_MAGIC, "the superblock")?;
        if small(frame, 12) as usize != PAGE {
            return Err(FormatError::Bounds {
                what: "page size",
                value: small(frame, 12).into(),
            });
        }
        let length = small(frame, 40) as usize;
        let name = frame
            .get(44..44 + length.min(MAX_NAME + 1))
            .filter(|_| length <= MAX_NAME)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .ok_or(FormatError::Bounds {
                what: "the name",
                value: length as u64,
            })?;
        let mut identity = [0; 16];
        identity.copy_from_slice(&frame[16..32]);
        Ok(Self {
            identity: u128::from_le_bytes(identity),
            created_ns: number(frame, 32),
            name: name.to_owned(),
        })
    }
}

impl Cause {
    fn code(self) -> u32 {
        match self {
            Self::Background => 1,
            Self::Persist => 2,
            Self::Cleared => 3,
        }
    }

    fn of(code: u32) -> Option<Self> {
        [Self::Background, Self::Persist, Self::Cleared]
            .into_iter()
            .find(|cause| cause.code() == code)
    }
}

fn put_piece(frame: &mut Vec<u8>, piece: &Piece) {
    frame.extend_from_slice(&piece.frame.to_le_bytes());
    frame.extend_from_slice(&piece.sums.to_le_bytes());
    frame.extend_from_slice(&piece.bytes.to_le_bytes());
    frame.extend_from_slice(&piece.checksum.to_le_bytes());
}

fn get_piece(frame: &[u8], at: usize) -> Piece {
    Piece {
        frame: small(frame, at),
        sums: small(frame, at + 4),
        bytes: number(frame, at + 8),
        checksum: number(frame, at + 16),
    }
}

/// A piece without sums: those bytes hold the upper half of its frame's number.
fn plain(piece: Piece, what: &'static str) -> Result<Piece, FormatError> {
    match piece.sums {
        0 => Ok(piece),
        _ => Err(FormatError::Bounds {
            what,
            value: u64::from(piece.sums) << 32 | u64::from(piece.frame),
        }),
    }
}

impl Root {
    /// In which frame this epoch's root lies.
    pub fn frame(epoch: u64) -> u32 {
        if epoch % 2 == 1 { 1 } else { 2 }
    }

    /// One frame; panics with more than [`MAX_SEGMENTS`] segments.
    pub fn encode(&self, identity: u128) -> Vec<u8> {
        self.encode_as(VERSION, identity)
    }

    /// As a version of the format has it.
    pub(super) fn encode_as(&self, version: u32, identity: u128) -> Vec<u8> {
        assert!(self.segments.len() <= MAX_SEGMENTS, "too many segments");
        let mut frame = Vec::with_capacity(PAGE);
        frame.extend_from_slice(ROOT_MAGIC);
        frame.extend_from_slice(&version.to_le_bytes());
        frame.extend_from_slice(&self.cause.code().to_le_bytes());
        frame.extend_from_slice(&identity.to_le_bytes());
        frame.extend_from_slice(&self.epoch.to_le_bytes());
        frame.extend_from_slice(&self.committed_ns.to_le_bytes());
        frame.extend_from_slice(&self.pages.to_le_bytes());
        frame.extend_from_slice(&u64::from(self.last_space).to_le_bytes());
        put_piece(&mut frame, &self.description);
        frame.extend_from_slice(&(self.segments.len() as u64).to_le_bytes());
        frame.resize(ROOT_HEADER, 0);
        for segment in &self.segments {
            put_piece(&mut frame, segment);
        }
        sealed(frame)
    }

    /// Reads one frame.
    ///
    /// # Errors
    /// It is no root of this store, or it was changed or half written.
    pub fn decode(frame: &[u8], identity: u128) -> Result<Self, FormatError> {
        let version = check_seal(frame, ROOT_MAGIC, "the root")?;
        if frame[16..32] != identity.to_le_bytes() {
            return Err(FormatError::Stranger("the root"));
        }
        let code = small(frame, 12);
        let cause = Cause::of(code).ok_or(FormatError::Bounds {
            what: "the root's cause",
            value: code.into(),
        })?;
        let last_space = number(frame, 56);
        let count = number(frame, 88);
        if count > MAX_SEGMENTS as u64 {
            return Err(FormatError::Bounds {
                what: "number of segments",
                value: count,
            });
        }
        let segments = (0..count as usize)
            .map(|index| get_piece(frame, ROOT_HEADER + index * 24))
            .map(|piece| match version {
                FIRST_VERSION => plain(piece, "a segment's frame"),
                _ => Ok(piece),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            epoch: number(frame, 32),
            committed_ns: number(frame, 40),
            cause,
            pages: number(frame, 48),
            last_space: u32::try_from(last_space).map_err(|_| FormatError::Bounds {
                what: "the highest space number",
                value: last_space,
            })?,
            description: plain(get_piece(frame, 64), "the description's frame")?,
            segments,
        })
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
