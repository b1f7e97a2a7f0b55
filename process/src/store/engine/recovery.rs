//! Opens a store: finds the newest complete epoch without trusting the medium.

use std::sync::Arc;

use super::super::PAGE_BYTES;
use super::super::error::FormatError;
use super::super::format::{Piece, RESERVED_FRAMES, Root, checksum};
use super::super::frames::{CHUNK_FRAMES, Frames};
use super::super::index::{Index, LEAF_PAGES, PageRun};
use super::super::medium::Medium;
use super::super::segment::{BLOCK_SUMS, Record, segment_records};
use super::super::sums;
use super::super::sums::Sums;
use super::{Engine, HOME_PAGES};

/// What was found in the two places for roots.
#[derive(Debug)]
pub struct Found {
    /// The newest complete epoch, if there is one.
    pub epoch: Option<u64>,
    /// What was passed over on the way to it, and why.
    pub passed_over: Vec<String>,
}

impl<M: Medium> Engine<M> {
    /// Reads the newest complete epoch. `largest` is what the store may grow to, in bytes.
    ///
    /// An epoch counts only if its root, all its index segments and its description match their
    /// checksums. The pages of the newest one were durable before its root was written, so they
    /// are compared when they are used. Where the other root is unreadable, or what it names,
    /// the one that is left may be older than its pages: then all of them are compared first.
    pub fn open(medium: Arc<M>, identity: u128, largest: u64) -> (Self, Found) {
        let mut passed_over = Vec::new();
        let roots = read_roots(&*medium, identity, &mut passed_over);
        let highest = roots.first().map_or(0, |root| root.epoch);
        for root in roots {
            let number = root.epoch;
            let mut engine = Self::empty(Arc::clone(&medium), identity, largest, number + 1);
            let doubt = !passed_over.is_empty();
            let loaded = engine.load(root).and_then(|()| match doubt {
                true => engine.check_pages(),
                false => Ok(()),
            });
            match loaded {
                Ok(()) => {
                    let epoch = engine.epoch();
                    return (engine, Found { epoch, passed_over });
                }
                Err(error) => passed_over.push(format!("epoch {number}: {error}")),
            }
        }
        let engine = Self::empty(medium, identity, largest, highest + 1);
        let epoch = None;
        (engine, Found { epoch, passed_over })
    }

    fn empty(medium: Arc<M>, identity: u128, largest: u64, next_epoch: u64) -> Self {
        let frames = Frames::new(medium.bytes() / PAGE_BYTES, RESERVED_FRAMES);
        Self {
            sums: Sums::new(frames.total(), sums::Found::default()),
            medium,
            identity,
            frames,
            index: Index::default(),
            root: None,
            next_epoch,
            pins: Arc::new(()),
            largest,
            failed: false,
        }
    }

    fn load(&mut self, root: Root) -> Result<(), FormatError> {
        self.piece(&root.description, "the description")?;
        for segment in &root.segments {
            self.piece(segment, "a segment")?;
        }
        let mut found = sums::Found::new(self.frames.total());
        for segment in &root.segments {
            let medium = Arc::clone(&self.medium);
            let start = u64::from(segment.frame) * PAGE_BYTES;
            let bytes = medium.read(start, segment.bytes);
            let behind = u64::from(segment.sums) * BLOCK_SUMS as u64;
            for record in segment_records(bytes, behind, self.identity)? {
                self.apply(&record?, start, &mut found)?;
            }
        }
        self.sums = Sums::new(self.frames.total(), found);
        if self.index.pages() != root.pages {
            return Err(FormatError::Bounds {
                what: "number of pages",
                value: root.pages,
            });
        }
        for space in self.index.spaces() {
            for run in self.index.runs(space) {
                if !self.frames.claim_run(run.frame, run.count) {
                    return Err(FormatError::Twice(run.frame.into()));
                }
            }
        }
        self.index.changes_are_durable();
        self.find_homes();
        self.root = Some(root);
        Ok(())
    }

