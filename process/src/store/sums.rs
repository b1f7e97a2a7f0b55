//! Checksums of pages, by frame.
//!
//! What this tracker wrote is in memory. What it found when it opened the store stays where it
//! lies, in the segments of the index, and is compared with its digests when it is first used: a
//! store of any size opens without touching a number for each page.
//!
//! A clone is cheap and keeps the checksums of its moment: a snapshot has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PAGE_BYTES;
use super::format::checksum;
use super::frames::CHUNK_FRAMES;
use super::medium::Medium;
use super::segment::{BLOCK_SUMS, Run};

const CHUNK: usize = CHUNK_FRAMES as usize;
const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    known: Vec<Option<Arc<[u64; CHUNK]>>>,
    found: Arc<Found>,
}

/// The checksums of one run, where they lie.
#[derive(Debug)]
struct Area {
    /// Frame of its first page.
    frame: u32,
    count: u32,
    /// The first one, in bytes from the store's start.
    at: u64,
    /// Number of its first digest, or [`NONE`].
    digests: u32,
}

/// Frames of one chunk whose checksums lie in an area.
#[derive(Debug)]
struct Part {
    first: u16,
    count: u16,
    area: u32,
    /// The one of the same chunk that this one stands over, or [`NONE`].
    below: u32,
}

/// The checksums of an opened store, as its segments have them.
#[derive(Debug, Default)]
pub struct Found {
    areas: Vec<Area>,
    digests: Vec<u64>,
    parts: Vec<Part>,
    /// The topmost part of each chunk, or [`NONE`].
    top: Vec<u32>,
    /// One bit for each digest: its checksums have been compared with it.
    compared: Vec<AtomicU64>,
}

impl Found {
    /// Of a store of `frames` frames, which has no pages yet.
    pub fn new(frames: u64) -> Self {
        Self {
            top: vec![NONE; frames as usize / CHUNK],
            ..Self::default()
        }
    }

    /// A run of a segment that starts at byte `segment` of the store. It stands over what was
    /// added before. The caller has checked its bounds.
    pub fn add(&mut self, segment: u64, run: &Run<'_>) {
        let area = self.areas.len() as u32;
        self.areas.push(Area {
            frame: run.frame,
            count: run.count,
            at: segment + run.sums_at,
            digests: match run.digests {
                [] => NONE,
                _ => self.digests.len() as u32,
            },
        });
        let digests = run.digests.as_chunks::<8>().0;
        self.digests
            .extend(digests.iter().map(|digest| u64::from_le_bytes(*digest)));
        let end = run.frame + run.count;
        let mut at = run.frame;
        while at < end {
            let chunk = (at / CHUNK_FRAMES) as usize;
            let next = ((at / CHUNK_FRAMES + 1) * CHUNK_FRAMES).min(end);
            let part = self.parts.len() as u32;
            self.parts.push(Part {
                first: (at % CHUNK_FRAMES) as u16,
                count: (next - at) as u16,
                area,
                below: std::mem::replace(&mut self.top[chunk], part),
            });
            at = next;
        }
    }

    /// The parts of a chunk, the topmost first.
    fn parts(&self, chunk: usize) -> impl Iterator<Item = &Part> {
        let top = self.top.get(chunk).copied().unwrap_or(NONE);
        let next = |part: &&Part| self.parts.get(part.below as usize);
        std::iter::successors(self.parts.get(top as usize), next)
    }

