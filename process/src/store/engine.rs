//! The store on any medium: places pages, commits epochs, and finds the newest complete epoch.
//!
//! ```text
//!  place ─► frames that neither the durable epoch nor a snapshot refers to
//!    │        caller writes pages there, in parallel
//!  stored ─► index points to them
//!  commit ─► segment + description ─► barrier ─► root ─► barrier ─► old frames are free
//! ```

mod recovery;

use std::sync::Arc;

use super::format::{Cause, MAX_SEGMENTS, Piece, RESERVED_FRAMES, Root, checksum};
use super::frames::{CHUNK_FRAMES, Frames};
use super::index::{Index, LEAF_PAGES, PageRun};
use super::medium::Medium;
use super::segment::{Segment, SegmentWriter};
use super::snapshot::StoredEpoch;
use super::sums::Sums;
use super::{PAGE_BYTES, SpaceId};
pub use recovery::Found;

/// Segments after which a commit that has time writes the index anew.
const TIDY_SEGMENTS: usize = 24;
/// Pages of 2 MiB from which on they get a chunk of their own.
const HOME_PAGES: u32 = 128;
/// What is added to a store that has become too small, at least.
const GROW_BYTES: u64 = 64 << 20;

/// Pages of one space that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// The space.
    pub space: SpaceId,
    /// Address of the first in pages.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Where pages are to be written, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Whose.
    pub space: SpaceId,
    /// Address of the first in pages.
    pub page: u64,
    /// Frame for the first; the others follow in both.
    pub frame: u32,
    /// How many.
    pub count: u32,
}

impl Placement {
    /// Where the first one goes, in bytes from the store's start.
    pub fn offset(&self) -> u64 {
        u64::from(self.frame) * PAGE_BYTES
    }

    /// Those from page number `from` to before page number `to` of it.
    pub fn part(&self, from: usize, to: usize) -> Self {
        Self {
            page: self.page + from as u64,
            frame: self.frame + from as u32,
            count: (to - from) as u32,
            ..*self
        }
    }

    /// Their length.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count) * PAGE_BYTES
    }
}

/// Why the engine could not do it.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No room on the medium.
    #[error("{needed} more bytes are needed")]
    Full {
        /// How many more.
        needed: u64,
    },
    /// The medium failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A store that can be written to.
#[derive(Debug)]
pub struct Engine<M> {
    medium: Arc<M>,
    identity: u128,
    frames: Frames,
    index: Index,
    sums: Sums,
    root: Option<Root>,
    next_epoch: u64,
    pins: Arc<()>,
    largest: u64,
    /// The medium failed while a root was written: it is unknown which root it holds.
    failed: bool,
}

impl<M: Medium> Engine<M> {
    /// Number of the newest durable epoch, if there is something to restore.
    pub fn epoch(&self) -> Option<u64> {
        self.root().map(|root| root.epoch)
    }

    /// The newest durable epoch's root, if there is something to restore.
    pub fn root(&self) -> Option<&Root> {
        self.root.as_ref().filter(|r| r.cause != Cause::Cleared)
    }

    /// The index as it is now, with what has been stored since the last commit.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The checksum of a page as it is stored now; `None` also where it is damaged.
    pub fn checksum_of(&self, space: SpaceId, page: u64) -> Option<u64> {
        let frame = self.index.frame(space, page)?;
        self.sums.get(&*self.medium, frame)
    }

    /// What it lies on.
    pub fn medium(&self) -> &Arc<M> {
        &self.medium
    }

    /// Bytes that can be written before it has to grow. Homes do not count: only their own
    /// pages can be written there.
    pub fn free_bytes(&self) -> u64 {
        self.frames.free_outside_homes() * PAGE_BYTES
    }

