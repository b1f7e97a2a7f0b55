//! One address space: what has changed in it since the last scan.
//!
//! A scan yields two sets. *Dirty* pages were written to. *Suspect* pages are in ranges whose
//! protection was lost or never was (a new or moved mapping, a fork's child, a private file
//! mapping): they are compared with the store. A page that is there, in a protected range, not
//! written to and not in the store would mean that a write was missed: it counts as dirty.
//!
//! Ranges are protected anew only while the program is stopped: registering splits a mapping
//! that has grown since its bounds were read, and a program that moves it at that instant would
//! see mremap(2) fail.

use std::io;
use std::os::fd::OwnedFd;

use crate::procfs;
use crate::store::index::Index;
use crate::store::{PAGE_BYTES, SpaceId};

use super::areas::{Area, Kind, areas};
use super::pagemap::{self, Protect, Region, WRITTEN};
use super::pages::{PageRange, PageSet};
use super::uffd;

/// An address space that is tracked.
#[derive(Debug)]
pub struct Space {
    /// Its number in the store.
    pub id: SpaceId,
    /// A process that lives in it.
    pub pid: i32,
    /// Protects its pages; none: everything is suspect at each scan.
    pub uffd: Option<OwnedFd>,
    /// It cannot have one.
    pub refused: bool,
    /// Found dirty by a scan, and not stored yet.
    pub dirty: PageSet,
    /// Found suspect by a scan, and not compared yet.
    pub suspect: PageSet,
    /// Pages that only `/proc/PID/mem` can read.
    pub unreadable: PageSet,
    /// Bytes that it has, by the last scan.
    pub resident_bytes: u64,
    /// Pages that could be protected and, by the last scan, are not.
    pub unprotected_pages: u64,
    /// Pages that the kernel would not protect, by the last scan of a stopped program.
    refused_pages: u64,
}

/// Whether the program is stopped during a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Nothing is protected that was not.
    Runs,
    /// Every thread of it is stopped.
    Stands,
    /// The same, and it is killed if all goes well: nothing is protected at all. If not, what it has written
    /// to is found to be written at the next scan, too.
    Ends,
}

/// Result of a scan, besides what it added to the space's sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scan {
    /// Pages written to since the last one.
    pub written_pages: u64,
    /// Pages in ranges that were not protected.
    pub suspect_pages: u64,
    /// Ranges whose protection was lost, or that are new, and are protected now.
    pub armed: u32,
}

fn range_of(region: &Region) -> PageRange {
    PageRange {
        page: region.start / PAGE_BYTES,
        count: pagemap::page_count(region),
    }
}

impl Space {
    /// An address space of which nothing is known yet.
    pub fn new(id: SpaceId, pid: i32) -> Self {
        Self {
            id,
            pid,
            uffd: None,
            refused: false,
            dirty: PageSet::default(),
            suspect: PageSet::default(),
            unreadable: PageSet::default(),
            resident_bytes: 0,
            unprotected_pages: 0,
            refused_pages: 0,
        }
    }

    /// Scans all of it and protects what was written to, by up to `threads` threads. `forget` is called for every
    /// range without pages to store.
    ///
    /// # Errors
    /// The process has ended, or /proc cannot be read.
    pub fn scan(
        &mut self,
        index: &Index,
        program: Program,
        threads: usize,
        mut forget: impl FnMut(PageRange),
    ) -> io::Result<Scan> {
        let maps = procfs::maps(self.pid)?;
        let pagemap = pagemap::open(self.pid)?;
        let mut scan = Scan::default();
        let mut gaps = Vec::new();
        let mut kept = Kept::default();
        self.unreadable = PageSet::default();
        self.resident_bytes = 0;
        self.unprotected_pages = 0;
        if program != Program::Runs {
            self.refused_pages = 0;
        }
        for area in areas(&maps) {
            let regions = self.scan_area(&pagemap, &area, program, threads, &mut scan)?;
            for (region, state) in regions {
                let range = range_of(&region);
                self.resident_bytes += region.end - region.start;
                kept.next(range, &mut gaps);
                if !area.readable {
                    self.unreadable.add(range);
                }
                match state {
                    State::Suspect => {
                        scan.suspect_pages += range.count;
                        self.suspect.add(range);
                    }
                    State::Written => {
                        scan.written_pages += range.count;
                        self.dirty.add(range);
                    }
                    State::Clean => {
                        for overlooked in index.missing(self.id, range.page, range.count) {
                            self.dirty.add(PageRange {
                                page: overlooked.0,
                                count: overlooked.1,
                            });
                        }
                    }
                }
            }
        }
        self.unprotected_pages = self.unprotected_pages.saturating_sub(self.refused_pages);
        kept.end(&mut gaps);
        gaps.iter().copied().for_each(&mut forget);
        // Dirty pages that are gone meanwhile need not be stored.
        self.dirty = self.dirty.without(&gaps);
        self.suspect = self.suspect.without(&gaps);
        Ok(scan)
    }

