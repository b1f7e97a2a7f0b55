//! Cuts a process into pieces for the workers, while it is scanned.
//!
//! A piece names runs, not pages: 512 GiB of small pages are 134 million, and 16 bytes for each
//! would be 2 GiB at the moment when memory is short. Its pages are listed when it is moved.

use super::{Batch, Page, Task};
use crate::system::pages::{HUGE_PAGE_BYTES, PAGE_BYTES, Run};

/// A part of a process, about as large as a batch.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) pid: i32,
    to_node: u32,
    runs: Vec<Run>,
}

/// Gives out pieces as soon as they are large enough.
pub(super) struct Cutter<'a, Give: FnMut(Piece)> {
    task: &'a Task,
    batch_bytes: u64,
    give: Give,
    runs: Vec<Run>,
    bytes: u64,
}

fn step_bytes(run: &Run) -> u64 {
    if run.huge {
        HUGE_PAGE_BYTES
    } else {
        PAGE_BYTES
    }
}

impl<'a, Give: FnMut(Piece)> Cutter<'a, Give> {
    pub(super) fn new(task: &'a Task, batch_bytes: u64, give: Give) -> Self {
        Self {
            task,
            batch_bytes,
            give,
            runs: Vec::new(),
            bytes: 0,
        }
    }

    /// The next run of the scan.
    pub(super) fn add(&mut self, mut run: Run) {
        while run.start < run.end {
            let room = self.batch_bytes.saturating_sub(self.bytes).max(1);
            // A huge page is not cut, even where it is more than a batch.
            let full = (run.start + room).next_multiple_of(step_bytes(&run));
            let end = full.min(run.end);
            self.bytes += end - run.start;
            self.runs.push(Run { end, ..run });
            run.start = end;
            if self.bytes >= self.batch_bytes {
                self.give();
            }
        }
    }

    /// What is left, if anything.
    pub(super) fn finish(mut self) {
        if !self.runs.is_empty() {
            self.give();
        }
    }

    fn give(&mut self) {
        self.bytes = 0;
        (self.give)(Piece {
            pid: self.task.pid,
            to_node: self.task.to_node,
            runs: std::mem::take(&mut self.runs),
        });
    }
}

impl Piece {
    /// With its pages listed.
    pub(super) fn into_batch(self) -> Batch {
        let mut pages = Vec::new();
        for run in self.runs {
            let step = step_bytes(&run);
            let mut address = run.start;
            while address < run.end {
                // A run may begin or end inside a huge page when the scan was cut there.
                let next = ((address / step + 1) * step).min(run.end);
                let bytes = next - address;
                pages.push(Page { address, bytes });
                address = next;
            }
        }
        Batch {
            pid: self.pid,
            to_node: self.to_node,
            pages,
            hot: false,
        }
    }
}

/// All batches of some runs.
#[cfg(test)]
pub(super) fn cut(task: &Task, runs: &[Run], batch_bytes: u64) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut cutter = Cutter::new(task, batch_bytes, |piece: Piece| {
        batches.push(piece.into_batch());
    });
    for run in runs {
        cutter.add(*run);
    }
    cutter.finish();
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            pid: 1,
            bytes: 0,
            to_node: 2,
        }
    }

    #[test]
    fn half_a_tebibyte_of_small_pages_waits_in_less_than_four_mebibytes() {
        let task = task();
        let (mut pieces, mut bytes) = (0, 0);
        let mut cutter = Cutter::new(&task, 32 << 20, |piece: Piece| {
            pieces += 1;
            bytes += size_of::<Piece>() + piece.runs.capacity() * size_of::<Run>();
        });
        cutter.add(Run {
            start: 0,
            end: 512 << 30,
            huge: false,
        });
        cutter.finish();
        assert_eq!(pieces, 512 * 32);
        assert!(bytes < 4 << 20, "{bytes}");
    }

    #[test]
    fn a_huge_page_is_never_cut() {
        let run = Run {
            start: 3 * HUGE_PAGE_BYTES,
            end: 6 * HUGE_PAGE_BYTES,
            huge: true,
        };
        let batches = cut(&task(), &[run], PAGE_BYTES);
        let found: Vec<_> = batches.iter().map(|batch| batch.pages.clone()).collect();
        let page = |number| {
            vec![Page {
                address: number * HUGE_PAGE_BYTES,
                bytes: HUGE_PAGE_BYTES,
            }]
        };
        assert_eq!(found, [page(3), page(4), page(5)]);
    }
}
