//! A ring of the tracker's own, and how it is brought to where another one stood.
//!
//! The kernel counts by itself how many entries it has taken and how many completions it has put, and
//! begins with zero. So a new ring gets as many requests that do nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{OFFSET_SQES, setup};
use crate::state::IoUring;

/// `struct io_uring_sqe`.
const SQE_BYTES: usize = 64;
const OFFSET_RING: libc::off_t = 0;
const OP_NOP: u8 = 0;
const OP_MSG_RING: u8 = 40;
const CQE_SKIP_SUCCESS: u8 = 1 << 6;
const REGISTER_CLOCK: libc::c_long = 29;
/// Entries of a ring that only sends messages.
const MESSAGES: u32 = 256;

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SqOffsets,
    cq: CqOffsets,
}

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SqOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    address: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct CqOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    reserved: u32,
    address: u64,
}

/// How a ring is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// `IORING_SETUP_*`.
    pub flags: u32,
    pub sq_entries: u32,
    pub cq_entries: u32,
}

/// Where the counters of a ring stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Entries that were taken.
    pub taken: u32,
    /// Completions that were put.
    pub completed: u32,
    /// Completions that were not read.
    pub unread: u32,
    /// `IOSQE_CQE_SKIP_SUCCESS` was used.
    pub skips: bool,
}

/// Requests that bring a new ring to some counters.
#[derive(Debug, PartialEq, Eq)]
struct Requests {
    /// Entries without a completion.
    silent: u32,
    /// Entries with one.
    plain: u32,
    /// Completions without an entry.
    messages: u32,
}

impl Counters {
    /// Those of a described ring.
    pub fn of(ring: &IoUring) -> Self {
        Self {
            taken: ring.taken,
            completed: ring.completed,
            unread: ring.unread,
            skips: ring.skips,
        }
    }

    /// Whether a new ring can be brought to them.
    ///
    /// # Errors
    /// Why not, in words that follow a ring's name.
    pub fn reachable(&self) -> Result<(), &'static str> {
        self.requests().map(drop)
    }

    fn requests(&self) -> Result<Requests, &'static str> {
        const WRAPPED: &str = "of which one counter has just begun again with 0";
        let extra = self.completed.wrapping_sub(self.taken) as i32;
        let silent = match (self.skips, extra < 0) {
            (true, true) => extra.unsigned_abs(),
            (true, false) => u32::from(self.taken != 0),
            (false, false) => 0,
            (false, true) => return Err("that has dropped entries without a completion"),
        };
        let plain = self.taken.checked_sub(silent).ok_or(WRAPPED)?;
        let messages = self.completed.checked_sub(plain).ok_or(WRAPPED)?;
        if self.unread > self.completed {
            return Err(WRAPPED);
        }
        Ok(Requests {
            silent,
            plain,
            messages,
        })
    }
}

/// A ring, mapped.
#[derive(Debug)]
pub struct Ring {
    descriptor: OwnedFd,
    queues: Mapped,
    entries: Mapped,
    params: Params,
}

#[derive(Debug)]
struct Mapped {
    start: *mut u8,
    bytes: usize,
}

