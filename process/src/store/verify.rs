//! Comparing everything that the newest epoch of a store holds with its checksums.

use super::medium::Medium;
use super::snapshot::StoredEpoch;
use super::{Extent, PAGE_BYTES, Snapshot, SpaceId};

/// What a verification found.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Verification {
    /// The epoch that was looked at.
    pub epoch: u64,
    /// Bytes of pages that were compared.
    pub page_bytes: u64,
    /// Spaces that have pages.
    pub spaces: usize,
    /// Extents: what restore reads in one piece.
    pub extents: usize,
    /// Pages that differ: space and address.
    pub damaged: Vec<(u32, u64)>,
}

/// Compares every page of an epoch. Its description and its index were compared when it was
/// opened.
pub fn verify<M: Medium>(epoch: &StoredEpoch<M>) -> Verification {
    let all: Vec<(SpaceId, Extent)> = epoch
        .spaces()
        .into_iter()
        .flat_map(|space| epoch.extents(space).map(move |extent| (space, extent)))
        .collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let damaged = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                let mine = all.iter().skip(first).step_by(threads);
                scope.spawn(move || {
                    mine.flat_map(|(space, extent)| damaged_pages(epoch, *space, extent))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let results = workers.into_iter().filter_map(|worker| worker.join().ok());
        results.flatten().collect::<Vec<_>>()
    });
    let mut damaged = damaged;
    damaged.sort_unstable();
    Verification {
        epoch: epoch.epoch(),
        page_bytes: all.iter().map(|(_, extent)| extent.bytes).sum(),
        spaces: epoch.spaces().len(),
        extents: all.len(),
        damaged,
    }
}

fn damaged_pages<M: Medium>(
    epoch: &StoredEpoch<M>,
    space: SpaceId,
    extent: &Extent,
) -> Vec<(u32, u64)> {
    if epoch.check(space, extent).is_ok() {
        return Vec::new();
    }
    let pages = (0..extent.bytes / PAGE_BYTES).map(|index| Extent {
        start: extent.start + index * PAGE_BYTES,
        bytes: PAGE_BYTES,
        offset: extent.offset + index * PAGE_BYTES,
        written: extent.written,
    });
    pages
        .filter(|page| epoch.check(space, page).is_err())
        .map(|page| (space.0, page.start))
        .collect()
}
