//! Mirrors a program's pages in the store: its spaces, their dirty pages, and one round of copying
//! them.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ptrace::{FrozenTree, Pid};
use crate::store::{PAGE_BYTES, Pages, Placement, SpaceId, Store};
use crate::track::{PageRange, PageSet, Program, Space, uffd};

use super::copy::{Job, copy, copy_as_tracer, differing, parallel, pieces, settle};
use super::objects::{self, Object};
use super::rates::{Rates, pages_in};
use super::read::{Sharing, Source};
use super::round::{Round, SyncError};

/// The store and the spaces that are mirrored in it.
#[derive(Debug)]
pub struct Mirror {
    /// Where to.
    pub store: Store,
    spaces: HashMap<Pid, Space>,
    objects: HashMap<(u64, u64), SpaceId>,
    last_space: u32,
    threads: usize,
    /// Threads that copy while the program runs: one, which leaves the other processors to
    /// programs, unless that is not enough.
    background_threads: usize,
    /// Whether this kernel's tracking can be trusted.
    tracking: bool,
    /// Whether processes that are not mirrored may share memory with those that are.
    relatives: bool,
    rates: Rates,
}

/// How pages are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// While the program runs.
    Beside(Part),
    /// While it stands; what is suspect is left.
    Standing(Part),
    /// While it stands, all of it; a page that cannot be read is an error.
    Epoch,
}

/// What of the dirty pages is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// As much as takes this long by the measured bandwidth.
    pub limit: Duration,
    /// Whether the program is a single process: nothing shares memory with it copy-on-write. It may fork meanwhile: a
    /// piece of which the first page was written after that is then copied in whole, and is right all the same.
    pub alone: bool,
}

/// Comparing 1 MiB with the store takes about as long as stopping the program.
const STOP_PAGES_MIN: u64 = (1 << 20) / PAGE_BYTES;

impl Mirror {
    /// Mirrors into this store. Without `tracking` every round reads and compares everything.
    pub fn new(store: Store, tracking: bool) -> Self {
        let last_space = store.root().map_or(0, |root| root.last_space);
        Self {
            store,
            spaces: HashMap::new(),
            objects: HashMap::new(),
            last_space,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            background_threads: 1,
            tracking,
            relatives: false,
            rates: Rates::default(),
        }
    }

    /// Of a program that was not started by us: its parent may share memory with it copy-on-write.
    #[must_use]
    pub fn with_relatives(self) -> Self {
        Self {
            relatives: true,
            ..self
        }
    }

    /// Whether this kernel's tracking can be trusted, where that is learnt later.
    pub fn set_tracking(&mut self, tracking: bool) {
        self.tracking = tracking;
    }

    /// Whether one processor is not enough for the background sync.
    pub fn hurry(&mut self, hurry: bool) {
        self.background_threads = if hurry { self.threads } else { 1 };
    }

    /// Bytes of private memory that the processes have now.
    pub fn private_bytes(&self) -> u64 {
        let of = |pid: &Pid| crate::procfs::private_pages(*pid).unwrap_or(0);
        self.spaces.keys().map(of).sum::<u64>() * PAGE_BYTES
    }

    /// Bytes of pages that the store holds.
    pub fn stored_bytes(&self) -> u64 {
        self.store.engine().index().pages() * PAGE_BYTES
    }

    /// How fast pages went to the store lately.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// A space number that was never used.
    fn fresh(&mut self) -> SpaceId {
        self.last_space += 1;
        SpaceId(self.last_space)
    }

    /// The highest space number given out.
    pub fn last_space(&self) -> u32 {
        self.last_space
    }

    /// The space of a process; allocated at the first call.
    pub fn space_of(&mut self, pid: Pid) -> SpaceId {
        if let Some(space) = self.spaces.get(&pid) {
            return space.id;
        }
        let id = self.fresh();
        self.spaces.insert(pid, Space::new(id, pid));
        id
    }

