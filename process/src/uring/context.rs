//! What the kernel knows of a ring (`struct io_ring_ctx`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use super::kernel;
use super::types::{NoType, Place, Types};

const RING: &str = "io_ring_ctx";
/// Longer chains than a ring can have are changing while they are read.
const CHAIN_MAX: u32 = 1 << 20;

/// Why nothing is known of a ring.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The kernel does not describe its types, or has other ones.
    #[error("{0} (io_uring needs Linux 6.16 or newer with CONFIG_DEBUG_INFO_BTF)")]
    Types(String),
    /// Its memory cannot be read.
    #[error(
        "the kernel's memory cannot be read ({0}; this needs CAP_BPF and CAP_PERFMON, and no lockdown)"
    )]
    Memory(#[from] io::Error),
    /// It is not as `fdinfo` has it.
    #[error("the kernel shows other numbers of it than its memory has")]
    Contradiction,
}

impl From<NoType> for Unreadable {
    fn from(error: NoType) -> Self {
        Self::Types(error.to_string())
    }
}

/// A ring at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// `IORING_SETUP_*`.
    pub flags: u32,
    /// Room in the queue for submissions.
    pub sq_entries: u32,
    /// Room in the queue for completions.
    pub cq_entries: u32,
    /// Entries that the kernel has taken from the queue for submissions.
    pub taken: u32,
    /// Completions that it has put into the other queue.
    pub completed: u32,
    /// Bytes of the two mappings: queues and completions; entries for submission.
    pub bytes: [u64; 2],
    /// Requests that have begun and not ended.
    pub under_way: u32,
    /// Requests among them that wait for something that may never happen, in words.
    pub waiting: Vec<&'static str>,
    /// `IOSQE_CQE_SKIP_SUCCESS` was used.
    pub skips: bool,
    /// The clock of its timeouts.
    pub clock: i32,
    /// What it has beside its queues, in words.
    pub extras: Vec<&'static str>,
    /// Descriptors, mappings and others that hold it.
    pub holders: u64,
    /// Where the queues have their heads and tails, in bytes from the start of their mapping.
    pub(super) places: [usize; 4],
}

/// Places of the fields that are read.
struct Fields {
    files: [Place; 3],
    file: [Place; 2],
    numbers: [Place; 9],
    bytes: [Place; 2],
    free: Place,
    queues: [Place; 4],
    extras: Vec<(Place, &'static str)>,
    waiting: Vec<(Place, &'static str, bool)>,
    length: usize,
}

fn fields() -> Result<&'static Fields, Unreadable> {
    static FOUND: OnceLock<Result<Fields, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find().map_err(|error| error.to_string()));
    found.as_ref().map_err(|why| Unreadable::Types(why.clone()))
}

