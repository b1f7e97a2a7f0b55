use super::*;
use crate::store::file::{Access, Store, path_of};
use crate::store::{Cause, Extent, Pages, Snapshot, SpaceId};

fn own_pages(count: usize) -> (Vec<u8>, usize) {
    let mut bytes = vec![0u8; (count + 1) * PAGE];
    let skip = bytes.as_ptr().align_offset(PAGE);
    for (index, byte) in bytes[skip..].iter_mut().enumerate() {
        *byte = (index / PAGE * 7 + index % 251) as u8;
    }
    (bytes, skip)
}

fn new_store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let path = path_of(directory.path(), "x").unwrap();
    let store = Store::open(&path, "x", Access::Create, None).unwrap();
    (directory, store)
}

/// The pages of this very process, scattered, with a hole among them.
#[test]
fn what_is_copied_is_what_was_there_and_a_hole_is_named() {
    let (_directory, mut store) = new_store();
    let (bytes, skip) = own_pages(1000);
    let first = (bytes.as_ptr().addr() + skip) as u64 / PAGE_BYTES;
    let space = SpaceId(1);
    let mut placed = Vec::new();
    for (page, count) in [(0, 300), (310, 1), (333, 1), (400, 600)] {
        store
            .place(
                Pages {
                    space,
                    first: first + page,
                    count,
                },
                &mut placed,
            )
            .unwrap();
    }
    let good = placed.len();
    // Page 5 is below the lowest address that a program may map.
    store
        .place(
            Pages {
                space,
                first: 5,
                count: 2,
            },
            &mut placed,
        )
        .unwrap();
    let pid = std::process::id() as i32;
    let source = Source::Process(pid);
    let jobs: Vec<_> = placed
        .iter()
        .map(|placement| Job {
            source,
            placement: *placement,
        })
        .collect();
    let copied = copy(store.medium(), &jobs, 2, &AtomicBool::new(false));
    assert_eq!(copied.failed, [902, 903]);
    let mut at = 0;
    for placement in &placed[..good] {
        let sums = &copied.checksums[at..at + placement.count as usize];
        store.stored(placement, sums);
        at += placement.count as usize;
    }
    placed[good..].iter().for_each(|p| store.abandon(p));
    store.commit(b"", Cause::Persist, 1).unwrap();
    let snapshot = store.snapshot().unwrap();
    let extents: Vec<Extent> = snapshot.extents(space).collect();
    assert_eq!(
        extents.iter().map(|e| e.bytes).sum::<u64>(),
        902 * PAGE_BYTES
    );
    for extent in &extents {
        snapshot.check(space, extent).unwrap();
        let from = extent.start as usize - (bytes.as_ptr().addr() + skip) + skip;
        assert!(snapshot.bytes(extent) == &bytes[from..from + extent.bytes as usize]);
    }
    let stored: Vec<_> = (0..300)
        .map(|page| store.engine().checksum_of(space, first + page))
        .collect();
    assert_eq!(differing(source, first, &stored), [0; 0]);
    let mut wrong = stored.clone();
    wrong[77] = Some(1);
    wrong[299] = None;
    assert_eq!(differing(source, first, &wrong), [first + 77, first + 299]);
}

#[test]
fn a_copy_that_is_stopped_says_what_it_did_not_reach() {
    let (_directory, mut store) = new_store();
    let (bytes, skip) = own_pages(10);
    let first = (bytes.as_ptr().addr() + skip) as u64 / PAGE_BYTES;
    let mut placed = Vec::new();
    store
        .place(
            Pages {
                space: SpaceId(1),
                first,
                count: 10,
            },
            &mut placed,
        )
        .unwrap();
    let job = Job {
        source: Source::Process(std::process::id() as i32),
        placement: placed[0],
    };
    let copied = copy(store.medium(), &[job], 1, &AtomicBool::new(true));
    assert_eq!(copied.failed.len(), 10);
}

#[test]
fn the_end_of_a_short_file_reads_as_zeros() {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, &[7; 5000]).unwrap();
    let mut second = vec![0; PAGE];
    second[..5000 - PAGE].fill(7);
    let sums = [Some(checksum(&[7; PAGE])), Some(checksum(&second))];
    assert!(differing(Source::File(&file), 0, &sums).is_empty());
}
