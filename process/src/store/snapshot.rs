//! One complete epoch of a store, to restore from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::format::checksum;
use super::index::PageRun;
use super::medium::Medium;
use super::sums::Sums;
use super::{DamagedPage, Extent, PAGE_BYTES, Snapshot, SpaceId};

/// See [`Snapshot`].
#[derive(Debug)]
pub struct StoredEpoch<M> {
    pub(super) medium: Arc<M>,
    pub(super) label: String,
    pub(super) epoch: u64,
    pub(super) description: Vec<u8>,
    pub(super) spaces: BTreeMap<SpaceId, Vec<PageRun>>,
    pub(super) sums: Sums,
    /// While it lives, superseded frames are not reused.
    pub(super) _pin: Arc<()>,
}

fn extent_of(run: &PageRun) -> Extent {
    Extent {
        start: run.page * PAGE_BYTES,
        bytes: u64::from(run.count) * PAGE_BYTES,
        offset: u64::from(run.frame) * PAGE_BYTES,
        written: run.written,
    }
}

impl<M: Medium> Snapshot for StoredEpoch<M> {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn description(&self) -> &[u8] {
        &self.description
    }

    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.keys().copied().collect()
    }

    fn extents(&self, space: SpaceId) -> Box<dyn Iterator<Item = Extent> + '_> {
        let runs = self.spaces.get(&space).into_iter().flatten();
        Box::new(runs.map(extent_of))
    }

    fn extents_in(
        &self,
        space: SpaceId,
        range: Range<u64>,
    ) -> Box<dyn Iterator<Item = Extent> + '_> {
        let runs = self.spaces.get(&space).map_or(&[][..], Vec::as_slice);
        let first = range.start / PAGE_BYTES;
        let skip = runs.partition_point(|run| run.page + u64::from(run.count) <= first);
        let runs = runs[skip..].iter().map(extent_of);
        Box::new(
            runs.take_while({
                let end = range.end;
                move |extent| extent.start < end
            })
            .filter_map(move |extent| extent.within(&range)),
        )
    }

    fn bytes(&self, extent: &Extent) -> &[u8] {
        self.medium.read(extent.offset, extent.bytes)
    }

    fn checksum(&self, offset: u64) -> Option<u64> {
        self.sums.get(&*self.medium, (offset / PAGE_BYTES) as u32)
    }

    fn check(&self, space: SpaceId, extent: &Extent) -> Result<(), DamagedPage> {
        let first = (extent.offset / PAGE_BYTES) as u32;
        let pages = self.bytes(extent).chunks(PAGE_BYTES as usize);
        for (index, bytes) in pages.enumerate() {
            let written = self.sums.get(&*self.medium, first + index as u32);
            if written != Some(checksum(bytes)) {
                return Err(DamagedPage {
                    store: self.label.clone(),
                    space,
                    address: extent.start + index as u64 * PAGE_BYTES,
                });
            }
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.medium.file()
    }
}