    /// Claims the frames of a piece and compares its checksum.
    fn piece(&mut self, piece: &Piece, what: &'static str) -> Result<(), FormatError> {
        let end = u64::from(piece.frame).saturating_add(piece.frames());
        if end > self.frames.total() || piece.bytes > self.medium.bytes() {
            return Err(FormatError::Bounds { what, value: end });
        }
        if !self.frames.claim_run(piece.frame, piece.frames() as u32) {
            return Err(FormatError::Twice(piece.frame.into()));
        }
        let bytes = self
            .medium
            .read(u64::from(piece.frame) * PAGE_BYTES, piece.bytes);
        if checksum(bytes) != piece.checksum {
            return Err(FormatError::Checksum(what));
        }
        Ok(())
    }

    /// Applies a record of the segment that starts at this byte of the store.
    fn apply(
        &mut self,
        record: &Record<'_>,
        segment: u64,
        found: &mut sums::Found,
    ) -> Result<(), FormatError> {
        match record {
            Record::Run(run) => {
                let end = u64::from(run.frame) + u64::from(run.count);
                if run.frame < RESERVED_FRAMES || end > self.frames.total() {
                    return Err(FormatError::Bounds {
                        what: "a run's frame",
                        value: run.frame.into(),
                    });
                }
                found.add(segment, run);
                let pages = PageRun {
                    page: run.page,
                    count: run.count,
                    frame: run.frame,
                    written: run.written,
                };
                self.index.set(run.space, pages, |_| {});
            }
            Record::Forget { space, page, count } => {
                self.index.forget(*space, *page, *count, |_| {}, |_| {});
            }
            Record::ForgetSpace(space) => self.index.forget_space(*space, |_| {}, |_| {}),
        }
        Ok(())
    }

    /// A chunk that holds pages of one leaf only, some of them in their own places, is its home.
    fn find_homes(&mut self) {
        let frames = &mut self.frames;
        for (_, leaf) in self.index.leaves_mut() {
            let own = |index: usize, frame: u32| {
                (frame % CHUNK_FRAMES == index as u32).then_some(frame / CHUNK_FRAMES)
            };
            let of = |index: usize| leaf.frame(index).and_then(|frame| own(index, frame));
            let (chunk, inside) = match leaf.whole() {
                Some(frame) => (own(0, frame), LEAF_PAGES as u32),
                None => {
                    let chunk = (0..LEAF_PAGES as usize).find_map(of);
                    let inside = |frame: &u32| Some(frame / CHUNK_FRAMES) == chunk;
                    (chunk, leaf.frames().filter(inside).count() as u32)
                }
            };
            let Some(chunk) = chunk else {
                continue;
            };
            if inside >= HOME_PAGES / 2 && frames.used(chunk) == inside && frames.claim_home(chunk)
            {
                leaf.home = Some(chunk);
            }
        }
    }

    fn check_pages(&self) -> Result<(), FormatError> {
        for space in self.index.spaces() {
            for run in self.index.runs(space) {
                for frame in run.frame..run.frame + run.count {
                    let bytes = self.medium.read(u64::from(frame) * PAGE_BYTES, PAGE_BYTES);
                    if self.sums.get(&*self.medium, frame) != Some(checksum(bytes)) {
                        return Err(FormatError::Checksum("a page"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The readable roots, the newest first.
fn read_roots<M: Medium>(medium: &M, identity: u128, passed_over: &mut Vec<String>) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    for frame in 1..u64::from(RESERVED_FRAMES) {
        if (frame + 1) * PAGE_BYTES > medium.bytes() {
            continue;
        }
        let bytes = medium.read(frame * PAGE_BYTES, PAGE_BYTES);
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        match Root::decode(bytes, identity) {
            Ok(root) if u64::from(Root::frame(root.epoch)) == frame => roots.push(root),
            Ok(root) => passed_over.push(format!("root {frame}: epoch {}", root.epoch)),
            Err(error) => passed_over.push(format!("root {frame}: {error}")),
        }
    }
    roots.sort_by_key(|root| std::cmp::Reverse(root.epoch));
    roots
}
