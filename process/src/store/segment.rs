//! The bytes of an index segment: what has changed, record by record. Encoding and checked decoding.
//!
//! ```text
//!  head, under the root's checksum                               sums, whole frames
//! ┌───────┬──────────┬─────────┬────────┬─────────────────────┐ ┌───────────┬───────────┬────
//! │ magic │ identity │ records │ record │ record, digests …   │ │ 512 sums  │ 512 sums  │ …
//! └───────┴──────────┴─────────┴────────┴──────────────┬──────┘ └─────▲─────┴───────────┴────
//!                                                      └─ digest of ──┘
//!  record: kind, space, page, count, frame, epoch
//!    1 run            its sums follow, one a page
//!    4 long run       its sums lie behind the head; their digests follow, one for 512 of them
//!    2 forget         these pages are gone         3 forget-space    this space is gone
//! ```
//!
//! A segment is opened in time proportional to its head: sums of long runs are read, and compared
//! with their digests, when their pages are used (a hash tree, Merkle 1987). Nothing here trusts
//! a number that it has read.

use super::error::FormatError;
use super::format::{checksum, number, small};
use super::{PAGE_BYTES, SpaceId};

/// Page checksums under one digest: a frame of them.
pub const BLOCK_SUMS: usize = PAGE_BYTES as usize / 8;

const MAGIC: &[u8; 8] = b"DORMSEGM";
const HEADER: usize = 32;
const RECORD_HEADER: usize = 40;
/// From this length on a run's sums lie apart; below it they take no more room than the digest
/// and the record.
const LONG_RUN: usize = 8;

const RUN: u32 = 1;
const FORGET: u32 = 2;
const FORGET_SPACE: u32 = 3;
const LONG: u32 = 4;

/// Pages that lie side by side in a space and in the store, and where their checksums are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<'a> {
    /// Whose.
    pub space: SpaceId,
    /// Address of the first one in pages.
    pub page: u64,
    /// How many.
    pub count: u32,
    /// Frame of the first one.
    pub frame: u32,
    /// The epoch that wrote them.
    pub written: u64,
    /// Where their checksums lie, in bytes from the segment's start: little-endian, eight for each.
    pub sums_at: u64,
    /// Little-endian digests of [`BLOCK_SUMS`] of these checksums each (the last one of what is
    /// left); empty where the segment's own checksum covers them.
    pub digests: &'a [u8],
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

/// A segment as it is written.
#[derive(Debug)]
pub struct Segment {
    /// What the root's checksum covers.
    pub head: Vec<u8>,
    /// What lies in the frames behind it.
    pub sums: Vec<u8>,
}

/// Collects the records of one segment.
#[derive(Debug)]
pub struct SegmentWriter {
    head: Vec<u8>,
    sums: Vec<u8>,
    records: u64,
    long_run: usize,
}

impl SegmentWriter {
    /// An empty segment of the store with this identity.
    pub fn new(identity: u128) -> Self {
        let mut head = Vec::with_capacity(PAGE_BYTES as usize);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&identity.to_le_bytes());
        head.extend_from_slice(&0u64.to_le_bytes());
        Self {
            head,
            sums: Vec::new(),
            records: 0,
            long_run: LONG_RUN,
        }
    }

    /// As version 1 of the format has it: all sums among the records.
    #[cfg(test)]
    pub fn of_version_1(identity: u128) -> Self {
        Self {
            long_run: usize::MAX,
            ..Self::new(identity)
        }
    }

    fn header(&mut self, kind: u32, space: SpaceId, page: u64, count: u64, frame: u32, at: u64) {
        self.head.extend_from_slice(&kind.to_le_bytes());
        self.head.extend_from_slice(&space.0.to_le_bytes());
        self.head.extend_from_slice(&page.to_le_bytes());
        self.head.extend_from_slice(&count.to_le_bytes());
        self.head.extend_from_slice(&u64::from(frame).to_le_bytes());
        self.head.extend_from_slice(&at.to_le_bytes());
        self.records += 1;
    }

    /// Pages of a space, from `page` on, lie in the frames from `frame` on since epoch `written`;
    /// `sums` has one checksum for each.
    pub fn run(&mut self, space: SpaceId, page: u64, frame: u32, written: u64, sums: &[u64]) {
        let long = sums.len() >= self.long_run;
        let kind = if long { LONG } else { RUN };
        self.header(kind, space, page, sums.len() as u64, frame, written);
        let to = if long { &mut self.sums } else { &mut self.head };
        let start = to.len();
        to.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
        if long {
            for block in self.sums[start..].chunks(BLOCK_SUMS * 8) {
                self.head.extend_from_slice(&checksum(block).to_le_bytes());
            }
        }
    }

    /// Pages of a space are gone.
    pub fn forget(&mut self, space: SpaceId, page: u64, count: u64) {
        self.header(FORGET, space, page, count, 0, 0);
    }

    /// A space is gone.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.header(FORGET_SPACE, space, 0, 0, 0, 0);
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// No record at all.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The segment.
    pub fn finish(mut self) -> Segment {
        self.head[24..32].copy_from_slice(&self.records.to_le_bytes());
        Segment {
            head: self.head,
            sums: self.sums,
        }
    }
}

