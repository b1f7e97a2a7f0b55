//! The store on a medium that loses power: whatever was not behind a barrier may be there or not,
//! word by word, in any order.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use dormouse_medium::{Contents, Random};
use proptest::prelude::*;

use super::*;
use crate::store::{Extent, Snapshot};

const IDENTITY: u128 = 42;

/// The shared model of a medium behind caches, as this store's medium.
#[derive(Debug)]
struct Simulated {
    /// Never shrinks and is never moved: `read` hands out references into it.
    cache: Mutex<Box<[u8]>>,
    model: Mutex<dormouse_medium::Medium>,
    bytes: std::sync::atomic::AtomicU64,
    /// Writes and barriers until power fails.
    power: std::sync::atomic::AtomicI64,
    seed: u64,
}

impl Simulated {
    fn new(medium: Vec<u8>, bytes: u64, power: i64, seed: u64) -> Self {
        let durable = Contents::from_bytes(&medium);
        Self {
            cache: Mutex::new(medium.into()),
            model: Mutex::new(dormouse_medium::Medium::new(durable)),
            bytes: bytes.into(),
            power: power.into(),
            seed,
        }
    }

    fn power_left(&self) -> bool {
        self.power
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed)
            > 0
    }

    /// Power fails; what is left.
    fn after_power_loss(&self) -> Vec<u8> {
        let model = self.model.lock().unwrap();
        let open = model.uncertain();
        let choice = Random::new(self.seed).choice(&open);
        let left = model.after_power_loss(&open, &choice);
        left.to_bytes(self.cache.lock().unwrap().len())
    }
}

