//! Lazy restore: fills the pages of a restored program while it runs. A page that the program
//! touches is filled at once; the others follow, hottest first.
//!
//! ```text
//!   program ── touches a missing page ──────────► kernel ──► userfaultfd ─┐
//!      ▲                                                                  ▼
//!      └──── UFFDIO_COPY of the page, its checksum compared before ◄── filler ── store
//!                                                              └── meanwhile: the rest, in order
//! ```
//!
//! Anonymous memory is anonymous from the start, so dropping, moving, unmapping and forking behave
//! as before. The kernel reports them, and waits until the filler has read the event.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::guard::Guard;
use super::pager::{Lacking, Piece};
use super::sharing::ranges;
use super::{LeftToFill, allow_huge_pages};
use crate::memory;
use crate::ptrace::{self, FrozenTree, Pid, sys::take_fd};
use crate::store::{DamagedPage, Extent, PAGE_BYTES, Snapshot, SpaceId};
use crate::track::uffd;

/// Bytes that are filled in one step: long enough to be quick, short enough that a waiting thread
/// is served soon.
const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes that are filled together with a page that the program touched.
const AROUND_BYTES: u64 = 64 << 10;
const PAGE: usize = PAGE_BYTES as usize;

/// Why memory cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The medium has changed a page.
    #[error(transparent)]
    Damaged(#[from] DamagedPage),
    /// The kernel does not take a page, for want of memory perhaps.
    #[error("a page cannot be filled: {0}")]
    Page(#[source] io::Error),
    /// A process cannot be worked with.
    #[error(transparent)]
    Ptrace(#[from] ptrace::Error),
    /// A system call failed.
    #[error("process {pid}: cannot {action}: {source}")]
    Io {
        /// In which process.
        pid: Pid,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Pages are being filled.
pub struct Filling {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    guard: Guard,
}

struct Shared {
    left_bytes: AtomicU64,
    done: AtomicBool,
    failure: Mutex<Option<FillError>>,
}

impl Filling {
    /// Bytes that are not there yet.
    pub fn left_bytes(&self) -> u64 {
        self.shared.left_bytes.load(Ordering::Relaxed)
    }

    /// Whether all pages are filled, or filling has failed.
    pub fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Waits until everything is there.
    ///
    /// # Errors
    /// A page cannot be filled: the program waits for it, and must be killed.
    pub fn finish(mut self) -> Result<(), FillError> {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let failure = self.shared.failure.lock().ok().and_then(|mut f| f.take());
        match failure {
            // The guard's are the last descriptors: now all memory is let go of.
            None => {
                self.guard.dismiss();
                Ok(())
            }
            // Without us the guard kills the program.
            Some(error) => Err(error),
        }
    }

    /// The process that kills the program should we die; not one of the program's.
    pub fn guard(&self) -> Pid {
        self.guard.pid()
    }
}

/// An address space that is being filled.
struct Target {
    uffd: OwnedFd,
    lacking: Lacking,
}

/// Starts to fill memory of a tree that is still stopped; it may run as soon as this returns.
/// `waker` gets a byte at the end. Memory of processes in which no userfaultfd can be had is
/// filled before this returns.
///
/// # Errors
/// A process ended, or a page does not match its checksum.
pub fn start(
    tree: &mut FrozenTree,
    to_fill: &[LeftToFill],
    snapshot: Arc<dyn Snapshot>,
    mut waker: UnixStream,
) -> Result<Filling, FillError> {
    let mut targets = Vec::new();
    let mut pids: Vec<Pid> = to_fill.iter().map(|area| area.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        let areas: Vec<LeftToFill> = to_fill.iter().filter(|a| a.pid == pid).cloned().collect();
        let huge_pages = areas.iter().any(|area| area.huge_pages);
        match target(tree, pid, &areas) {
            Ok(target) => targets.push(target),
            Err(FillError::Io { source, .. }) => {
                tracing::warn!(pid, "filled before it runs, not while it runs: {source}");
                fill_now(&areas, &*snapshot)?;
            }
            Err(error) => return Err(error),
        }
        // From here on a missing page causes a fault, whatever its size would be.
        if huge_pages {
            let only_advised = areas.iter().any(|area| area.only_advised);
            allow_huge_pages(tree, pid, only_advised)?;
        }
    }
    let alive: Vec<Pid> = tree.processes.iter().map(|process| process.pid).collect();
    let guard =
        Guard::start(&alive).map_err(io_error(0, "start the guard of a half-filled tree"))?;
    let mut chunks = chunks(&targets, &*snapshot);
    let left = chunks.iter().map(|(_, chunk)| chunk.bytes).sum();
    let shared = Arc::new(Shared {
        left_bytes: AtomicU64::new(left),
        done: AtomicBool::new(false),
        failure: Mutex::default(),
    });
    let theirs = Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        hottest_first(&mut chunks);
        let mut filler = Filler {
            targets,
            snapshot,
            shared: theirs,
        };
        let result = filler.fill(chunks);
        let Filler {
            targets, shared, ..
        } = filler;
        match result {
            // With its last descriptor a userfaultfd lets go of all memory.
            Ok(()) => drop(targets),
            Err(error) => {
                if let Ok(mut failure) = shared.failure.lock() {
                    *failure = Some(error);
                }
                // Threads that wait for a page must not go on without it: the descriptors stay
                // open until the program has been killed.
                std::mem::forget(targets);
            }
        }
        shared.done.store(true, Ordering::Release);
        let _ = waker.write(&[0]);
    });
    Ok(Filling {
        shared,
        thread: Some(thread),
        guard,
    })
}

fn io_error(pid: Pid, action: &'static str) -> impl Fn(io::Error) -> FillError {
    move |source| FillError::Io {
        pid,
        action,
        source,
    }
}

/// A userfaultfd of a process, with its empty memory registered.
fn target(tree: &mut FrozenTree, pid: Pid, areas: &[LeftToFill]) -> Result<Target, FillError> {
    let process = tree
        .process_mut(pid)
        .ok_or_else(|| io_error(pid, "find it")(io::ErrorKind::NotFound.into()))?;
    let flags = libc::O_CLOEXEC as u64 | libc::O_NONBLOCK as u64;
    let remote = process
        .syscall(0, libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?
        .map_err(io_error(pid, "make a userfaultfd"))?;
    let taken = take_fd(pid, remote as i32);
    let _ = process.syscall(0, libc::SYS_close, [remote, 0, 0, 0, 0, 0])?;
    process.end_injections();
    let uffd = taken.map_err(io_error(pid, "take its userfaultfd"))?;
    uffd::enable(
        &uffd,
        uffd::FEATURE_EVENT_FORK
            | uffd::FEATURE_EVENT_REMAP
            | uffd::FEATURE_EVENT_REMOVE
            | uffd::FEATURE_EVENT_UNMAP,
    )
    .map_err(io_error(pid, "agree on userfaultfd events"))?;
    let mut lacking = Lacking::default();
    for area in areas {
        uffd::register(&uffd, area.range.start, area.range.end, uffd::MODE_MISSING)
            .map_err(io_error(pid, "register its memory"))?;
        lacking.add(Piece {
            start: area.range.start,
            end: area.range.end,
            space: area.space,
            stored: area.range.start,
        });
        for filled in &area.filled {
            lacking.remove(filled);
        }
    }
    Ok(Target { uffd, lacking })
}

/// A part of an extent, by stored addresses.
fn part(extent: &Extent, start: u64, end: u64) -> Extent {
    Extent {
        start,
        bytes: end - start,
        offset: extent.offset + (start - extent.start),
        written: extent.written,
    }
}

/// Fills memory of stopped processes from outside.
///
/// # Errors
/// It cannot be written, or a page does not match its checksum.
pub fn fill_now(areas: &[LeftToFill], snapshot: &dyn Snapshot) -> Result<(), FillError> {
    for area in areas {
        for lacking in ranges::outside(&area.filled, &area.range) {
            for extent in snapshot.extents_in(area.space, lacking) {
                snapshot.check(area.space, &extent)?;
                memory::write(area.pid, extent.start, snapshot.bytes(&extent))
                    .map_err(io_error(area.pid, "fill its memory"))?;
            }
        }
    }
    Ok(())
}

/// What is to be filled, in the order of addresses.
fn chunks(targets: &[Target], snapshot: &dyn Snapshot) -> Vec<(SpaceId, Extent)> {
    let mut chunks = Vec::new();
    for piece in targets.iter().flat_map(|target| target.lacking.pieces()) {
        let stored = piece.stored..piece.stored + (piece.end - piece.start);
        for extent in snapshot.extents_in(piece.space, stored) {
            let end = extent.start + extent.bytes;
            let starts = (extent.start..end).step_by(CHUNK_BYTES as usize);
            chunks.extend(starts.map(|start| {
                let chunk = part(&extent, start, (start + CHUNK_BYTES).min(end));
                (piece.space, chunk)
            }));
        }
    }
    chunks
}

/// What was written last is used next; among equals in the order of addresses.
fn hottest_first(chunks: &mut [(SpaceId, Extent)]) {
    chunks.sort_by_key(|(space, chunk)| (std::cmp::Reverse(chunk.written), *space, chunk.start));
}

struct Filler {
    targets: Vec<Target>,
    snapshot: Arc<dyn Snapshot>,
    shared: Arc<Shared>,
}

/// The result of filling a range of bytes.
enum Put {
    Done,
    /// The program changes its memory: its events come first.
    EventsFirst,
    /// Its address space is gone.
    Gone,
}

impl Filler {
    fn fill(&mut self, chunks: Vec<(SpaceId, Extent)>) -> Result<(), FillError> {
        for (space, chunk) in chunks {
            self.fill_chunk(space, &chunk)?;
            self.shared
                .left_bytes
                .fetch_sub(chunk.bytes, Ordering::Relaxed);
        }
        // A fork that was under way gave a child that lacks what its parent lacked then.
        while self.events(Duration::ZERO)? {}
        Ok(())
    }

    /// Fills a chunk in every process that lacks it.
    fn fill_chunk(&mut self, space: SpaceId, chunk: &Extent) -> Result<(), FillError> {
        self.snapshot.check(space, chunk)?;
        let stored = chunk.start..chunk.start + chunk.bytes;
        // Events change the targets and their missing pages: checked again each time.
        let mut at = 0;
        while at < self.targets.len() {
            self.events(Duration::ZERO)?;
            let mut again = false;
            let places = self
                .targets
                .get(at)
                .map(|target| target.lacking.places(space, &stored))
                .unwrap_or_default();
            for place in places {
                let extent = part(
                    chunk,
                    place.stored,
                    place.stored + (place.end - place.start),
                );
                let bytes = self.snapshot.bytes(&extent);
                let put =
                    put(&self.targets[at].uffd, place.start, bytes).map_err(FillError::Page)?;
                match put {
                    Put::Done => {}
                    Put::EventsFirst => again = true,
                    Put::Gone => {
                        self.targets[at].lacking = Lacking::default();
                        break;
                    }
                }
            }
            if again {
                self.events(Duration::from_millis(1))?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Reads the events of all programs; whether there was any.
    fn events(&mut self, timeout: Duration) -> Result<bool, FillError> {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let descriptors: Vec<_> = self.targets.iter().map(|t| t.uffd.as_fd()).collect();
        let mut polled: Vec<PollFd<'_>> = descriptors
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let _ = poll(&mut polled, Some(&timeout));
        let ready: Vec<usize> = (0..polled.len())
            .filter(|index| polled[*index].revents().contains(PollFlags::IN))
            .collect();
        for index in &ready {
            while let Some(message) = Message::read(&self.targets[*index].uffd) {
                self.take_event(*index, &message)?;
            }
        }
        Ok(!ready.is_empty())
    }

    fn take_event(&mut self, index: usize, message: &Message) -> Result<(), FillError> {
        let target = &mut self.targets[index];
        match message {
            Message::Missing(address) => self.serve(index, address & !(PAGE_BYTES - 1))?,
            Message::Fork(child) => {
                // SAFETY: the kernel made this descriptor for us when the message was read.
                let uffd = unsafe { OwnedFd::from_raw_fd(*child) };
                let lacking = target.lacking.clone();
                self.targets.push(Target { uffd, lacking });
            }
            Message::Moved { from, to, bytes } => {
                target.lacking.moved(&(*from..from + bytes), *to);
            }
            Message::Removed { start, end } => {
                target.lacking.remove(&(*start..*end));
            }
        }
        Ok(())
    }

    /// A thread waits for a page: it, and what is beside it.
    fn serve(&mut self, index: usize, address: u64) -> Result<(), FillError> {
        let target = &self.targets[index];
        if let Some(piece) = target.lacking.at(address) {
            let stored = piece.stored + (address - piece.start);
            let around = stored & !(AROUND_BYTES - 1);
            let from = around.max(piece.stored);
            let to = (around + AROUND_BYTES).min(piece.stored + (piece.end - piece.start));
            let mut extents = self.snapshot.extents_in(piece.space, from..to);
            let holds = |e: &Extent| (e.start..e.start + e.bytes).contains(&stored);
            let extent = extents.find(holds);
            drop(extents);
            if let Some(extent) = extent {
                let (from, to) = (extent.start, extent.start + extent.bytes);
                // The page itself first: the thread goes on while the others come.
                for (from, to) in [(stored, stored + PAGE_BYTES), (from, to)] {
                    let extent = part(&extent, from, to);
                    self.snapshot.check(piece.space, &extent)?;
                    let at = piece.start + (from - piece.stored);
                    // If events come first, the thread faults again afterwards.
                    put(&target.uffd, at, self.snapshot.bytes(&extent)).map_err(FillError::Page)?;
                }
                let _ = uffd::wake(&target.uffd, address, PAGE_BYTES);
                return Ok(());
            }
        }
        // Never stored, or dropped since: zeros, as of any new memory.
        match uffd::zero(&target.uffd, address).map_err(|(_, error)| (error.raw_os_error(), error))
        {
            // Filled or unmapped by now; or it faults again when its events have been read.
            Ok(_) | Err((Some(libc::EEXIST | libc::ENOENT | libc::ESRCH | libc::EAGAIN), _)) => {}
            Err((_, error)) => return Err(FillError::Page(error)),
        }
        let _ = uffd::wake(&target.uffd, address, PAGE_BYTES);
        Ok(())
    }
}

/// Puts bytes where nothing is; what is there already stays.
///
/// # Errors
/// The kernel cannot take a page; without it the program must not go on.
fn put(uffd: &OwnedFd, to: u64, bytes: &[u8]) -> io::Result<Put> {
    let mut done = 0;
    // What is left, or as much of it as lies within one mapping.
    let mut most = bytes.len();
    while done < bytes.len() {
        let (at, end) = (to + done as u64, bytes.len().min(done + most));
        let error = match uffd::copy(uffd, at, &bytes[done..end], false) {
            Ok(count) => {
                done += count as usize;
                most = bytes.len() - done;
                continue;
            }
            Err((count, error)) => {
                done += count as usize;
                if count > 0 {
                    continue;
                }
                error
            }
        };
        match error.raw_os_error() {
            // There already: one page further.
            Some(libc::EEXIST) => done += PAGE,
            Some(libc::EAGAIN) => return Ok(Put::EventsFirst),
            Some(libc::ESRCH) => return Ok(Put::Gone),
            // What reaches over the end of a mapping is refused whole, and the program may have
            // split one.
            Some(libc::ENOENT) if end - done > PAGE => {
                most = ((end - done) / 2).next_multiple_of(PAGE);
            }
            // Linux 6.9 and later say so before they say that mappings are being changed.
            Some(libc::ENOENT) if uffd::is_changing(uffd, at) => return Ok(Put::EventsFirst),
            // A child did not get this mapping from its parent.
            Some(libc::ENOENT) => done += PAGE,
            _ => return Err(error),
        }
    }
    Ok(Put::Done)
}

/// An event of a userfaultfd: `struct uffd_msg`.
enum Message {
    Missing(u64),
    Fork(i32),
    Moved { from: u64, to: u64, bytes: u64 },
    Removed { start: u64, end: u64 },
}

impl Message {
    fn read(uffd: &OwnedFd) -> Option<Self> {
        let mut bytes = [0u8; 32];
        // SAFETY: as many bytes as the buffer has.
        let got = unsafe { libc::read(uffd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        if got != bytes.len() as isize {
            return None;
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        match bytes[0] {
            // The flags come first, then the address.
            0x12 => Some(Self::Missing(word(16))),
            0x13 => Some(Self::Fork(word(8) as u32 as i32)),
            0x14 => Some(Self::Moved {
                from: word(8),
                to: word(16),
                bytes: word(24),
            }),
            0x15 | 0x16 => Some(Self::Removed {
                start: word(8),
                end: word(16),
            }),
            _ => None,
        }
    }
}
