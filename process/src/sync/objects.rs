//! Shared-memory objects. Writes to them are not tracked, so all of an object is compared with the
//! store.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;

use crate::store::{PAGE_BYTES, Pages, SpaceId, Store};
use crate::track::{PageRange, PageSet};

use super::copy::{Job, copy, differing, parallel, pieces, settle};
use super::read::Source;
use super::round::{Round, SyncError};

/// A shared-memory object of the program.
#[derive(Debug)]
pub struct Object {
    /// Its number in the store.
    pub space: SpaceId,
    /// The object itself.
    pub file: File,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Copies an object to the store: writes what differs; forgets holes and what is past the end.
///
/// # Errors
/// The object cannot be read; the store is full or failed.
pub fn copy_object(
    store: &mut Store,
    object: &Object,
    threads: usize,
    round: &mut Round,
) -> Result<(), SyncError> {
    let data =
        data_ranges(&object.file, object.bytes).map_err(|source| object_error(object, source))?;
    let everything = PageRange {
        page: 0,
        count: 1 << 45,
    };
    let mut holes = PageSet::from_iter([everything]).without(&data);
    for hole in holes.ranges() {
        store.forget(object.space, hole.page, hole.count);
    }
    let source = Source::File(&object.file);
    let engine = store.engine();
    let pieces: Vec<PageRange> = data.iter().flat_map(pieces).collect();
    round.compared_pages += pieces.iter().map(|piece| piece.count).sum::<u64>();
    let changed = parallel(&pieces, threads, |piece| {
        let stored: Vec<_> = (piece.page..piece.end())
            .map(|page| engine.checksum_of(object.space, page))
            .collect();
        differing(source, piece.page, &stored)
    });
    let mut changed: PageSet = changed
        .into_iter()
        .flatten()
        .map(|page| PageRange { page, count: 1 })
        .collect();
    let mut placed = Vec::new();
    for range in changed.ranges() {
        let result = store.place(
            Pages {
                space: object.space,
                first: range.page,
                count: range.count,
            },
            &mut placed,
        );
        if let Err(error) = result {
            placed.iter().for_each(|p| store.abandon(p));
            return Err(error.into());
        }
    }
    let jobs: Vec<Job<'_>> = placed
        .iter()
        .map(|placement| Job {
            source,
            placement: *placement,
        })
        .collect();
    let never = AtomicBool::new(false);
    let copied = copy(store.medium(), &jobs, threads, &never);
    round.stored_pages += (copied.checksums.len() - copied.failed.len()) as u64;
    let whole = copied.failed.is_empty();
    settle(store, &jobs, &copied);
    if whole {
        Ok(())
    } else {
        let source = io::Error::other("a page of it gives an error");
        Err(object_error(object, source))
    }
}

fn object_error(object: &Object, source: io::Error) -> SyncError {
    let (device, inode) = object
        .file
        .metadata()
        .map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()));
    SyncError::Object {
        device,
        inode,
        source,
    }
}

/// The parts of a shared-memory object that are not holes, in pages.
fn data_ranges(file: &File, bytes: u64) -> io::Result<Vec<PageRange>> {
    let mut ranges = PageSet::default();
    let mut at = 0;
    while at < bytes {
        // SAFETY: no memory involved.
        let data = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, libc::SEEK_DATA) };
        if data < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENXIO) => break,
                // Not every file system of memory (hugetlbfs) knows holes.
                Some(libc::EINVAL) => {
                    ranges.add(PageRange {
                        page: at / PAGE_BYTES,
                        count: (bytes - at).div_ceil(PAGE_BYTES),
                    });
                    break;
                }
                _ => return Err(error),
            }
        }
        // SAFETY: no memory involved.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), data, libc::SEEK_HOLE) };
        let end = u64::try_from(hole).unwrap_or(bytes).min(bytes);
        let first = data as u64 / PAGE_BYTES;
        ranges.add(PageRange {
            page: first,
            count: end.div_ceil(PAGE_BYTES) - first,
        });
        at = end;
    }
    Ok(ranges.ranges().to_vec())
}
