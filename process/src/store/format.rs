//! The bytes of a store: superblock, roots, index segments. Encoding and checked decoding.
//!
//! ```text
//!  frame 0        1        2        3 …
//! ┌────────────┬────────┬────────┬──────────────────────────────────────────────────────────┐
//! │ superblock │ root A │ root B │ frames of 4 KiB: pages, index segments, descriptions     │
//! └────────────┴───┬────┴────────┴──────────────────────────────────────────────────────────┘
//!                  │ epoch e: A if e is odd, B if even; the valid one with the higher e counts
//!                  ├─► description      (frame, bytes, checksum)
//!                  └─► segment 0 … n    (frame, bytes, checksum), each applied over those before
//!                        └─ run: space, page …, frame …, one checksum a page
//!                        └─ forget: space, page …        └─ forget-space: space
//! ```
//!
//! All numbers are little-endian. Nothing here trusts a number that it has read.

use xxhash_rust::xxh3::xxh3_64;

use super::error::FormatError;
use super::{PAGE_BYTES, SpaceId};

/// The format's version; another one is refused.
pub const VERSION: u32 = 1;
/// Frames before the first one that can be allocated: superblock and two roots.
pub const RESERVED_FRAMES: u32 = 3;
/// Index segments that a root can name.
pub const MAX_SEGMENTS: usize = 96;
/// Bytes of a name at most.
pub const MAX_NAME: usize = 200;

const PAGE: usize = PAGE_BYTES as usize;
const SUPER_MAGIC: &[u8; 8] = b"DORMPROC";
const ROOT_MAGIC: &[u8; 8] = b"DORMROOT";
const SEGMENT_MAGIC: &[u8; 8] = b"DORMSEGM";
const ROOT_HEADER: usize = 104;
const SEGMENT_HEADER: usize = 32;
const RECORD_HEADER: usize = 40;

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
}

impl Piece {
    /// Frames that it takes.
    pub fn frames(&self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES)
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

/// Pages that lie side by side in a space and in the store, with their checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<'a> {
    /// Whose.
    pub space: SpaceId,
    /// Address of the first one in pages.
    pub page: u64,
    /// Frame of the first one.
    pub frame: u32,
    /// The epoch that wrote them.
    pub written: u64,
    /// One for each page.
    pub checksums: Checksums<'a>,
}

/// Checksums as they lie in a segment, or in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksums<'a> {
    /// Numbers.
    Numbers(&'a [u64]),
    /// Little-endian bytes, eight for each.
    Bytes(&'a [u8]),
}

impl Checksums<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Bytes(bytes) => bytes.len() / 8,
        }
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `index`; panics past the end as a slice does.
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::Numbers(numbers) => numbers[index],
            Self::Bytes(bytes) => number(bytes, index * 8),
        }
    }

    /// Copies all of them to a slice of the same length.
    pub fn copy_to(&self, to: &mut [u64]) {
        match self {
            Self::Numbers(numbers) => to.copy_from_slice(numbers),
            Self::Bytes(bytes) => {
                for (to, from) in to.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *to = u64::from_le_bytes(*from);
                }
            }
        }
    }
}

/// One change to the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// These pages are here now.
    Run(Run<'a>),
    /// These pages are gone.
    Forget {
        /// Whose.
        space: SpaceId,
        /// The first.
        page: u64,
        /// How many.
        count: u64,
    },
    /// The whole space is gone.
    ForgetSpace(SpaceId),
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

fn small(bytes: &[u8], at: usize) -> u32 {
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

fn check_seal(frame: &[u8], magic: &[u8; 8], what: &'static str) -> Result<(), FormatError> {
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
    if version != VERSION {
        return Err(FormatError::Version(version));
    }
    if checksum(&frame[..PAGE - 8]) != number(frame, PAGE - 8) {
        return Err(FormatError::Checksum(what));
    }
    Ok(())
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
    frame.extend_from_slice(&u64::from(piece.frame).to_le_bytes());
    frame.extend_from_slice(&piece.bytes.to_le_bytes());
    frame.extend_from_slice(&piece.checksum.to_le_bytes());
}

fn get_piece(frame: &[u8], at: usize, what: &'static str) -> Result<Piece, FormatError> {
    let first = number(frame, at);
    Ok(Piece {
        frame: u32::try_from(first).map_err(|_| FormatError::Bounds { what, value: first })?,
        bytes: number(frame, at + 8),
        checksum: number(frame, at + 16),
    })
}

impl Root {
    /// In which frame this epoch's root lies.
    pub fn frame(epoch: u64) -> u32 {
        if epoch % 2 == 1 { 1 } else { 2 }
    }

    /// One frame; panics with more than [`MAX_SEGMENTS`] segments.
    pub fn encode(&self, identity: u128) -> Vec<u8> {
        assert!(self.segments.len() <= MAX_SEGMENTS, "too many segments");
        let mut frame = Vec::with_capacity(PAGE);
        frame.extend_from_slice(ROOT_MAGIC);
        frame.extend_from_slice(&VERSION.to_le_bytes());
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
        check_seal(frame, ROOT_MAGIC, "the root")?;
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
            .map(|index| get_piece(frame, ROOT_HEADER + index * 24, "a segment's frame"))
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
            description: get_piece(frame, 64, "the description's frame")?,
            segments,
        })
    }
}

