//! Allocates the frames of a store: bitmaps and placement. Pure.
//!
//! Frames are allocated in chunks of 2 MiB. A chunk is either *dedicated* to one densely filled
//! 2 MiB of a space, its *home* (page n of it in frame n, so that huge mappings are possible), or
//! *mixed*. A frame that the last durable epoch refers to, or a snapshot that a restore reads, is
//! never allocated, even if its page has changed since.

/// Frames of a chunk.
pub const CHUNK_FRAMES: u32 = 512;

const WORDS: usize = CHUNK_FRAMES as usize / 64;

/// Frames side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRun {
    /// The first.
    pub frame: u32,
    /// How many.
    pub count: u32,
}

/// One bit for each frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn get(&self, frame: u32) -> bool {
        self.0
            .get(frame as usize / 64)
            .is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    fn set(&mut self, frame: u32, value: bool) {
        let word = &mut self.0[frame as usize / 64];
        let bit = 1 << (frame % 64);
        if value { *word |= bit } else { *word &= !bit }
    }
}

/// The state of every frame.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    /// Referred to by the last durable epoch.
    durable: Bitmap,
    /// Referred to by the epoch that is being written.
    working: Bitmap,
    /// Superseded, but a snapshot may still read them.
    held: Bitmap,
    /// Whether there are such.
    holds: bool,
    /// Chunks that are the home of something, by their number.
    home: Vec<bool>,
    /// Frames of each chunk that are not free.
    used: Vec<u16>,
    free: u64,
    /// Where the search for mixed frames goes on.
    mixed_cursor: u32,
    /// Where the search for frames side by side goes on.
    contiguous_cursor: u32,
}

impl Frames {
    /// A store of `total` frames, of which the first `reserved` are never handed out. Frames past
    /// the last whole chunk are not used.
    pub fn new(total: u64, reserved: u32) -> Self {
        let mut frames = Self::default();
        frames.grow(total);
        for frame in 0..reserved {
            frames.claim(frame);
        }
        frames
    }

    /// Sets the number of frames; it never shrinks.
    pub fn grow(&mut self, total: u64) {
        let most = u64::from(u32::MAX / CHUNK_FRAMES);
        let chunks = (total / u64::from(CHUNK_FRAMES)).min(most) as usize;
        if chunks <= self.home.len() {
            return;
        }
        self.free += (chunks - self.home.len()) as u64 * u64::from(CHUNK_FRAMES);
        let words = chunks * WORDS;
        self.durable.0.resize(words, 0);
        self.working.0.resize(words, 0);
        self.held.0.resize(words, 0);
        self.home.resize(chunks, false);
        self.used.resize(chunks, 0);
    }

    fn chunks(&self) -> u32 {
        self.home.len() as u32
    }

    /// Frames that there are.
    pub fn total(&self) -> u64 {
        u64::from(self.chunks()) * u64::from(CHUNK_FRAMES)
    }

    /// Frames that are not in use, those in homes included.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Whether it is in use by nothing.
    pub fn is_free(&self, frame: u32) -> bool {
        u64::from(frame) < self.total() && self.taken(frame as usize / 64) >> (frame % 64) & 1 == 0
    }

    fn taken(&self, word: usize) -> u64 {
        self.durable.0[word] | self.working.0[word] | self.held.0[word]
    }

    /// Takes this very frame, if it is free.
    pub fn take(&mut self, frame: u32) -> bool {
        let free = self.is_free(frame);
        if free {
            self.working.set(frame, true);
            self.used[(frame / CHUNK_FRAMES) as usize] += 1;
            self.free -= 1;
        }
        free
    }

    /// While opening: a durable epoch refers to it. False when it is out of bounds or when
    /// something else refers to it too.
    pub fn claim(&mut self, frame: u32) -> bool {
        let free = self.take(frame);
        if free {
            self.durable.set(frame, true);
        }
        free
    }

    /// As [`Frames::claim`], for frames side by side.
    pub fn claim_run(&mut self, frame: u32, count: u32) -> bool {
        if u64::from(frame) + u64::from(count) > self.total() {
            return false;
        }
        let end = frame + count;
        let mut at = frame;
        while at < end {
            // What of the run lies in one word.
            let next = ((at / 64 + 1) * 64).min(end);
            let mask = (u64::MAX >> (64 - (next - at))) << (at % 64);
            let word = at as usize / 64;
            if self.taken(word) & mask != 0 {
                return false;
            }
            self.working.0[word] |= mask;
            self.durable.0[word] |= mask;
            self.used[word / WORDS] += (next - at) as u16;
            self.free -= u64::from(next - at);
            at = next;
        }
        true
    }

    /// Frames of a chunk that are in use.
    pub fn used(&self, chunk: u32) -> u32 {
        u32::from(self.used[chunk as usize])
    }

    /// Frames that are free and in no home chunk.
    pub fn free_outside_homes(&self) -> u64 {
        let chunks = self.home.iter().zip(&self.used);
        chunks
            .filter(|(home, _)| !**home)
            .map(|(_, used)| u64::from(CHUNK_FRAMES - u32::from(*used)))
            .sum()
    }

    /// The epoch that is being written refers to it no more.
    pub fn release(&mut self, frame: u32) {
        if self.working.get(frame) {
            self.working.set(frame, false);
            if self.is_free(frame) {
                self.freed(frame as usize / 64, 1);
            }
        }
    }

    fn freed(&mut self, word: usize, count: u32) {
        self.free += u64::from(count);
        self.used[word / WORDS] -= count as u16;
    }