/// Reads the records of one segment; the caller has compared the checksum of its head. `sums` is
/// the number of page checksums that fit behind it.
///
/// # Errors
/// Not a segment of this store, or a number in it leads outside of it.
pub fn segment_records(
    head: &[u8],
    sums: u64,
    identity: u128,
) -> Result<SegmentReader<'_>, FormatError> {
    if head.len() < HEADER || &head[..8] != MAGIC {
        return Err(FormatError::Magic("a segment"));
    }
    if head[8..24] != identity.to_le_bytes() {
        return Err(FormatError::Stranger("a segment"));
    }
    let behind = (head.len() as u64).next_multiple_of(PAGE_BYTES);
    Ok(SegmentReader {
        records: number(head, 24),
        length: head.len() as u64,
        rest: &head[HEADER..],
        sums_at: behind,
        sums_end: behind + sums * 8,
    })
}

/// The records of a segment, in order; ends after the first error.
#[derive(Debug)]
pub struct SegmentReader<'a> {
    rest: &'a [u8],
    length: u64,
    records: u64,
    /// Where the sums of the next long run lie.
    sums_at: u64,
    sums_end: u64,
}

impl<'a> SegmentReader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], FormatError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let short = FormatError::Bounds {
            what: "length of a segment",
            value: self.rest.len() as u64,
        };
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn read(&mut self) -> Result<Record<'a>, FormatError> {
        let header = self.take(RECORD_HEADER as u64)?;
        let space = SpaceId(small(header, 4));
        let (page, count, first) = (number(header, 8), number(header, 16), number(header, 24));
        // User addresses end at 2^57 on every x86-64; no sum of two such numbers overflows.
        let max = 1 << 45;
        for (what, value) in [("a page's address", page), ("a number of pages", count)] {
            if value > max {
                return Err(FormatError::Bounds { what, value });
            }
        }
        match small(header, 0) {
            kind @ (RUN | LONG) => {
                let out = |what, value| FormatError::Bounds { what, value };
                let frame = u32::try_from(first).map_err(|_| out("a run's frame", first))?;
                let (sums_at, digests) = if kind == RUN {
                    let at = self.length - self.rest.len() as u64;
                    self.take(count * 8)?;
                    (at, &[][..])
                } else {
                    let at = self.sums_at;
                    self.sums_at += count * 8;
                    if self.sums_at > self.sums_end {
                        return Err(out("number of a segment's sums", count));
                    }
                    (at, self.take(count.div_ceil(BLOCK_SUMS as u64) * 8)?)
                };
                Ok(Record::Run(Run {
                    space,
                    page,
                    count: u32::try_from(count).map_err(|_| out("a run's length", count))?,
                    frame,
                    written: number(header, 32),
                    sums_at,
                    digests,
                }))
            }
            FORGET => Ok(Record::Forget { space, page, count }),
            FORGET_SPACE => Ok(Record::ForgetSpace(space)),
            kind => Err(FormatError::Bounds {
                what: "a record's kind",
                value: kind.into(),
            }),
        }
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
#[path = "segment_tests.rs"]
mod tests;
