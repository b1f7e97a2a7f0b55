//! 2 MiB of a space: which of its pages lies in which frame. Pure.
//!
//! Most leaves of a large program are whole: written in one go, one page behind the other. They
//! take two numbers, so that a store of any size is opened without touching a number a page.

/// Pages of a leaf.
pub const LEAF_PAGES: u64 = 512;

const PAGES: usize = LEAF_PAGES as usize;
const WORDS: usize = PAGES / 64;

/// Pages that lie side by side in a space and in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Address of the first in pages.
    pub page: u64,
    /// How many.
    pub count: u32,
    /// The frame of the first.
    pub frame: u32,
    /// The epoch that wrote them.
    pub written: u64,
}

/// Frames of the pages, 0 where there is none (frame 0 is the superblock), and the epochs that
/// wrote them. Epochs stay below 2^32: at ten a second that is 13 years of one program's life.
#[derive(Debug, Clone)]
struct Each {
    frames: [u32; PAGES],
    written: [u32; PAGES],
}

#[derive(Debug, Clone)]
enum Pages {
    None,
    /// All of them, one behind the other, from one epoch.
    Whole {
        frame: u32,
        written: u32,
    },
    Each(Box<Each>),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Leaf {
    pages: Pages,
    changed: [u64; WORDS],
    present: u32,
    /// The chunk in which page n has frame n.
    pub home: Option<u32>,
}

impl Default for Leaf {
    /// Without pages.
    fn default() -> Self {
        Self {
            pages: Pages::None,
            changed: [0; WORDS],
            present: 0,
            home: None,
        }
    }
}

impl Leaf {
    /// Pages that it has.
    pub fn present(&self) -> u32 {
        self.present
    }

    /// The first page's frame, if all pages follow it.
    pub fn whole(&self) -> Option<u32> {
        match self.pages {
            Pages::Whole { frame, .. } => Some(frame),
            _ => None,
        }
    }

    /// The frame of its page `index`, if it has it.
    pub fn frame(&self, index: usize) -> Option<u32> {
        match &self.pages {
            Pages::None => None,
            Pages::Whole { frame, .. } => Some(frame + index as u32),
            Pages::Each(each) => Some(each.frames[index]).filter(|frame| *frame != 0),
        }
    }

    /// All frames that it has, in the order of its pages.
    pub fn frames(&self) -> impl Iterator<Item = u32> + '_ {
        (0..PAGES).filter_map(|index| self.frame(index))
    }

    fn each(&mut self) -> &mut Each {
        if !matches!(self.pages, Pages::Each(_)) {
            let mut each = Box::new(Each {
                frames: [0; PAGES],
                written: [0; PAGES],
            });
            if let Pages::Whole { frame, written } = self.pages {
                each.frames
                    .iter_mut()
                    .zip(frame..)
                    .for_each(|(f, n)| *f = n);
                each.written = [written; PAGES];
            }
            self.pages = Pages::Each(each);
        }
        match &mut self.pages {
            Pages::Each(each) => each,
            _ => unreachable!("made just above"),
        }
    }

    /// `count` pages from `index` on are in the frames from `frame` on; `replaced` is called for each
    /// frame that held one before. Returns how many there were not before.
    pub fn set(
        &mut self,
        index: usize,
        count: usize,
        frame: u32,
        written: u64,
        mut replaced: impl FnMut(u32),
    ) -> u32 {
        let written = u32::try_from(written).unwrap_or(u32::MAX);
        let mut gone = 0;
        if self.present > 0 {
            for old in (index..index + count).filter_map(|index| self.frame(index)) {
                gone += 1;
                replaced(old);
            }
        }
        let new = count as u32 - gone;
        self.present += new;
        if count == PAGES {
            self.pages = Pages::Whole { frame, written };
        } else {
            let each = self.each();
            let frames = each.frames[index..index + count].iter_mut();
            frames.zip(frame..).for_each(|(f, n)| *f = n);
            each.written[index..index + count].fill(written);
        }
        self.mark(index, count);
        new
    }

    /// Pages from `from` up to `to` are gone; `dropped` is called for each frame that held one.
    /// Returns how many there were.
    pub fn remove(&mut self, from: usize, to: usize, mut dropped: impl FnMut(u32)) -> u32 {
        if self.present == 0 || from >= to {
            return 0;
        }
        let mut gone = 0;
        for index in from..to {
            if let Some(frame) = self.frame(index) {
                gone += 1;
                self.mark(index, 1);
                dropped(frame);
            }
        }
        self.present -= gone;
        if self.present == 0 {
            self.pages = Pages::None;
        } else if gone > 0 {
            self.each().frames[from..to].fill(0);
        }
        gone
    }

    fn mark(&mut self, index: usize, count: usize) {
        if count == PAGES {
            self.changed = [u64::MAX; WORDS];
            return;
        }
        for index in index..index + count {
            self.changed[index / 64] |= 1 << (index % 64);
        }
    }

    /// Whether a page was set or removed since [`Leaf::changes_are_durable`].
    pub fn is_changed(&self, index: usize) -> bool {
        self.changed[index / 64] >> (index % 64) & 1 == 1
    }

    /// From here on nothing counts as changed.
    pub fn changes_are_durable(&mut self) {
        self.changed = [0; WORDS];
    }

    /// Its pages in runs, ascending; `first` is the address of the first one in pages. Of all of
    /// them, or of those that have changed.
    pub fn runs(&self, first: u64, only_changed: bool) -> Runs<'_> {
        Runs {
            leaf: self,
            first,
            only_changed,
            at: 0,
        }
    }
}

/// See [`Leaf::runs`].
#[derive(Debug)]
pub struct Runs<'a> {
    leaf: &'a Leaf,
    first: u64,
    only_changed: bool,
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = PageRun;

    fn next(&mut self) -> Option<PageRun> {
        let wanted = |index: usize| !self.only_changed || self.leaf.is_changed(index);
        let start = match &self.leaf.pages {
            Pages::None => return None,
            Pages::Whole { .. } => (self.at..PAGES).find(|index| wanted(*index))?,
            Pages::Each(each) => {
                (self.at..PAGES).find(|index| each.frames[*index] != 0 && wanted(*index))?
            }
        };
        let (frame, written, end) = match &self.leaf.pages {
            Pages::None => return None,
            Pages::Whole { frame, written } => {
                let end = if self.only_changed {
                    (start..PAGES).find(|index| !wanted(*index))
                } else {
                    None
                };
                (frame + start as u32, *written, end)
            }
            Pages::Each(each) => {
                let (frame, written) = (each.frames[start], each.written[start]);
                let end = (start + 1..PAGES).find(|&index| {
                    each.frames[index] != frame + (index - start) as u32
                        || each.written[index] != written
                        || !wanted(index)
                });
                (frame, written, end)
            }
        };
        self.at = end.unwrap_or(PAGES);
        Some(PageRun {
            page: self.first + start as u64,
            count: (self.at - start) as u32,
            frame,
            written: u64::from(written),
        })
    }
}