fn find() -> Result<Fields, Box<dyn std::error::Error>> {
    let types = Types::of_kernel()?;
    let ring = |path| types.place(RING, path);
    // Each is a pointer or a number that is zero where there is no such thing.
    let extras = [
        ("restricted", "restrictions"),
        ("compat", "a 32-bit owner"),
        ("iowq_limits_set", "limits of worker threads"),
        ("file_table.data.nr", "registered files"),
        ("buf_table.nr", "registered buffers"),
        ("io_bl_xa.xa_head", "provided buffers"),
        ("personalities.xa_head", "registered credentials"),
        ("io_ev_fd", "a registered eventfd"),
        ("cq_wait_arg", "registered wait regions"),
        ("sq_data", "a thread that submits"),
        ("check_cq", "completions that did not fit"),
    ];
    let mut extras: Vec<(Place, &'static str)> = extras
        .into_iter()
        .map(|(path, words)| Ok((ring(path)?, words)))
        .collect::<Result<_, NoType>>()?;
    // Of newer kernels.
    if let Ok(place) = ring("zcrx_ctxs.xa_head") {
        extras.push((place, "queues of network devices"));
    }
    // A list of the kernel's is empty if it is null, or if its head leads to itself.
    let waiting = [
        ("timeout_list", "a timeout", true),
        ("ltimeout_list", "a linked timeout", true),
        ("defer_list", "a request that waits for others", true),
        ("waitid_list", "a wait for a process", false),
        ("cancelable_uring_cmd", "a command of a device", false),
    ];
    let mut waiting: Vec<(Place, &'static str, bool)> = waiting
        .into_iter()
        .map(|(path, words, circular)| Ok((ring(path)?, words, circular)))
        .collect::<Result<_, NoType>>()?;
    if let Ok(place) = ring("futex_list") {
        waiting.push((place, "a futex", false));
    }
    Ok(Fields {
        files: [
            types.place("task_struct", "files")?,
            types.place("files_struct", "fdt")?,
            types.place("fdtable", "fd")?,
        ],
        file: [
            types.place("file", "private_data")?,
            types.place("file", "f_ref.refcnt")?,
        ],
        numbers: [
            ring("flags")?,
            ring("sq_entries")?,
            ring("cq_entries")?,
            ring("cached_sq_head")?,
            ring("cached_cq_tail")?,
            ring("nr_req_allocated")?,
            ring("drain_disabled")?,
            ring("clockid")?,
            ring("cq_overflow_list")?,
        ],
        bytes: [ring("ring_region.nr_pages")?, ring("sq_region.nr_pages")?],
        free: ring("submit_state.free_list")?,
        queues: [
            types.place("io_rings", "sq.head")?,
            types.place("io_rings", "sq.tail")?,
            types.place("io_rings", "cq.head")?,
            types.place("io_rings", "cq.tail")?,
        ],
        extras,
        waiting,
        length: types.bytes_of(RING)?,
    })
}

impl Context {
    /// Reads the ring behind a descriptor of ours.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn of(ring: BorrowedFd<'_>) -> Result<Self, Unreadable> {
        let fields = fields()?;
        let file = file_of(fields, ring)?;
        let [private, references] = fields.file;
        let address = kernel::word(file + private.byte() as u64)?;
        // Of one reference, the counter is 0.
        let holders = kernel::word(file + references.byte() as u64)?.wrapping_add(1);
        // First: a request that ends meanwhile is then taken for one that has not.
        let free = count_free(address + fields.free.byte() as u64)?;
        let mut bytes = vec![0u8; fields.length];
        kernel::read(address, &mut bytes)?;
        let value = |place: Place| place.value(&bytes).ok_or(Unreadable::Contradiction);
        let [
            flags,
            sq,
            cq,
            taken,
            completed,
            requests,
            skips,
            clock,
            overflow,
        ] = fields.numbers;
        let requests = value(requests)? as u32;
        let mut context = Self {
            flags: value(flags)? as u32,
            sq_entries: value(sq)? as u32,
            cq_entries: value(cq)? as u32,
            taken: value(taken)? as u32,
            completed: value(completed)? as u32,
            under_way: requests.saturating_sub(free),
            skips: value(skips)? != 0,
            clock: value(clock)? as i32,
            holders,
            places: fields.queues.map(Place::byte),
            ..Self::default()
        };
        for (bytes, place) in context.bytes.iter_mut().zip(fields.bytes) {
            *bytes = value(place)? * 4096;
        }
        for &(place, words) in &fields.extras {
            if value(place)? != 0 {
                context.extras.push(words);
            }
        }
        let is_empty = |place: Place, circular| {
            let at = place.byte();
            let first = bytes.get(at..at + 8).ok_or(Unreadable::Contradiction)?;
            let first =
                u64::from_ne_bytes(first.try_into().map_err(|_| Unreadable::Contradiction)?);
            let none = if circular { address + at as u64 } else { 0 };
            Ok::<bool, Unreadable>(first == none)
        };
        if !is_empty(overflow, true)? {
            context.extras.push("completions that did not fit");
        }
        for &(place, words, circular) in &fields.waiting {
            if !is_empty(place, circular)? {
                context.waiting.push(words);
            }
        }
        Ok(context)
    }

    /// Heads and tails of both queues, that for submissions first, in what their mapping has.
    pub fn words(&self, queues: &[u8]) -> Option<[u32; 4]> {
        let mut words = [0; 4];
        for (word, at) in words.iter_mut().zip(self.places) {
            *word = u32::from_ne_bytes(queues.get(at..at + 4)?.try_into().ok()?);
        }
        Some(words)
    }
}

/// The address of the `struct file` behind a descriptor of ours.
fn file_of(fields: &Fields, ring: BorrowedFd<'_>) -> io::Result<u64> {
    let mut address = kernel::current_task()?;
    for place in fields.files {
        address = kernel::word(address + place.byte() as u64)?;
    }
    let number = u64::try_from(ring.as_raw_fd()).unwrap_or_default();
    kernel::word(address + number * 8)
}

/// How many requests are kept for later ones: each leads to the next.
fn count_free(first: u64) -> io::Result<u32> {
    let mut next = kernel::word(first)?;
    let mut count = 0;
    while next != 0 && count < CHAIN_MAX {
        next = kernel::word(next)?;
        count += 1;
    }
    Ok(count)
}
