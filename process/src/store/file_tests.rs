use super::*;
use crate::store::Snapshot;
use crate::store::format::checksum;
use crate::store::summary::{list, summary};
use crate::store::verify::verify;

fn store_in(directory: &Path) -> PathBuf {
    path_of(directory, "cache").unwrap()
}

fn fill(store: &mut Store, value: u8) {
    let mut placed = Vec::new();
    store
        .place(
            Pages {
                space: SpaceId(1),
                first: 16,
                count: 300,
            },
            &mut placed,
        )
        .unwrap();
    for placement in &placed {
        let page = [value; PAGE_BYTES as usize];
        let bytes: Vec<u8> = page.repeat(placement.count as usize);
        store.medium().write(placement.offset(), &bytes);
        store.stored(placement, &vec![checksum(&page); placement.count as usize]);
    }
}

/// A store with one epoch of filled pages.
fn committed(directory: &Path) -> (PathBuf, Store) {
    let path = store_in(directory);
    let mut store = Store::open(&path, "cache", Access::Create, None).unwrap();
    fill(&mut store, 7);
    store.commit(b"", Cause::Persist, 1).unwrap();
    (path, store)
}

#[test]
fn an_epoch_is_there_after_the_store_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(directory.path());
    let mut store = Store::open(&path, "cache", Access::Create, None).unwrap();
    assert!(store.root().is_none());
    fill(&mut store, 7);
    assert_eq!(store.commit(b"hello", Cause::Persist, 1).unwrap(), 1);
    drop(store);

    let summary = summary(&path).unwrap();
    let epoch = summary.epoch.unwrap();
    assert_eq!((epoch.number, epoch.page_bytes), (1, 300 * PAGE_BYTES));
    assert_eq!(summary.in_use_by, None);

    let store = Store::open(&path, "cache", Access::Read, None).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.description(), b"hello");
    let result = verify(&snapshot);
    assert_eq!(
        (result.page_bytes, result.damaged.len()),
        (300 * PAGE_BYTES, 0)
    );
}

#[test]
fn a_store_has_all_its_blocks_also_if_it_had_holes() {
    // A file system that compresses has fewer blocks than bytes.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = store_in(directory.path());
    let holes = || {
        let metadata = std::fs::metadata(&path).unwrap();
        metadata.len().saturating_sub(metadata.blocks() * 512)
    };
    drop(Store::open(&path, "cache", Access::Create, None).unwrap());
    assert_eq!(holes(), 0);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(2 * FIRST_BYTES).unwrap();
    drop(file);
    assert_eq!(holes(), FIRST_BYTES);
    drop(Store::open(&path, "cache", Access::Create, None).unwrap());
    assert_eq!(holes(), 0);
}

#[test]
fn a_store_has_one_writer_at_a_time_and_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(directory.path());
    let store = Store::open(&path, "cache", Access::Create, None).unwrap();
    let error = Store::open(&path, "cache", Access::Write, None).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    assert!(summary(&path).unwrap().in_use_by.is_some());
    drop(store);
    Store::open(&path, "cache", Access::Write, None).unwrap();
}

/// `status` at the very instant of a start.
#[test]
fn a_writer_waits_for_readers() {
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(directory.path());
    drop(Store::open(&path, "cache", Access::Create, None).unwrap());
    let reader = Store::open(&path, "cache", Access::Read, None).unwrap();
    let looking = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(reader);
    });
    Store::open(&path, "cache", Access::Write, None).unwrap();
    looking.join().unwrap();
}

#[test]
fn other_files_other_names_and_other_versions_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(directory.path());
    let open = |name: &str| Store::open(&path, name, Access::Write, None).unwrap_err();
    assert!(matches!(open("cache"), StoreError::Missing { .. }));
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert!(matches!(open("cache"), StoreError::Foreign { .. }));
    std::fs::write(&path, [0; 10]).unwrap();
    assert!(matches!(open("cache"), StoreError::Foreign { .. }));
    std::fs::remove_file(&path).unwrap();
    drop(Store::open(&path, "cache", Access::Create, None).unwrap());
    assert!(matches!(open("web"), StoreError::OtherName { .. }));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 99;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        open("cache"),
        StoreError::Version { found: 99, .. }
    ));
    bytes[8] = 1;
    bytes[50] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(open("cache"), StoreError::Damaged { .. }));
    for bad in ["", ".x", "a/b", "-x", "a b"] {
        assert!(path_of(directory.path(), bad).is_err(), "{bad}");
    }
}

#[test]
fn a_limit_is_kept_and_the_last_epoch_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = store_in(directory.path());
    let mut store = Store::open(&path, "cache", Access::Create, Some(16 << 20)).unwrap();
    fill(&mut store, 7);
    store.commit(b"first", Cause::Persist, 1).unwrap();
    let error = store.reserve(64 << 20).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.to_string().contains("--store-size"), "{error}");
    let mut placed = Vec::new();
    assert!(
        store
            .place(
                Pages {
                    space: SpaceId(2),
                    first: 0,
                    count: 10_000
                },
                &mut placed
            )
            .is_err()
    );
    placed.iter().for_each(|placement| store.abandon(placement));
    drop(store);
    let store = Store::open(&path, "cache", Access::Read, None).unwrap();
    assert_eq!(store.snapshot().unwrap().description(), b"first");
}

#[test]
fn a_damaged_page_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (path, store) = committed(directory.path());
    let extent = store
        .snapshot()
        .unwrap()
        .extents(SpaceId(1))
        .next()
        .unwrap();
    drop(store);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[8], extent.offset + 4096 + 5).unwrap();
    let store = Store::open(&path, "cache", Access::Read, None).unwrap();
    let result = verify(&store.snapshot().unwrap());
    assert_eq!(result.damaged, [(1, extent.start + 4096)]);
}

#[test]
fn nothing_is_left_to_restore_after_clear_and_nothing_at_all_after_remove() {
    let directory = tempfile::tempdir().unwrap();
    let (path, mut store) = committed(directory.path());
    store.clear().unwrap();
    assert!(store.snapshot().is_none());
    drop(store);
    assert!(summary(&path).unwrap().epoch.is_none());
    let mut store = Store::open(&path, "cache", Access::Write, None).unwrap();
    assert!(store.root().is_none());
    store.remove().unwrap();
    assert!(list(directory.path()).unwrap().is_empty());
}