    /// The space of a shared-memory object, by device and inode.
    pub fn space_of_object(&mut self, device: u64, inode: u64) -> SpaceId {
        if let Some(space) = self.objects.get(&(device, inode)) {
            return *space;
        }
        let id = self.fresh();
        self.objects.insert((device, inode), id);
        id
    }

    /// A restored process lives in a space that the store knows.
    pub fn adopt(&mut self, pid: Pid, id: SpaceId) {
        self.spaces.insert(pid, Space::new(id, pid));
    }

    /// Processes that are mirrored.
    pub fn processes(&self) -> Vec<Pid> {
        self.spaces.keys().copied().collect()
    }

    /// Bytes that the program has in memory, by the last round.
    pub fn resident_bytes(&self) -> u64 {
        self.spaces.values().map(|space| space.resident_bytes).sum()
    }

    /// Whether it is useful to stop the program and protect more of it: a space could have a userfaultfd
    /// and has none, or much was found that is not protected.
    pub fn lacks_protection(&self) -> bool {
        let lacks = |space: &Space| match space.uffd {
            Some(_) => space.unprotected_pages >= STOP_PAGES_MIN,
            None => !space.refused,
        };
        self.tracking && self.spaces.values().any(lacks)
    }

    /// Forgets spaces of processes that are not in the tree, takes in new ones, and gives each
    /// a userfaultfd so that its pages can be protected from outside.
    ///
    /// # Errors
    /// A process ended while it was stopped.
    pub fn take_in(&mut self, tree: &mut FrozenTree) -> Result<(), crate::ptrace::Error> {
        self.keep_only(&tree.living());
        for process in &mut tree.processes {
            if process.threads.is_empty() {
                continue;
            }
            self.space_of(process.pid);
            let Some(space) = self.spaces.get_mut(&process.pid) else {
                continue;
            };
            if space.uffd.is_some() || space.refused || !self.tracking {
                continue;
            }
            if crate::procfs::is_filtered(process.pid)
                && let Err(error) = process.suspend_filters()
            {
                tracing::warn!(
                    pid = process.pid,
                    "it runs under seccomp, and makes no call for us ({error}): it cannot be \
                     persisted"
                );
                space.refused = true;
                continue;
            }
            match userfaultfd_of(process)? {
                Ok(uffd) => space.uffd = Some(uffd),
                Err(error) => {
                    tracing::warn!(
                        pid = process.pid,
                        "no userfaultfd ({error}): all of its memory is compared each time"
                    );
                    space.refused = true;
                }
            }
        }
        Ok(())
    }

    /// Processes that have ended owe nothing.
    pub fn keep_only(&mut self, alive: &[Pid]) {
        let gone: Vec<Pid> = self
            .spaces
            .keys()
            .filter(|pid| !alive.contains(pid))
            .copied()
            .collect();
        for pid in gone {
            if let Some(space) = self.spaces.remove(&pid) {
                self.store.forget_space(space.id);
            }
        }
    }

    /// Finds what has changed and protects it again; what was never protected, only while the
    /// program stands. A process that has ended is left for [`Mirror::keep_only`].
    pub fn scan(&mut self, program: Program) -> Round {
        let started = Instant::now();
        let mut round = Round::default();
        let threads = match program {
            Program::Runs => 1,
            Program::Stands | Program::Ends => self.threads,
        };
        for space in self.spaces.values_mut() {
            let mut gaps = Vec::new();
            let index = self.store.engine().index();
            match space.scan(index, program, threads, |gap| gaps.push(gap)) {
                Ok(scan) => round.written_pages += scan.written_pages,
                Err(error) => tracing::debug!(pid = space.pid, "cannot be looked at: {error}"),
            }
            for gap in gaps {
                self.store.forget(space.id, gap.page, gap.count);
            }
        }
        round.scan = started.elapsed();
        round
    }

    /// Bytes that the store does not hold yet; suspect ones count.
    pub fn dirty_bytes(&mut self) -> u64 {
        let pages: u64 = self
            .spaces
            .values_mut()
            .map(|space| space.dirty.pages() + space.suspect.pages())
            .sum();
        pages * PAGE_BYTES
    }