    /// A chunk to be the home of something: no frame of it is taken yet, but none of it is
    /// handed out except through [`Frames::take`].
    pub fn take_home(&mut self) -> Option<u32> {
        let chunk = (0..self.home.len()).find(|c| self.used[*c] == 0 && !self.home[*c])?;
        self.home[chunk] = true;
        Some(chunk as u32)
    }

    /// While opening: this chunk is a home. False when it is one already.
    pub fn claim_home(&mut self, chunk: u32) -> bool {
        !std::mem::replace(&mut self.home[chunk as usize], true)
    }

    /// Makes a chunk mixed; its contents stay until they are released.
    pub fn drop_home(&mut self, chunk: u32) {
        self.home[chunk as usize] = false;
    }

    /// Up to `count` frames side by side, from mixed chunks; chunks that are
    /// in use already first. None when there is nothing left.
    pub fn take_mixed(&mut self, count: u32) -> Option<FrameRun> {
        loop {
            let chunk = self.mixed_cursor / CHUNK_FRAMES;
            if chunk < self.chunks()
                && !self.home[chunk as usize]
                && let Some(run) = self.free_in_chunk(chunk, self.mixed_cursor, count)
            {
                for frame in run.frame..run.frame + run.count {
                    self.take(frame);
                }
                // May be the next chunk's first frame: then a chunk is chosen anew.
                self.mixed_cursor = run.frame + run.count;
                if self.mixed_cursor.is_multiple_of(CHUNK_FRAMES) {
                    self.mixed_cursor = u32::MAX;
                }
                return Some(run);
            }
            self.mixed_cursor = self.next_mixed_chunk()? * CHUNK_FRAMES;
        }
    }

    /// Partly used but not crowded, or else empty, or else crowded: single free frames that
    /// have to be looked for are the last resort.
    fn next_mixed_chunk(&self) -> Option<u32> {
        const CROWDED: u16 = 7 * CHUNK_FRAMES as u16 / 8;
        let find = |from: u16, to: u16| {
            (0..self.home.len())
                .find(|c| !self.home[*c] && (from..to).contains(&self.used[*c]))
                .map(|chunk| chunk as u32)
        };
        find(1, CROWDED)
            .or_else(|| find(0, 1))
            .or_else(|| find(CROWDED, CHUNK_FRAMES as u16))
    }

    /// The first free frames at or after `from`, to the end of the chunk at most.
    fn free_in_chunk(&self, chunk: u32, from: u32, count: u32) -> Option<FrameRun> {
        let end = (chunk + 1) * CHUNK_FRAMES;
        let mut frame = from;
        while frame < end {
            let taken = self.taken(frame as usize / 64) >> (frame % 64);
            let skip = taken.trailing_ones();
            if skip > 0 {
                // Shifted-in zeros end the count at the word's end at the latest.
                frame += skip.min(64 - frame % 64);
                continue;
            }
            let limit = (frame + count.max(1)).min(end);
            let last = (frame..limit).find(|f| !self.is_free(*f)).unwrap_or(limit);
            return Some(FrameRun {
                frame,
                count: last - frame,
            });
        }
        None
    }

    /// Exactly `count` frames side by side, which may span chunks.
    pub fn take_contiguous(&mut self, count: u64) -> Option<u32> {
        let total = self.total() as u32;
        let start = self
            .contiguous(self.contiguous_cursor, total, count)
            .or_else(|| self.contiguous(0, total, count))?;
        let end = start + count as u32;
        for frame in start..end {
            self.take(frame);
        }
        self.contiguous_cursor = end;
        Some(start)
    }

    fn contiguous(&self, from: u32, to: u32, count: u64) -> Option<u32> {
        let mut start = from;
        let mut frame = from;
        while frame < to {
            if frame.is_multiple_of(CHUNK_FRAMES) && self.home[(frame / CHUNK_FRAMES) as usize] {
                frame += CHUNK_FRAMES;
                start = frame;
                continue;
            }
            let word = self.taken(frame as usize / 64);
            if frame.is_multiple_of(64) && word == 0 {
                frame += 64;
            } else if frame.is_multiple_of(64) && word == u64::MAX {
                frame += 64;
                start = frame;
            } else if self.is_free(frame) && !self.home[(frame / CHUNK_FRAMES) as usize] {
                frame += 1;
            } else {
                frame += 1;
                start = frame;
            }
            if u64::from(frame - start) >= count && count > 0 {
                return Some(start);
            }
        }
        None
    }

    /// The epoch that was being written is durable. With `hold`, what only the former one
    /// referred to stays untouched until [`Frames::let_go`].
    pub fn commit(&mut self, hold: bool) {
        for word in 0..self.durable.0.len() {
            let gone = self.durable.0[word] & !self.working.0[word];
            self.durable.0[word] = self.working.0[word];
            if gone == 0 {
                continue;
            }
            if hold {
                self.holds = true;
                self.held.0[word] |= gone;
            } else {
                self.freed(word, (gone & !self.held.0[word]).count_ones());
            }
        }
    }

    /// No snapshot reads superseded frames any more.
    pub fn let_go(&mut self) {
        // This runs before each range of pages is placed.
        if !std::mem::take(&mut self.holds) {
            return;
        }
        for word in 0..self.held.0.len() {
            let held = std::mem::take(&mut self.held.0[word]);
            let free = held & !self.taken(word);
            if free != 0 {
                self.freed(word, free.count_ones());
            }
        }
    }

    /// Whether the last durable epoch refers to it.
    pub fn is_durable(&self, frame: u32) -> bool {
        self.durable.get(frame)
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