impl Medium for Simulated {
    fn bytes(&self) -> u64 {
        self.bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn grow(&self, bytes: u64) -> std::io::Result<()> {
        if bytes > self.cache.lock().unwrap().len() as u64 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes
            .store(bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, offset: u64, bytes: u64) -> &[u8] {
        assert!(offset + bytes <= self.bytes());
        let cache = self.cache.lock().unwrap();
        // SAFETY: the box is never moved or shrunk; tests run in one thread, and nothing reads
        // a frame while it is written.
        unsafe { std::slice::from_raw_parts(cache.as_ptr().add(offset as usize), bytes as usize) }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if !self.power_left() {
            return;
        }
        assert!(offset + bytes.len() as u64 <= self.bytes());
        let start = offset as usize;
        let mut cache = self.cache.lock().unwrap();
        cache[start..start + bytes.len()].copy_from_slice(bytes);
        let mut model = self.model.lock().unwrap();
        model.write_back(&cache[..], offset, bytes.len() as u64);
    }

    fn barrier(&self) -> std::io::Result<()> {
        if !self.power_left() {
            return Err(std::io::Error::other("no power"));
        }
        self.model.lock().unwrap().fence();
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const CAPACITY: u64 = 8 << 20;

fn blank() -> Vec<u8> {
    vec![0; CAPACITY as usize]
}

/// What a space holds: a page is described by one number.
type Content = BTreeMap<(u32, u64), u64>;

fn page_of(value: u64) -> Vec<u8> {
    (0..PAGE_BYTES / 8)
        .flat_map(|word| (value.wrapping_mul(31) ^ word).to_le_bytes())
        .collect()
}

fn write_pages(
    engine: &mut Engine<Simulated>,
    space: u32,
    page: u64,
    count: u64,
    value: u64,
) -> bool {
    let mut placed = Vec::new();
    if engine
        .place(
            Pages {
                space: SpaceId(space),
                first: page,
                count,
            },
            &mut placed,
        )
        .is_err()
    {
        placed.iter().for_each(|p| engine.abandon(p));
        return false;
    }
    for placement in &placed {
        let mut sums = Vec::new();
        for index in 0..placement.count {
            let bytes = page_of(value + placement.page + u64::from(index));
            engine.write_page(placement, index, &bytes);
            sums.push(checksum(&bytes));
        }
        engine.stored(placement, &sums);
    }
    true
}

fn content_of(engine: &Engine<Simulated>) -> Option<(u64, Vec<u8>, Result<Content, String>)> {
    let snapshot = engine.snapshot("simulated".to_owned())?;
    let mut content = Content::new();
    let mut damaged = None;
    for space in snapshot.spaces() {
        for extent in snapshot.extents(space) {
            if let Err(error) = snapshot.check(space, &extent) {
                damaged = Some(error.to_string());
            }
            for (index, bytes) in snapshot.bytes(&extent).chunks(4096).enumerate() {
                let mut first = [0; 8];
                first.copy_from_slice(&bytes[..8]);
                let page = extent.start / PAGE_BYTES + index as u64;
                content.insert((space.0, page), u64::from_le_bytes(first));
            }
        }
    }
    let content = damaged.map_or(Ok(content), Err);
    Some((snapshot.epoch(), snapshot.description().to_vec(), content))
}

fn expected(content: &Content) -> Content {
    let stamp = |((space, page), value): (&(u32, u64), &u64)| {
        ((*space, *page), value.wrapping_add(*page).wrapping_mul(31))
    };
    content.iter().map(stamp).collect()
}

fn open(medium: Simulated) -> (Engine<Simulated>, Found) {
    Engine::open(Arc::new(medium), IDENTITY, CAPACITY)
}

#[derive(Debug, Clone)]
enum Step {
    Store {
        space: u32,
        page: u64,
        count: u64,
        value: u64,
    },
    Forget {
        space: u32,
        page: u64,
        count: u64,
    },
    ForgetSpace(u32),
    Commit(Cause),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u32..4, 0u64..700, 1u64..200, any::<u32>()).prop_map(|(space, page, count, value)| {
            Step::Store { space, page, count, value: value.into() }
        }),
        2 => (1u32..4, 0u64..700, 1u64..400)
            .prop_map(|(space, page, count)| Step::Forget { space, page, count }),
        1 => (1u32..4).prop_map(Step::ForgetSpace),
        3 => prop_oneof![Just(Cause::Background), Just(Cause::Persist)].prop_map(Step::Commit),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Power fails after any write; lines not behind a barrier are there or not, in any order.
    /// The newest epoch whose commit returned is found, or the one whose commit was under way,
    /// complete, and nothing else. Three lives on one medium, so that space is reused.
    #[test]
    fn the_newest_complete_epoch_survives_power_loss_at_any_instant(
        lives in proptest::collection::vec(
            (proptest::collection::vec(step(), 1..40), 0i64..1500),
            1..4,
        ),
        seed in any::<u64>(),
    ) {
        let mut medium = blank();
        let mut durable: Option<Content> = None;
        let mut label = 0u64;
        let mut size = 2 << 20;
        for (steps, power) in lives {
            let (mut engine, _) = open(Simulated::new(medium, size, power, seed));
            let mut content = durable.clone().unwrap_or_default();
            if durable.is_none() {
                for space in engine.index().spaces() {
                    engine.forget_space(space);
                }
            }
            let mut under_way = None;
            for step in steps {
                match step {
                    Step::Store { space, page, count, value } => {
                        if write_pages(&mut engine, space, page, count, value) {
                            content.extend((page..page + count).map(|p| ((space, p), value)));
                        }
                    }
                    Step::Forget { space, page, count } => {
                        engine.forget(SpaceId(space), page, count);
                        content.retain(|(s, p), _| *s != space || *p < page || *p >= page + count);
                    }
                    Step::ForgetSpace(space) => {
                        engine.forget_space(SpaceId(space));
                        content.retain(|(s, _), _| *s != space);
                    }
                    Step::Commit(cause) => {
                        label += 1;
                        under_way = Some(Some((content.clone(), label)));
                        let done = engine.commit(&label.to_le_bytes(), cause, 3, label);
                        match done {
                            Ok(_) => durable = Some(content.clone()),
                            Err(EngineError::Full { .. }) => under_way = None,
                            Err(EngineError::Io(_)) => break,
                        }
                        if done.is_ok() {
                            under_way = None;
                        }
                    }
                    Step::Clear => {
                        content.clear();
                        under_way = Some(None);
                        match engine.clear(0) {
                            Ok(_) => { durable = None; under_way = None; }
                            Err(EngineError::Full { .. }) => under_way = None,
                            Err(EngineError::Io(_)) => break,
                        }
                    }
                }
            }
            size = engine.medium().bytes();
            medium = engine.medium().after_power_loss();
            let (engine, found) = open(Simulated::new(medium.clone(), size, i64::MAX, seed));
            let restored = content_of(&engine);
            let old = durable.as_ref().map(expected);
            let new = under_way.map(|state| state.map(|(content, _)| expected(&content)));
            match restored {
                None => prop_assert!(
                    old.is_none() || new == Some(None),
                    "nothing found: {:?}", found
                ),
                Some((_, _, content)) => {
                    let content = content.map_err(TestCaseError::fail)?;
                    let is_old = old.as_ref() == Some(&content);
                    let is_new = new == Some(Some(content.clone()));
                    prop_assert!(is_old || is_new, "something else was found: {:?}", found);
                    if !is_old {
                        // What the stamps stand for is not known any more: this life ends here.
                        return Ok(());
                    }
                }
            }
            if engine.root().is_none() {
                durable = None;
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A medium that lies: bits flip, its end is gone, blocks change places. Found is a complete
    /// epoch, a page that is refused, or nothing; never another content.
    #[test]
    fn a_torn_store_is_never_restored_to_something_else(
        harm in proptest::collection::vec((0u8..5, any::<u64>(), any::<u64>()), 1..6),
        seed in any::<u64>(),
    ) {
        let (mut engine, _) = open(Simulated::new(blank(), 4 << 20, i64::MAX, seed));
        let mut epochs = Vec::new();
        let mut content = Content::new();
        for round in 0..5u64 {
            for part in 0..4 {
                let (page, value) = (part * 97 + round * 13, seed % 1000 + round * 1000);
                prop_assert!(write_pages(&mut engine, 1 + part as u32 % 2, page, 40, value));
                content.extend((page..page + 40).map(|p| ((1 + part as u32 % 2, p), value)));
            }
            engine.commit(&round.to_le_bytes(), Cause::Background, 2, 0).unwrap();
            epochs.push(expected(&content));
        }
        let mut medium = engine.medium().after_power_loss();
        let used = 4 << 20;
        let mut size = used as u64;
        for (kind, a, b) in harm {
            // Half of the harm is done where the roots and the first frames are.
            let within = |value: u64, unit: usize| {
                let limit = if value.is_multiple_of(2) { 64 << 10 } else { used };
                (value / 2 % (limit / unit) as u64) as usize * unit
            };
            match kind {
                0 => medium[within(a, 1)] ^= 1 << (b % 8),
                1 => size = size.min((within(a, 4096) as u64).max(3 * 4096)),
                2 => {
                    let (x, y) = (within(a, 4096), within(b, 4096));
                    let (left, right) = (x.min(y), x.max(y));
                    if left != right {
                        let (head, tail) = medium.split_at_mut(right);
                        head[left..left + 4096].swap_with_slice(&mut tail[..4096]);
                    }
                }
                3 => {
                    let at = within(a, 4096);
                    medium[at..at + 4096].fill(0);
                }
                _ => {
                    let (from, to) = (within(a, 512), within(b, 512));
                    medium.copy_within(from..from + 512, to);
                }
            }
        }
        // A file is as long as it is; whole chunks are used.
        let (engine, _) = open(Simulated::new(medium, size, i64::MAX, seed));
        if let Some((_, description, Ok(content))) = content_of(&engine) {
            let mut label = [0; 8];
            label.copy_from_slice(&description);
            prop_assert_eq!(&epochs[u64::from_le_bytes(label) as usize], &content);
        }
    }
}

#[test]
fn superseded_space_is_used_again() {
    let (mut engine, _) = open(Simulated::new(blank(), 2 << 20, i64::MAX, 1));
    for round in 0..200 {
        assert!(write_pages(&mut engine, 1, 0, 200, round));
        engine
            .commit(b"again and again", Cause::Background, 1, 0)
            .unwrap();
    }
    assert!(
        engine.medium().bytes() <= 6 << 20,
        "{}",
        engine.medium().bytes()
    );
}

#[test]
fn a_full_store_keeps_its_last_epoch_and_takes_the_next_one_when_there_is_room() {
    let (mut engine, _) = open(Simulated::new(blank(), 2 << 20, i64::MAX, 1));
    assert!(write_pages(&mut engine, 1, 0, 600, 1));
    engine.commit(b"first", Cause::Background, 1, 0).unwrap();
    assert!(
        !write_pages(&mut engine, 2, 0, 2000, 1),
        "8 MiB are all there is"
    );
    engine.forget_space(SpaceId(1));
    engine.commit(b"second", Cause::Background, 2, 0).unwrap();
    assert!(write_pages(&mut engine, 2, 0, 900, 5));
    engine.commit(b"third", Cause::Persist, 2, 0).unwrap();
    let medium = engine.medium().after_power_loss();
    let (engine, found) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    assert_eq!(found.epoch, Some(3));
    let (_, description, content) = content_of(&engine).unwrap();
    assert_eq!(description, b"third");
    assert_eq!(content.unwrap().len(), 900);
}

#[test]
fn what_a_snapshot_reads_stays_while_later_epochs_are_written() {
    let (mut engine, _) = open(Simulated::new(blank(), 4 << 20, i64::MAX, 1));
    assert!(write_pages(&mut engine, 1, 0, 100, 7));
    engine.commit(b"old", Cause::Persist, 1, 0).unwrap();
    let snapshot = engine.snapshot("test".to_owned()).unwrap();
    let extents: Vec<Extent> = snapshot.extents(SpaceId(1)).collect();
    for round in 0..5 {
        assert!(write_pages(&mut engine, 1, 0, 100, 100 + round));
        engine.commit(b"new", Cause::Background, 1, 0).unwrap();
        for extent in &extents {
            snapshot.check(SpaceId(1), extent).unwrap();
        }
    }
    drop(snapshot);
    assert!(write_pages(&mut engine, 1, 0, 100, 1000));
    engine.commit(b"newer", Cause::Background, 1, 0).unwrap();
}

#[test]
fn densely_filled_memory_fills_whole_aligned_chunks() {
    let (mut engine, _) = open(Simulated::new(blank(), 8 << 20, i64::MAX, 1));
    assert!(write_pages(&mut engine, 1, 512, 1024, 7));
    engine.commit(b"", Cause::Background, 1, 0).unwrap();
    for epoch in 2..6 {
        // Pages come and go between their home and elsewhere.
        assert!(write_pages(&mut engine, 1, 600, 3, epoch));
        engine.commit(b"", Cause::Background, 1, 0).unwrap();
    }
    let medium = engine.medium().after_power_loss();
    let (mut engine, _) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    let snapshot = engine.snapshot("test".to_owned()).unwrap();
    let extents: Vec<Extent> = snapshot.extents(SpaceId(1)).collect();
    assert!(extents.len() <= 3, "{extents:?}");
    for extent in extents
        .iter()
        .filter(|extent| extent.bytes > 3 * PAGE_BYTES)
    {
        assert_eq!(
            extent.start % (2 << 20),
            extent.offset % (2 << 20),
            "{extent:?}"
        );
    }
    drop(snapshot);
    // The homes are found again: a new epoch goes on using them.
    engine.forget(SpaceId(1), 700, 200);
    engine.commit(b"", Cause::Background, 1, 0).unwrap();
    assert!(write_pages(&mut engine, 1, 700, 200, 9));
    let runs: Vec<_> = engine.index().runs(SpaceId(1)).collect();
    assert!(runs.len() <= 6, "{runs:?}");
}

#[test]
fn a_commit_that_failed_on_the_medium_is_the_last_one() {
    let (mut engine, _) = open(Simulated::new(blank(), 4 << 20, 3 + 3 + 1, 1));
    assert!(write_pages(&mut engine, 1, 0, 3, 7));
    assert!(engine.commit(b"x", Cause::Persist, 1, 0).is_err());
    let again = engine.commit(b"x", Cause::Persist, 1, 0).unwrap_err();
    assert!(again.to_string().contains("open the store anew"), "{again}");
}

/// A store as version 1 of the format has it: 1024 pages of one space.
fn store_of_version_1() -> Vec<u8> {
    let mut medium = blank();
    let mut put = |frame: u32, bytes: &[u8]| {
        let at = frame as usize * PAGE_BYTES as usize;
        medium[at..at + bytes.len()].copy_from_slice(bytes);
        Piece {
            frame,
            bytes: bytes.len() as u64,
            checksum: checksum(bytes),
            sums: 0,
        }
    };
    let mut writer = SegmentWriter::of_version_1(IDENTITY);
    let mut sums = Vec::new();
    for page in 0..1024 {
        let bytes = page_of(7 + page);
        put(512 + page as u32, &bytes);
        sums.push(checksum(&bytes));
    }
    writer.run(SpaceId(1), 0, 512, 1, &sums);
    let segment = writer.finish();
    assert!(segment.sums.is_empty());
    let root = Root {
        epoch: 1,
        committed_ns: 0,
        cause: Cause::Persist,
        pages: 1024,
        last_space: 1,
        description: put(10, b"first version"),
        segments: vec![put(20, &segment.head)],
    };
    put(1, &root.encode_as(1, IDENTITY));
    medium
}

#[test]
fn a_store_of_version_1_is_opened_and_goes_on_in_version_2() {
    let medium = store_of_version_1();
    let (mut engine, found) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    assert_eq!((found.epoch, &found.passed_over), (Some(1), &Vec::new()));
    let (_, description, content) = content_of(&engine).unwrap();
    assert_eq!(description, b"first version");
    let mut written: Content = (0..1024).map(|page| ((1, page), 7)).collect();
    assert_eq!(content.unwrap(), expected(&written));
    for epoch in 2..40 {
        assert!(write_pages(&mut engine, 1, 100 + epoch, 20, epoch));
        written.extend((100 + epoch..120 + epoch).map(|page| ((1, page), epoch)));
        engine.commit(b"next", Cause::Background, 1, 0).unwrap();
    }
    let medium = engine.medium().after_power_loss();
    let (engine, found) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    assert_eq!(found.epoch, Some(39));
    assert_eq!(content_of(&engine).unwrap().2.unwrap(), expected(&written));
}

#[test]
fn damage_of_page_checksums_is_reported_by_page_and_never_forgotten() {
    let (mut engine, _) = open(Simulated::new(blank(), CAPACITY, i64::MAX, 1));
    assert!(write_pages(&mut engine, 1, 0, 1024, 7));
    engine.commit(b"", Cause::Persist, 1, 0).unwrap();
    let segment = engine.root().unwrap().segments[0];
    assert_eq!(segment.sums, 2);
    let mut medium = engine.medium().after_power_loss();
    let sums = segment.frame as usize * PAGE_BYTES as usize + segment.sums_at() as usize;
    medium[sums + 8 * 600] ^= 4;
    let damaged = |engine: &Engine<Simulated>| -> Vec<u64> {
        let epoch = engine.snapshot(String::new()).unwrap();
        let found = crate::store::verify::verify(&epoch).damaged;
        found
            .iter()
            .map(|(_, address)| address / PAGE_BYTES)
            .collect()
    };
    let (mut engine, found) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    assert_eq!(found.epoch, Some(1));
    assert_eq!(damaged(&engine), (512..1024).collect::<Vec<_>>());
    assert_eq!(engine.checksum_of(SpaceId(1), 600), None);
    // The index is written anew several times; 40 of the pages are written as well.
    for epoch in 0..60 {
        assert!(write_pages(&mut engine, 1, 600, 40, epoch));
        engine.commit(b"", Cause::Background, 1, 0).unwrap();
    }
    let still: Vec<u64> = (512..1024)
        .filter(|page| !(600..640).contains(page))
        .collect();
    assert_eq!(damaged(&engine), still);
    let medium = engine.medium().after_power_loss();
    let (engine, _) = open(Simulated::new(medium, CAPACITY, i64::MAX, 1));
    assert_eq!(damaged(&engine), still);
}