    /// How long it will take to copy a stopped program's pages: to store what is dirty, and to compare what
    /// is suspect, most of which is in the store already.
    pub fn copy_time(&mut self) -> Duration {
        let (mut dirty, mut suspect) = (0, 0);
        for space in self.spaces.values_mut() {
            dirty += space.dirty.pages();
            suspect += space.suspect.pages();
        }
        self.rates.time(dirty, suspect)
    }

    /// Copies dirty pages to the store. A set `stop` ends it early; pages that were not reached stay
    /// dirty.
    ///
    /// # Errors
    /// The store is full or failed: pages that are not stored stay dirty. A page cannot be read: see [`Copying`].
    pub fn copy_dirty(&mut self, stop: &AtomicBool, how: Copying) -> Result<Round, SyncError> {
        let started = Instant::now();
        let mut round = Round::default();
        let (threads, alone, mut left) = match how {
            Copying::Beside(part) => {
                let pages = pages_in(self.rates.beside(), part.limit);
                (self.background_threads, part.alone, pages)
            }
            Copying::Standing(part) => {
                let pages = pages_in(self.rates.standing(), part.limit);
                (self.threads, part.alone, pages)
            }
            Copying::Epoch => (self.threads, true, u64::MAX),
        };
        let frozen = how == Copying::Epoch;
        let sharing = if !alone || self.relatives || self.spaces.len() > 1 {
            Sharing::Possible
        } else if matches!(how, Copying::Beside(_)) {
            Sharing::NotYet
        } else {
            Sharing::Never
        };
        if !matches!(how, Copying::Standing(_)) {
            self.compare(stop, (threads, sharing), &mut round);
            let compared = started.elapsed();
            self.rates.compared(round.compared_pages, compared);
        }
        let mut jobs = Vec::new();
        let mut placed = Vec::new();
        let mut full = None;
        for space in self.spaces.values_mut() {
            let mut ranges = space.dirty.take_first(left);
            left -= ranges.pages();
            for range in ranges.ranges() {
                if full.is_some() {
                    space.dirty.add(*range);
                    continue;
                }
                let before = placed.len();
                let result = self.store.place(
                    Pages {
                        space: space.id,
                        first: range.page,
                        count: range.count,
                    },
                    &mut placed,
                );
                if let Err(error) = result {
                    let partly: Vec<Placement> = placed.drain(before..).collect();
                    partly.iter().for_each(|p| self.store.abandon(p));
                    space.dirty.add(*range);
                    full = Some(error);
                    continue;
                }
                let source = Source::Process {
                    pid: space.pid,
                    sharing,
                };
                jobs.extend(placed[before..].iter().map(|placement| Job {
                    source,
                    placement: *placement,
                }));
                // Placements grow at their end: the next range begins one of its own.
                placed.clear();
            }
        }
        let copying = Instant::now();
        let mut copied = copy(self.store.medium(), &jobs, threads, stop);
        if frozen && !copied.failed.is_empty() && !stop.load(Ordering::Relaxed) {
            copy_as_tracer(self.store.medium(), &jobs, &mut copied);
        }
        round.stored_pages = (copied.checksums.len() - copied.failed.len()) as u64;
        let standing = !matches!(how, Copying::Beside(_));
        self.rates
            .copied(round.stored_pages, copying.elapsed(), standing);
        let lost = settle(&mut self.store, &jobs, &copied);
        let stopped = stop.load(Ordering::Relaxed);
        let mut unreadable = None;
        for (pid, page) in lost {
            let Some(space) = self.spaces.get_mut(&pid) else {
                continue;
            };
            space.dirty.add(PageRange { page, count: 1 });
            if frozen && !stopped {
                unreadable.get_or_insert((pid, page * PAGE_BYTES));
            }
        }
        round.copy = started.elapsed();
        match (full, unreadable) {
            (Some(error), _) => Err(error.into()),
            (None, Some((pid, address))) => Err(SyncError::Unreadable { pid, address }),
            (None, None) => Ok(round),
        }
    }

