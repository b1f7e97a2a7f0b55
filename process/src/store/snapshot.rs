//! One complete epoch of a store, to restore from.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::format::checksum;
use super::index::PageRun;
use super::medium::Medium;
use super::{DamagedPage, Extent, PAGE_BYTES, Snapshot, SpaceId};

/// See [`Snapshot`].
#[derive(Debug)]
pub struct StoredEpoch<M> {
    pub(super) medium: Arc<M>,
    pub(super) label: String,
    pub(super) epoch: u64,
    pub(super) description: Vec<u8>,
    pub(super) spaces: BTreeMap<SpaceId, Vec<PageRun>>,
    /// By frame.
    pub(super) checksums: Vec<u64>,
    /// While it lives, superseded frames are not reused.
    pub(super) _pin: Arc<()>,
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
        Box::new(runs.map(|run| Extent {
            start: run.page * PAGE_BYTES,
            bytes: u64::from(run.count) * PAGE_BYTES,
            offset: u64::from(run.frame) * PAGE_BYTES,
            written: run.written,
        }))
    }

    fn bytes(&self, extent: &Extent) -> &[u8] {
        self.medium.read(extent.offset, extent.bytes)
    }

    fn check(&self, space: SpaceId, extent: &Extent) -> Result<(), DamagedPage> {
        let first = (extent.offset / PAGE_BYTES) as usize;
        let pages = self.bytes(extent).chunks(PAGE_BYTES as usize);
        for (index, bytes) in pages.enumerate() {
            if checksum(bytes) != self.checksums[first + index] {
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