impl Mapped {
    fn new(
        descriptor: BorrowedFd<'_>,
        bytes: usize,
        offset: libc::off_t,
        protection: i32,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast();
        Ok(Self { start, bytes })
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes, "beyond a mapping of a ring");
        // SAFETY: within the mapping, as asserted, which nobody else of this process uses.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: the whole mapping.
        unsafe { ptr::copy_nonoverlapping(self.start, bytes.as_mut_ptr(), self.bytes) };
        bytes
    }

    /// A word that the kernel reads or writes, too.
    fn word(&self, at: u32) -> &AtomicU32 {
        let at = at as usize;
        assert!(
            at.is_multiple_of(4) && at + 4 <= self.bytes,
            "beyond a mapping of a ring"
        );
        // SAFETY: within the mapping and aligned, as asserted.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

fn set_up(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    // SAFETY: the parameters live.
    let number = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, ptr::from_mut(params)) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

/// Whether we may make a ring at all.
///
/// # Errors
/// Why not: the sysctl `kernel.io_uring_disabled`, a seccomp filter.
pub fn usable() -> io::Result<()> {
    set_up(1, &mut Params::default()).map(drop)
}

/// The bytes of both mappings of a ring of another process, through a descriptor of ours.
///
/// # Errors
/// They cannot be mapped.
pub fn contents(ring: BorrowedFd<'_>, bytes: [u64; 2]) -> io::Result<[Vec<u8>; 2]> {
    let [queues, entries] = bytes;
    let read = |bytes: u64, offset| {
        Mapped::new(ring, bytes as usize, offset, libc::PROT_READ).map(|mapped| mapped.read())
    };
    Ok([
        read(queues, OFFSET_RING)?,
        read(entries, OFFSET_SQES as libc::off_t)?,
    ])
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// The kernel cannot, or gives it another size.
    pub fn new(setup: Setup) -> io::Result<Self> {
        let mut params = Params {
            flags: setup.flags | setup::CQSIZE,
            cq_entries: setup.cq_entries,
            ..Params::default()
        };
        let descriptor = set_up(setup.sq_entries, &mut params)?;
        if (params.sq_entries, params.cq_entries) != (setup.sq_entries, setup.cq_entries) {
            return Err(io::Error::other("the kernel gave it another size"));
        }
        let wide = |flag: u32, bytes: usize| bytes << u32::from(setup.flags & flag != 0);
        let completions = wide(setup::CQE32, 16) * params.cq_entries as usize;
        let mut bytes = params.cq.cqes as usize + completions;
        if setup.flags & setup::NO_SQARRAY == 0 {
            bytes = bytes.max(params.sq.array as usize + 4 * params.sq_entries as usize);
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let page = |bytes: usize| bytes.next_multiple_of(4096);
        let queues = Mapped::new(descriptor.as_fd(), page(bytes), OFFSET_RING, both)?;
        let bytes = page(wide(setup::SQE128, SQE_BYTES) * params.sq_entries as usize);
        let entries = Mapped::new(descriptor.as_fd(), bytes, OFFSET_SQES as libc::off_t, both)?;
        Ok(Self {
            descriptor,
            queues,
            entries,
            params,
        })
    }

    /// The clock of its timeouts.
    ///
    /// # Errors
    /// The kernel does not know the clock, or that of a ring.
    pub fn set_clock(&self, clock: i32) -> io::Result<()> {
        let words = [clock as u32, 0, 0, 0];
        // SAFETY: the structure lives.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.descriptor.as_raw_fd(),
                REGISTER_CLOCK,
                words.as_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Brings its counters to where those of another ring stood.
    ///
    /// Completions that the program has not read must never lie where the kernel believes to have
    /// room: so not more of them are read here than the program had.
    ///
    /// # Errors
    /// A request failed, or the counters cannot be reached.
    pub fn advance(&self, to: Counters) -> io::Result<()> {
        let requests = to.requests().map_err(io::Error::other)?;
        let read = to.completed - to.unread;
        self.submit(requests.silent, CQE_SKIP_SUCCESS, read)?;
        self.submit(requests.plain, 0, read)?;
        if requests.messages > 0 {
            self.messages(requests.messages, read)?;
        }
        self.queues
            .word(self.params.cq.head)
            .store(read, Ordering::Release);
        let word = |at| self.queues.word(at).load(Ordering::Acquire);
        let now = (word(self.params.sq.head), word(self.params.cq.tail));
        if now != (to.taken, to.completed) {
            return Err(io::Error::other(format!(
                "its counters are at {now:?} instead of {:?}",
                (to.taken, to.completed)
            )));
        }
        Ok(())
    }

    /// Marks completions as read, up to the `limit`-th that was ever put.
    fn read(&self, limit: u32) {
        let tail = self.queues.word(self.params.cq.tail);
        let head = tail.load(Ordering::Acquire).min(limit);
        self.queues
            .word(self.params.cq.head)
            .store(head, Ordering::Release);
    }

    /// How many completions fit now.
    fn room(&self) -> u32 {
        let word = |at| self.queues.word(at).load(Ordering::Acquire);
        let used = word(self.params.cq.tail).wrapping_sub(word(self.params.cq.head));
        self.params.cq_entries - used
    }

    /// Submits requests that do nothing; completions up to the `read`-th are read.
    fn submit(&self, count: u32, flags: u8, read: u32) -> io::Result<()> {
        let mut entry = [0u8; SQE_BYTES];
        entry[0] = OP_NOP;
        entry[1] = flags;
        self.fill(&entry);
        let mut rest = count;
        while rest > 0 {
            self.read(read);
            let batch = rest.min(self.params.sq_entries).min(self.room());
            self.enter(batch)?;
            rest -= batch;
        }
        self.read(read);
        Ok(())
    }

    /// The same entry in all places.
    fn fill(&self, entry: &[u8; SQE_BYTES]) {
        let wide = u32::from(self.params.flags & setup::SQE128 != 0);
        for place in 0..self.params.sq_entries {
            self.entries
                .write((place as usize * SQE_BYTES) << wide, entry);
            if self.params.flags & setup::NO_SQARRAY == 0 {
                self.queues
                    .word(self.params.sq.array + place * 4)
                    .store(place, Ordering::Relaxed);
            }
        }
    }

    /// Submits entries that are in their places.
    fn enter(&self, count: u32) -> io::Result<()> {
        if count == 0 {
            return Err(io::Error::other("it has no room"));
        }
        self.queues
            .word(self.params.sq.tail)
            .fetch_add(count, Ordering::AcqRel);
        // SAFETY: the entries do not refer to memory.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.descriptor.as_raw_fd(),
                count,
                0,
                0,
                0,
                0,
            )
        };
        match taken {
            taken if taken == i64::from(count) => Ok(()),
            taken if taken < 0 => Err(io::Error::last_os_error()),
            taken => Err(io::Error::other(format!(
                "it took {taken} entries of {count}"
            ))),
        }
    }

    /// Puts completions without a request of its own: messages from another ring.
    fn messages(&self, count: u32, read: u32) -> io::Result<()> {
        let sender = Self::new(Setup {
            flags: 0,
            sq_entries: MESSAGES,
            cq_entries: MESSAGES,
        })?;
        let mut entry = [0u8; SQE_BYTES];
        entry[0] = OP_MSG_RING;
        entry[4..8].copy_from_slice(&self.descriptor.as_raw_fd().to_ne_bytes());
        sender.fill(&entry);
        let mut rest = count;
        while rest > 0 {
            self.read(read);
            let batch = rest.min(MESSAGES).min(self.room());
            sender.enter(batch)?;
            sender.read(u32::MAX);
            rest -= batch;
        }
        self.read(read);
        Ok(())
    }

    /// Gives the mappings the contents that those of another ring had.
    ///
    /// # Errors
    /// That one had other sizes.
    pub fn write(&self, queues: &[u8], entries: &[u8]) -> io::Result<()> {
        if (queues.len(), entries.len()) != (self.queues.bytes, self.entries.bytes) {
            return Err(io::Error::other("the kernel lays it out otherwise"));
        }
        self.queues.write(0, queues);
        self.entries.write(0, entries);
        Ok(())
    }

    /// Its descriptor.
    #[cfg(test)]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The descriptor alone.
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }
}