    fn scan_area(
        &mut self,
        pagemap: &std::fs::File,
        area: &Area,
        program: Program,
        threads: usize,
        scan: &mut Scan,
    ) -> io::Result<Vec<(Region, State)>> {
        let mut found = Vec::new();
        let suspects = |found: &mut Vec<(Region, State)>, protect| {
            found.clear();
            pagemap::scan(pagemap, area, protect, |region| {
                if pagemap::is_private_content(&region) {
                    found.push((region, State::Suspect));
                }
            })
        };
        let Some(uffd) = self.uffd.as_ref().filter(|_| area.kind == Kind::Anonymous) else {
            suspects(&mut found, Protect::Nothing)?;
            return Ok(found);
        };
        let protect = match program {
            Program::Ends => Protect::Registered,
            Program::Runs | Program::Stands => Protect::Written,
        };
        match pagemap::scan_by(threads, pagemap, area, protect) {
            Ok(mut regions) => {
                regions.retain(pagemap::is_private_content);
                let state = |region: &Region| match region.has(WRITTEN) {
                    true => State::Written,
                    false => State::Clean,
                };
                return Ok(regions.into_iter().map(|r| (r, state(&r))).collect());
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            Err(error) => return Err(error),
        }
        // New, moved, or grown together with something new: whatever it was, it counts as lost.
        if program != Program::Stands {
            suspects(&mut found, Protect::Nothing)?;
            self.unprotected_pages += pages(&found);
            return Ok(found);
        }
        match uffd::begin(uffd, area.start, area.end) {
            Ok(()) => scan.armed += 1,
            // Another program lives here now (exec); it gets a userfaultfd of its own.
            Err(_) if is_of_the_past(uffd) => self.uffd = None,
            Err(error) => {
                tracing::debug!(
                    pid = self.pid,
                    start = format!("{:#x}", area.start),
                    "cannot be protected, will be compared: {error}"
                );
                suspects(&mut found, Protect::Nothing)?;
                self.refused_pages += pages(&found);
                return Ok(found);
            }
        }
        // Protected first and read later: what is written in between is seen at the next scan.
        let protect = if self.uffd.is_some() {
            Protect::Written
        } else {
            Protect::Nothing
        };
        let scanned = suspects(&mut found, protect);
        if scanned.is_err() {
            suspects(&mut found, Protect::Nothing)?;
        }
        Ok(found)
    }
}

fn pages(found: &[(Region, State)]) -> u64 {
    found
        .iter()
        .map(|(region, _)| pagemap::page_count(region))
        .sum()
}

/// Whether the memory that a userfaultfd belongs to is gone. Registering then returns ENOMEM, as if
/// there were no space; filling a page that cannot be mapped returns ESRCH.
fn is_of_the_past(uffd: &OwnedFd) -> bool {
    let filled = uffd::zero(uffd, PAGE_BYTES);
    filled.is_err_and(|(_, error)| error.raw_os_error() == Some(libc::ESRCH))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Clean,
    Written,
    Suspect,
}

/// Collects the gaps between the ranges that are kept.
#[derive(Debug, Default)]
struct Kept {
    end: u64,
}

impl Kept {
    fn next(&mut self, range: PageRange, gaps: &mut Vec<PageRange>) {
        if range.page > self.end {
            gaps.push(PageRange {
                page: self.end,
                count: range.page - self.end,
            });
        }
        self.end = self.end.max(range.end());
    }

    fn end(self, gaps: &mut Vec<PageRange>) {
        gaps.push(PageRange {
            page: self.end,
            count: (1 << 45) - self.end,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_between_the_kept_ranges_is_forgotten() {
        let mut gaps = Vec::new();
        let mut kept = Kept::default();
        for (page, count) in [(5, 2), (7, 1), (10, 1)] {
            kept.next(PageRange { page, count }, &mut gaps);
        }
        kept.end(&mut gaps);
        let gaps: Vec<_> = gaps.iter().map(|gap| (gap.page, gap.end())).collect();
        assert_eq!(gaps, [(0, 5), (8, 10), (11, 1 << 45)]);
    }
}
