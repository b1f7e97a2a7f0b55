//! The store: where a program's memory and description lie, epoch by epoch, on a file or on DAX.
//!
//! An *epoch* is one consistent state of a process tree: an opaque description (see `state`) and
//! the contents of pages, each named by a space and an address in it. The newest complete epoch
//! can be restored whatever instant power fails; see docs/reference/process-store.md for the format.

pub mod engine;
pub mod error;
pub mod file;
pub mod flush;
pub mod format;
pub mod frames;
pub mod index;
pub mod leaf;
pub mod lock;
pub mod medium;
pub mod segment;
pub mod snapshot;
pub mod summary;
pub mod sums;
pub mod verify;

use std::ops::Range;
use std::os::fd::BorrowedFd;

pub use engine::{Pages, Placement};
pub use error::StoreError;
pub use file::{Access, Store};
pub use format::Cause;
pub use medium::{MappedFile, MediumKind};
pub use snapshot::StoredEpoch;
pub use summary::Summary;

/// Bytes of a page, of the program's memory and of the store.
pub const PAGE_BYTES: u64 = 4096;

/// Names what pages belong to: an address space, or a shared-memory object (then addresses are
/// offsets in the object). Given out by the tracker; the same over epochs as long as it lives.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct SpaceId(pub u32);

/// Pages that lie side by side in a space and in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Address of the first page in its space, a multiple of [`PAGE_BYTES`].
    pub start: u64,
    /// Length in bytes, a multiple of [`PAGE_BYTES`].
    pub bytes: u64,
    /// Where the first page lies in the store, in bytes, a multiple of [`PAGE_BYTES`]; congruent
    /// with `start` modulo 2 MiB where the surroundings are densely filled.
    pub offset: u64,
    /// The epoch in which these pages were last written: high means hot.
    pub written: u64,
}

impl Extent {
    /// The part of it that lies in a range of addresses, if there is one.
    pub fn within(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.start.max(range.start);
        let end = (self.start + self.bytes).min(range.end);
        (start < end).then(|| Self {
            start,
            bytes: end - start,
            offset: self.offset + (start - self.start),
            written: self.written,
        })
    }
}

/// A page that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{store}: page {address:#x} of space {} does not match its checksum; \
     the medium has changed it, `dormouse process verify` lists all such pages",
    space.0
)]
pub struct DamagedPage {
    /// The store's path.
    pub store: String,
    /// The space of the page.
    pub space: SpaceId,
    /// Its address.
    pub address: u64,
}

/// One complete epoch, to restore from. While it lives, the store reuses none of its pages, also
/// when later epochs are written.
pub trait Snapshot: Send + Sync {
    /// Number of the epoch.
    fn epoch(&self) -> u64;

    /// The description of the tree, checked against its checksum.
    fn description(&self) -> &[u8];

    /// The spaces that have pages, ascending.
    fn spaces(&self) -> Vec<SpaceId>;

    /// The pages of a space as extents, ascending and disjoint; as long as possible among pages
    /// of the same `written`.
    fn extents(&self, space: SpaceId) -> Box<dyn Iterator<Item = Extent> + '_>;

    /// Those parts of them that lie in a range of addresses.
    fn extents_in(
        &self,
        space: SpaceId,
        range: Range<u64>,
    ) -> Box<dyn Iterator<Item = Extent> + '_> {
        let all = self.extents(space);
        Box::new(all.filter_map(move |extent| extent.within(&range)))
    }

    /// The bytes of an extent (or of a part of one) in the mapped store, unchecked.
    fn bytes(&self, extent: &Extent) -> &[u8];

    /// The checksum that the page at this offset of the store was written with; `None` where it is
    /// damaged. Equal ones do not prove equal pages.
    fn checksum(&self, offset: u64) -> Option<u64>;

    /// Compares the pages of an extent (or of a part of one) with their checksums.
    ///
    /// # Errors
    /// The first page that differs.
    fn check(&self, space: SpaceId, extent: &Extent) -> Result<(), DamagedPage>;

    /// The store's file, to map pages from; `None` where private mappings of it are impossible
    /// (a character device).
    fn file(&self) -> Option<BorrowedFd<'_>>;
}