    /// Ensures that `bytes` can be written without growing.
    ///
    /// # Errors
    /// No room on the medium.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.let_go();
        let free = self.free_bytes();
        match bytes.checked_sub(free) {
            None | Some(0) => Ok(()),
            Some(missing) => self.grow(missing),
        }
    }

    fn grow(&mut self, missing: u64) -> Result<(), EngineError> {
        let now = self.medium.bytes();
        let chunk = u64::from(CHUNK_FRAMES) * PAGE_BYTES;
        let most = self.largest / chunk * chunk;
        let least = (now + missing).next_multiple_of(chunk);
        let wanted = (now + missing.max(GROW_BYTES)).next_multiple_of(chunk);
        if least > most {
            return Err(EngineError::Full {
                needed: least - most,
            });
        }
        let grown = self.medium.grow(wanted.min(most));
        let grown = match grown {
            Err(error) if is_full(&error) && wanted > least => self.medium.grow(least),
            other => other,
        };
        match grown {
            Err(error) if is_full(&error) => Err(EngineError::Full { needed: missing }),
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.frames.grow(self.medium.bytes() / PAGE_BYTES);
                self.sums.grow(self.frames.total());
                Ok(())
            }
        }
    }

    /// Chooses frames for pages; they are to be written there, and then given to
    /// [`Engine::stored`] or [`Engine::abandon`]. After an error, too, for those in `out`.
    ///
    /// # Errors
    /// No room on the medium.
    pub fn place(&mut self, pages: Pages, out: &mut Vec<Placement>) -> Result<(), EngineError> {
        self.let_go();
        let Pages { space, count, .. } = pages;
        let end = pages.first + count;
        let mut page = pages.first;
        while page < end {
            let next = ((page / LEAF_PAGES + 1) * LEAF_PAGES).min(end);
            self.place_in_leaf(space, page, (next - page) as u32, out)?;
            page = next;
        }
        Ok(())
    }

    fn place_in_leaf(
        &mut self,
        space: SpaceId,
        page: u64,
        count: u32,
        out: &mut Vec<Placement>,
    ) -> Result<(), EngineError> {
        let leaf = self.index.leaf_mut(space, page / LEAF_PAGES);
        if leaf.home.is_none() && leaf.present().max(count) >= HOME_PAGES {
            leaf.home = self.frames.take_home();
            if leaf.home.is_none() && self.grow(GROW_BYTES).is_ok() {
                let leaf = self.index.leaf_mut(space, page / LEAF_PAGES);
                leaf.home = self.frames.take_home();
            }
        }
        let home = self.index.leaf_mut(space, page / LEAF_PAGES).home;
        let mut push = |page: u64, frame: u32, count: u32| match out.last_mut() {
            Some(last)
                if last.space == space
                    && last.page + u64::from(last.count) == page
                    && last.frame + last.count == frame =>
            {
                last.count += count;
            }
            _ => out.push(Placement {
                space,
                page,
                frame,
                count,
            }),
        };
        let mut done = 0;
        while done < count {
            let at = page + u64::from(done);
            let own = home.map(|chunk| chunk * CHUNK_FRAMES + (at % LEAF_PAGES) as u32);
            if let Some(frame) = own.filter(|frame| self.frames.take(*frame)) {
                push(at, frame, 1);
                done += 1;
                continue;
            }
            // As many as cannot be at home side by side.
            let away = match own {
                None => count - done,
                Some(frame) => (0..count - done)
                    .take_while(|step| !self.frames.is_free(frame + step))
                    .count() as u32,
            };
            match self.frames.take_mixed(away) {
                Some(run) => {
                    push(at, run.frame, run.count);
                    done += run.count;
                }
                None => self.grow(u64::from(away) * PAGE_BYTES)?,
            }
        }
        Ok(())
    }

    /// Writes one page where it was placed.
    pub fn write_page(&self, placement: &Placement, index: u32, bytes: &[u8]) {
        let offset = placement.offset() + u64::from(index) * PAGE_BYTES;
        self.medium.write(offset, bytes);
    }

    /// Pages have been written where they were placed; `checksums` has one for each.
    pub fn stored(&mut self, placement: &Placement, checksums: &[u64]) {
        debug_assert_eq!(checksums.len(), placement.count as usize);
        self.sums.set(&*self.medium, placement.frame, checksums);
        let run = PageRun {
            page: placement.page,
            count: placement.count,
            frame: placement.frame,
            written: self.next_epoch,
        };
        let frames = &mut self.frames;
        self.index
            .set(placement.space, run, |old| frames.release(old));
    }

    /// Pages could not be written; their frames are free again, the index is as before.
    pub fn abandon(&mut self, placement: &Placement) {
        for frame in placement.frame..placement.frame + placement.count {
            self.frames.release(frame);
        }
    }

    /// Pages are gone from their space.
    pub fn forget(&mut self, space: SpaceId, page: u64, count: u64) {
        let (mut dropped, mut homeless) = (Vec::new(), Vec::new());
        self.index.forget(
            space,
            page,
            count,
            |frame| dropped.push(frame),
            |chunk| homeless.push(chunk),
        );
        self.dropped(&dropped, &homeless);
    }

    /// A space is gone.
    pub fn forget_space(&mut self, space: SpaceId) {
        let (mut dropped, mut homeless) = (Vec::new(), Vec::new());
        self.index.forget_space(
            space,
            |frame| dropped.push(frame),
            |chunk| homeless.push(chunk),
        );
        self.dropped(&dropped, &homeless);
    }

    fn dropped(&mut self, frames: &[u32], homes: &[u32]) {
        frames.iter().for_each(|frame| self.frames.release(*frame));
        homes.iter().for_each(|chunk| self.frames.drop_home(*chunk));
    }

    /// Makes everything that is stored now, with this description, the newest epoch; returns its
    /// number when it is durable. `last_space` is the highest space number given out.
    ///
    /// # Errors
    /// The former epoch is still the newest one; what was stored stays and can be committed
    /// later, unless the medium failed.
    pub fn commit(
        &mut self,
        description: &[u8],
        cause: Cause,
        last_space: u32,
        now_ns: u64,
    ) -> Result<u64, EngineError> {
        if self.failed {
            return Err(EngineError::Io(std::io::Error::other(
                "the medium failed before; open the store anew",
            )));
        }
        let before = self.root.as_ref();
        let kept = before.map_or(&[][..], |root| &root.segments);
        let anew = self.write_index_anew(kept, cause);
        let mut segments = if anew { Vec::new() } else { kept.to_vec() };
        let mut superseded: Vec<Piece> = before.map(|r| r.description).into_iter().collect();
        if anew {
            superseded.extend(kept);
        }
        let mut writer = SegmentWriter::new(self.identity);
        let (sums, medium) = (&mut self.sums, &*self.medium);
        if anew {
            sums.bring_in(medium);
        }
        let copy = |run: &PageRun, to: &mut Vec<u64>| sums.copy(medium, run.frame, run.count, to);
        if anew {
            self.index.write_all(&mut writer, copy);
        } else {
            self.index.write_changes(&mut writer, copy);
        }
        let mut written = Vec::new();
        let result = (|| {
            if !writer.is_empty() {
                let piece = self.write_piece(&writer.finish())?;
                written.push(piece);
                segments.push(piece);
            }
            let description = self.write_piece(&Segment {
                head: description.to_vec(),
                sums: Vec::new(),
            })?;
            written.push(description);
            self.medium.barrier()?;
            Ok(Root {
                epoch: self.next_epoch,
                committed_ns: now_ns,
                cause,
                pages: self.index.pages(),
                last_space,
                description,
                segments,
            })
        })();
        let root = result.inspect_err(|_: &EngineError| {
            let frames = &mut self.frames;
            written.iter().for_each(|piece| release(frames, piece));
        })?;
        self.medium.write(
            u64::from(Root::frame(root.epoch)) * PAGE_BYTES,
            &root.encode(self.identity),
        );
        self.medium.barrier().inspect_err(|_| self.failed = true)?;
        superseded
            .iter()
            .for_each(|piece| release(&mut self.frames, piece));
        self.frames.commit(Arc::strong_count(&self.pins) > 1);
        self.index.changes_are_durable();
        self.next_epoch = root.epoch + 1;
        let epoch = root.epoch;
        self.root = Some(root);
        Ok(epoch)
    }

    /// Changes on changes cost time when they are read again. A persist has no time to spare.
    fn write_index_anew(&self, kept: &[Piece], cause: Cause) -> bool {
        let changes: u64 = kept.iter().skip(1).map(|piece| piece.bytes).sum();
        let base = kept.first().map_or(0, |piece| piece.bytes);
        kept.len() >= MAX_SEGMENTS
            || cause == Cause::Background
                && (kept.len() >= TIDY_SEGMENTS || changes > base + (1 << 20))
    }

    fn write_piece(&mut self, Segment { head, sums }: &Segment) -> Result<Piece, EngineError> {
        let mut piece = Piece {
            frame: RESERVED_FRAMES,
            bytes: head.len() as u64,
            checksum: checksum(head),
            sums: (sums.len() as u64).div_ceil(PAGE_BYTES) as u32,
        };
        if head.is_empty() {
            return Ok(piece);
        }
        piece.frame = match self.frames.take_contiguous(piece.frames()) {
            Some(frame) => frame,
            None => {
                self.grow(piece.frames() * PAGE_BYTES)?;
                let frame = self.frames.take_contiguous(piece.frames());
                frame.ok_or(EngineError::Full {
                    needed: piece.bytes,
                })?
            }
        };
        let start = u64::from(piece.frame) * PAGE_BYTES;
        self.medium.write(start, head);
        if !sums.is_empty() {
            self.medium.write(start + piece.sums_at(), sums);
        }
        Ok(piece)
    }

    /// Forgets everything and makes that durable: there is nothing to restore any more.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub fn clear(&mut self, now_ns: u64) -> Result<u64, EngineError> {
        for space in self.index.spaces() {
            self.forget_space(space);
        }
        let last_space = self.root.as_ref().map_or(0, |root| root.last_space);
        self.commit(&[], Cause::Cleared, last_space, now_ns)
    }

    /// Superseded frames are free as soon as no restore reads them.
    fn let_go(&mut self) {
        if Arc::strong_count(&self.pins) == 1 {
            self.frames.let_go();
        }
    }

    /// The newest durable epoch, to restore from. Call it before anything is placed.
    ///
    /// # Panics
    /// When something has been stored since the last commit.
    pub fn snapshot(&self, label: String) -> Option<StoredEpoch<M>> {
        let root = self.root()?;
        assert!(self.index.is_unchanged(), "pages stored since the commit");
        let description = self.medium.read(
            u64::from(root.description.frame) * PAGE_BYTES,
            root.description.bytes,
        );
        Some(self.as_epoch(label, root.epoch, description))
    }

    /// What the next commit with this description would make the newest epoch. It must be gone before
    /// that.
    pub fn uncommitted(&self, label: String, description: &[u8]) -> StoredEpoch<M> {
        self.as_epoch(label, self.next_epoch, description)
    }

    fn as_epoch(&self, label: String, epoch: u64, description: &[u8]) -> StoredEpoch<M> {
        let of = |space| (space, self.index.runs(space).collect());
        StoredEpoch {
            medium: Arc::clone(&self.medium),
            label,
            epoch,
            description: description.to_vec(),
            spaces: self.index.spaces().into_iter().map(of).collect(),
            sums: self.sums.clone(),
            _pin: Arc::clone(&self.pins),
        }
    }
}

fn release(frames: &mut Frames, piece: &Piece) {
    for frame in piece.frame..piece.frame + piece.frames() as u32 {
        frames.release(frame);
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