    /// Suspect pages that are not what the store has become dirty.
    fn compare(
        &mut self,
        stop: &AtomicBool,
        (threads, sharing): (usize, Sharing),
        round: &mut Round,
    ) {
        let engine = self.store.engine();
        for space in self.spaces.values_mut() {
            let mut suspect = std::mem::take(&mut space.suspect);
            let ranges = suspect.ranges();
            let mut known = Vec::new();
            for range in ranges {
                let missing = engine.index().missing(space.id, range.page, range.count);
                let missing = missing.iter().map(|(page, count)| PageRange {
                    page: *page,
                    count: *count,
                });
                let missing: Vec<PageRange> = missing.collect();
                let mut whole = PageSet::from_iter([*range]);
                known.extend_from_slice(whole.without(&missing).ranges());
                missing.iter().for_each(|range| space.dirty.add(*range));
            }
            // Small pieces, so that all processors have work and a stop takes effect soon.
            let pieces: Vec<PageRange> = known.iter().flat_map(pieces).collect();
            round.compared_pages += pieces.iter().map(|piece| piece.count).sum::<u64>();
            let source = Source::Process {
                pid: space.pid,
                sharing,
            };
            let id = space.id;
            let results = parallel(&pieces, threads, |piece| {
                if stop.load(Ordering::Relaxed) {
                    return None;
                }
                let stored: Vec<_> = (piece.page..piece.end())
                    .map(|page| engine.checksum_of(id, page))
                    .collect();
                Some(differing(source, piece.page, &stored))
            });
            for (piece, result) in pieces.iter().zip(results) {
                match result {
                    None => space.suspect.add(*piece),
                    Some(pages) => pages
                        .into_iter()
                        .for_each(|page| space.dirty.add(PageRange { page, count: 1 })),
                }
            }
        }
    }

    /// Brings shared-memory objects to the store: what differs from it is written, holes and
    /// what is past the end are forgotten.
    ///
    /// # Errors
    /// An object cannot be read; the store is full or failed.
    pub fn copy_objects(&mut self, objects: &[Object]) -> Result<Round, SyncError> {
        let started = Instant::now();
        let mut round = Round::default();
        for object in objects {
            objects::copy_object(&mut self.store, object, self.threads, &mut round)?;
        }
        // Whatever else the store has is of objects that are gone, or of a former life.
        let used: Vec<SpaceId> = objects.iter().map(|object| object.space).collect();
        self.objects.retain(|_, space| used.contains(space));
        for space in self.store.engine().index().spaces() {
            let lives = used.contains(&space) || self.spaces.values().any(|s| s.id == space);
            if !lives {
                self.store.forget_space(space);
            }
        }
        round.copy = started.elapsed();
        Ok(round)
    }
}

/// Makes a userfaultfd of a stopped process and takes it over.
fn userfaultfd_of(
    process: &mut crate::ptrace::FrozenProcess,
) -> Result<io::Result<OwnedFd>, crate::ptrace::Error> {
    let flags = libc::O_CLOEXEC as u64 | libc::O_NONBLOCK as u64 | uffd::USER_MODE_ONLY;
    let made = process.syscall(0, libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
    let remote = match made {
        Ok(remote) => remote,
        Err(error) => return Ok(Err(error)),
    };
    let taken = crate::ptrace::sys::take_fd(process.pid, remote as i32);
    // The program never sees it: its number is free again before it runs on.
    let _ = process.syscall(0, libc::SYS_close, [remote, 0, 0, 0, 0, 0])?;
    process.end_injections();
    Ok(taken.and_then(|uffd| {
        uffd::enable(&uffd, uffd::FEATURE_WP_ASYNC | uffd::FEATURE_WP_UNPOPULATED)?;
        Ok(uffd)
    }))
}
