use super::*;
use crate::store::file::{Access, Store, path_of};
use crate::store::{Cause, Extent, PAGE_BYTES, Pages, Snapshot, SpaceId};
use crate::sync::read::Sharing;

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
    let source = Source::Process {
        pid,
        sharing: Sharing::Never,
    };
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
fn what_threads_could_not_read_is_read_once_more_and_put_in_its_place() {
    let (_directory, mut store) = new_store();
    let (bytes, skip) = own_pages(400);
    let first = (bytes.as_ptr().addr() + skip) as u64 / PAGE_BYTES;
    let mut placed = Vec::new();
    // Page 5 is below the lowest address that a program may map.
    for (first, count) in [(first, 300), (5, 1), (first + 301, 99)] {
        let space = SpaceId(1);
        let pages = Pages {
            space,
            first,
            count,
        };
        store.place(pages, &mut placed).unwrap();
    }
    let source = Source::Process {
        pid: std::process::id() as i32,
        sharing: Sharing::Never,
    };
    let job = |placement: &Placement| Job {
        source,
        placement: *placement,
    };
    let jobs: Vec<_> = placed.iter().map(job).collect();
    let mut copied = copy(store.medium(), &jobs, 2, &AtomicBool::new(false));
    assert_eq!(copied.failed, [300]);
    let checksums = copied.checksums.clone();
    copied.failed = vec![0, 7, 8, 9, 299, 300, 301, 399];
    for position in &copied.failed {
        copied.checksums[*position] = 0;
    }
    copy_as_tracer(store.medium(), &jobs, &mut copied);
    assert_eq!(copied.failed, [300]);
    copied.checksums[300] = checksums[300];
    assert!(copied.checksums == checksums);
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
        source: Source::Process {
            pid: std::process::id() as i32,
            sharing: Sharing::Never,
        },
        placement: placed[0],
    };
    let copied = copy(store.medium(), &[job], 1, &AtomicBool::new(true));
    assert_eq!(copied.failed.len(), 10);
}

#[test]
fn the_end_of_a_short_file_reads_as_zeros() {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &[7; 5000]).unwrap();
    let mut second = vec![0; PAGE];
    second[..5000 - PAGE].fill(7);
    let sums = [Some(checksum(&[7; PAGE])), Some(checksum(&second))];
    assert!(differing(Source::File(&file), 0, &sums).is_empty());
}

/// Memory of this process with a copy of it in a child, which only waits.
struct WithChild {
    child: i32,
    start: *mut u8,
    bytes: usize,
}

impl WithChild {
    /// So many pages; every third one is written again behind the fork, so that it is no longer shared.
    fn new(pages: usize) -> Self {
        let bytes = pages * PAGE;
        // SAFETY: new memory, which only this test uses; the child calls nothing that a fork forbids.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<u8>();
            libc::madvise(start.cast(), bytes, libc::MADV_NOHUGEPAGE);
            for page in 0..pages {
                start.add(page * PAGE).write_bytes(page as u8 + 1, PAGE);
            }
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
            for page in (0..pages).step_by(3) {
                start.add(page * PAGE).write(page as u8 + 1);
            }
            WithChild {
                child,
                start,
                bytes,
            }
        }
    }

    /// Of each page, whether it is mapped once.
    fn exclusive(&self) -> Vec<bool> {
        let pagemap = dormouse_system::proc::pagemap::open(std::process::id() as i32).unwrap();
        let mut records = vec![0; self.bytes / PAGE * 8];
        let at = (self.start.addr() / PAGE * 8) as u64;
        std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut records, at).unwrap();
        records.chunks(8).map(|record| record[7] & 1 != 0).collect()
    }

    fn differing(&self, sharing: Sharing) -> Vec<u64> {
        self.differing_from(0, sharing)
    }

    fn differing_from(&self, page: usize, sharing: Sharing) -> Vec<u64> {
        let pid = std::process::id() as i32;
        let expected = |page: usize| Some(checksum(&[page as u8 + 1; PAGE]));
        let stored: Vec<_> = (page..self.bytes / PAGE).map(expected).collect();
        let first = (self.start.addr() / PAGE + page) as u64;
        differing(Source::Process { pid, sharing }, first, &stored)
    }
}

impl Drop for WithChild {
    fn drop(&mut self) {
        // SAFETY: both are this test's.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
            libc::munmap(self.start.cast(), self.bytes);
        }
    }
}

#[test]
fn what_a_parent_and_a_child_share_is_read_and_stays_shared() {
    let memory = WithChild::new(100);
    let before = memory.exclusive();
    let expected: Vec<bool> = (0..100).map(|page| page % 3 == 0).collect();
    assert_eq!(before, expected);
    assert_eq!(memory.differing(Sharing::Possible), [0; 0]);
    assert_eq!(memory.exclusive(), before);
    // It has forked since it was last looked at: the first page says so.
    assert_eq!(memory.differing_from(1, Sharing::NotYet), [0; 0]);
    assert_eq!(memory.exclusive(), before);
    // The reason for it: what is pinned gets pages of its own.
    assert_eq!(memory.differing(Sharing::Never), [0; 0]);
    assert_eq!(memory.exclusive(), [true; 100]);
}