/// Collects the records of one segment.
#[derive(Debug)]
pub struct SegmentWriter {
    bytes: Vec<u8>,
    records: u64,
}

impl SegmentWriter {
    /// An empty segment of the store with this identity.
    pub fn new(identity: u128) -> Self {
        let mut bytes = Vec::with_capacity(PAGE);
        bytes.extend_from_slice(SEGMENT_MAGIC);
        bytes.extend_from_slice(&identity.to_le_bytes());
        bytes.extend_from_slice(&0u64.to_le_bytes());
        Self { bytes, records: 0 }
    }

    fn header(&mut self, kind: u32, space: SpaceId, page: u64, count: u64, frame: u32, at: u64) {
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&space.0.to_le_bytes());
        self.bytes.extend_from_slice(&page.to_le_bytes());
        self.bytes.extend_from_slice(&count.to_le_bytes());
        self.bytes
            .extend_from_slice(&u64::from(frame).to_le_bytes());
        self.bytes.extend_from_slice(&at.to_le_bytes());
        self.records += 1;
    }

    /// Adds one record.
    pub fn push(&mut self, record: &Record<'_>) {
        match record {
            Record::Run(run) => {
                let count = run.checksums.len();
                self.header(1, run.space, run.page, count as u64, run.frame, run.written);
                match run.checksums {
                    Checksums::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
                    Checksums::Numbers(numbers) => {
                        for number in numbers {
                            self.bytes.extend_from_slice(&number.to_le_bytes());
                        }
                    }
                }
            }
            Record::Forget { space, page, count } => self.header(2, *space, *page, *count, 0, 0),
            Record::ForgetSpace(space) => self.header(3, *space, 0, 0, 0, 0),
        }
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// No record at all.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The segment's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[24..32].copy_from_slice(&self.records.to_le_bytes());
        self.bytes
    }
}

/// Reads the records of one segment; the caller has compared its checksum.
///
/// # Errors
/// Not a segment of this store, or a number in it leads outside of it.
pub fn segment_records(bytes: &[u8], identity: u128) -> Result<SegmentReader<'_>, FormatError> {
    if bytes.len() < SEGMENT_HEADER || &bytes[..8] != SEGMENT_MAGIC {
        return Err(FormatError::Magic("a segment"));
    }
    if bytes[8..24] != identity.to_le_bytes() {
        return Err(FormatError::Stranger("a segment"));
    }
    Ok(SegmentReader {
        records: number(bytes, 24),
        rest: &bytes[SEGMENT_HEADER..],
    })
}

/// The records of a segment, in order; ends after the first error.
#[derive(Debug)]
pub struct SegmentReader<'a> {
    rest: &'a [u8],
    records: u64,
}

impl<'a> SegmentReader<'a> {
    fn read(&mut self) -> Result<Record<'a>, FormatError> {
        let short = |value: usize| FormatError::Bounds {
            what: "length of a segment",
            value: value as u64,
        };
        if self.rest.len() < RECORD_HEADER {
            return Err(short(self.rest.len()));
        }
        let (header, rest) = self.rest.split_at(RECORD_HEADER);
        let space = SpaceId(small(header, 4));
        let (page, count, first) = (number(header, 8), number(header, 16), number(header, 24));
        // User addresses end at 2^57 on every x86-64; no sum of two such numbers overflows.
        let most = 1 << 45;
        for (what, value) in [("a page's address", page), ("a number of pages", count)] {
            if value > most {
                return Err(FormatError::Bounds { what, value });
            }
        }
        let (record, rest) = match small(header, 0) {
            1 => {
                let bytes = usize::try_from(count * 8).map_err(|_| short(rest.len()))?;
                let sums = rest.get(..bytes).ok_or_else(|| short(rest.len()))?;
                let frame = u32::try_from(first).map_err(|_| FormatError::Bounds {
                    what: "a run's frame",
                    value: first,
                })?;
                let run = Run {
                    space,
                    page,
                    frame,
                    written: number(header, 32),
                    checksums: Checksums::Bytes(sums),
                };
                (Record::Run(run), &rest[bytes..])
            }
            2 => (Record::Forget { space, page, count }, rest),
            3 => (Record::ForgetSpace(space), rest),
            kind => {
                return Err(FormatError::Bounds {
                    what: "a record's kind",
                    value: kind.into(),
                });
            }
        };
        self.rest = rest;
        Ok(record)
    }
}

impl<'a> Iterator for SegmentReader<'a> {
    type Item = Result<Record<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.records == 0 {
            return (!std::mem::take(&mut self.rest).is_empty()).then_some(Err(
                FormatError::Bounds {
                    what: "length of a segment",
                    value: 0,
                },
            ));
        }
        self.records -= 1;
        let record = self.read();
        if record.is_err() {
            self.records = 0;
            self.rest = &[];
        }
        Some(record)
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