    /// Whether the block of an area that has its sum `index` is what was written.
    fn is_whole(&self, medium: &impl Medium, area: &Area, index: u32) -> bool {
        if area.digests == NONE {
            return true;
        }
        let block = index as usize / BLOCK_SUMS;
        let digest = area.digests as usize + block;
        let (word, bit) = (&self.compared[digest / 64], 1 << (digest % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        let first = (block * BLOCK_SUMS) as u64;
        let count = (u64::from(area.count) - first).min(BLOCK_SUMS as u64);
        let whole = checksum(medium.read(area.at + first * 8, count * 8)) == self.digests[digest];
        if whole {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        whole
    }

    /// The sum `index` of an area; `None` where it is damaged.
    fn read(&self, medium: &impl Medium, area: &Area, index: u32) -> Option<u64> {
        if !self.is_whole(medium, area, index) {
            return None;
        }
        let bytes = medium.read(area.at + u64::from(index) * 8, 8);
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    fn get(&self, medium: &impl Medium, frame: u32) -> Option<u64> {
        let inside = (frame % CHUNK_FRAMES) as u16;
        let mut parts = self.parts((frame / CHUNK_FRAMES) as usize);
        let part = parts.find(|part| (part.first..part.first + part.count).contains(&inside))?;
        let area = &self.areas[part.area as usize];
        self.read(medium, area, frame - area.frame)
    }

    /// All checksums of a chunk. A damaged one becomes a number that its page does not match, so
    /// that the damage stays known; where there is no page there is 0.
    fn chunk(&self, medium: &impl Medium, chunk: usize) -> [u64; CHUNK] {
        let mut sums = [0; CHUNK];
        let mut present = [false; CHUNK];
        for part in self.parts(chunk) {
            let area = &self.areas[part.area as usize];
            for index in usize::from(part.first)..usize::from(part.first + part.count) {
                if std::mem::replace(&mut present[index], true) {
                    continue;
                }
                let frame = (chunk * CHUNK + index) as u32;
                sums[index] = self
                    .read(medium, area, frame - area.frame)
                    .unwrap_or_else(|| {
                        let page = medium.read(u64::from(frame) * PAGE_BYTES, PAGE_BYTES);
                        !checksum(page)
                    });
            }
        }
        sums
    }
}

impl Sums {
    /// Of a store of `frames` frames, which was opened with these.
    pub fn new(frames: u64, mut found: Found) -> Self {
        let words = found.digests.len().div_ceil(64);
        found.compared.resize_with(words, AtomicU64::default);
        let mut sums = Self {
            known: Vec::new(),
            found: Arc::new(found),
        };
        sums.grow(frames);
        sums
    }

    /// Sets the number of frames; it never shrinks.
    pub fn grow(&mut self, frames: u64) {
        let chunks = (frames as usize / CHUNK).max(self.known.len());
        self.known.resize(chunks, None);
    }

    /// The checksum of the page in a frame; `None` where there is none, or where it is damaged.
    pub fn get(&self, medium: &impl Medium, frame: u32) -> Option<u64> {
        let chunk = (frame / CHUNK_FRAMES) as usize;
        match self.known.get(chunk)? {
            Some(known) => Some(known[(frame % CHUNK_FRAMES) as usize]),
            None => self.found.get(medium, frame),
        }
    }

    /// Pages from `frame` on have these checksums.
    pub fn set(&mut self, medium: &impl Medium, frame: u32, sums: &[u64]) {
        let mut frame = frame as usize;
        let mut sums = sums;
        while !sums.is_empty() {
            let (chunk, first) = (frame / CHUNK, frame % CHUNK);
            let (here, rest) = sums.split_at(sums.len().min(CHUNK - first));
            let known = &mut self.known[chunk];
            let known = known.get_or_insert_with(|| match here.len() {
                CHUNK => Arc::new([0; CHUNK]),
                _ => Arc::new(self.found.chunk(medium, chunk)),
            });
            Arc::make_mut(known)[first..first + here.len()].copy_from_slice(here);
            frame += here.len();
            sums = rest;
        }
    }

    /// The checksums of pages side by side, appended to `to`.
    pub fn copy(&mut self, medium: &impl Medium, frame: u32, count: u32, to: &mut Vec<u64>) {
        let (mut frame, end) = (frame as usize, (frame + count) as usize);
        while frame < end {
            let (chunk, first) = (frame / CHUNK, frame % CHUNK);
            let last = (first + end - frame).min(CHUNK);
            let known =
                self.known[chunk].get_or_insert_with(|| Arc::new(self.found.chunk(medium, chunk)));
            to.extend_from_slice(&known[first..last]);
            frame += last - first;
        }
    }

    /// Brings everything into memory: the segments that it was found in are about to go.
    pub fn bring_in(&mut self, medium: &impl Medium) {
        let found = std::mem::take(&mut self.found);
        for (chunk, known) in self.known.iter_mut().enumerate() {
            if known.is_none() && found.parts(chunk).next().is_some() {
                *known = Some(Arc::new(found.chunk(medium, chunk)));
            }
        }
    }
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
