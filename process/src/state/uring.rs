//! Rings of io_uring.

use serde::{Deserialize, Serialize};

use super::check::{Invalid, index};
use super::{Backing, FileKind, Tree};

/// Most bytes of a mapping of a ring: 65536 completions of 32 bytes, 32768 entries of 128, and more.
const BYTES_MAX: usize = 8 << 20;
const ENTRIES_MAX: u32 = 1 << 16;

/// A ring in which no request is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUring {
    /// `IORING_SETUP_*`.
    pub flags: u32,
    /// Room in the queue for submissions.
    pub sq_entries: u32,
    /// Room in the queue for completions.
    pub cq_entries: u32,
    /// Entries that the kernel has taken from the queue for submissions, modulo 2^32.
    pub taken: u32,
    /// Completions that it has put into the other queue, modulo 2^32.
    pub completed: u32,
    /// Completions that the program has not read.
    pub unread: u32,
    /// `IOSQE_CQE_SKIP_SUCCESS` was used: then no request waits for others any more (`IOSQE_IO_DRAIN`).
    pub skips: bool,
    /// The clock of its timeouts.
    pub clock: i32,
    /// What its first mapping has: both queues, with the completions.
    pub queues: Vec<u8>,
    /// What its other mapping has: the entries.
    pub entries: Vec<u8>,
}

/// Checks rings, and what refers to them.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    for (at, ring) in tree.urings.iter().enumerate() {
        let bad = |why| {
            Err(Invalid::Bad {
                what: format!("io_uring {at}"),
                why,
            })
        };
        let impossible = |entries: u32| !entries.is_power_of_two() || entries > ENTRIES_MAX;
        if impossible(ring.sq_entries) || impossible(ring.cq_entries) {
            return bad("of an impossible size");
        }
        let impossible =
            |bytes: &[u8]| bytes.len() > BYTES_MAX || !bytes.len().is_multiple_of(4096);
        if impossible(&ring.queues) || impossible(&ring.entries) {
            return bad("with mappings of an impossible size");
        }
        if ring.unread > ring.cq_entries {
            return bad("with more completions than room for them");
        }
        // A restore opens each once.
        let mut files = tree.files.iter();
        let here = |kind: &FileKind| *kind == FileKind::Uring(at as u32);
        if files.by_ref().filter(|file| here(&file.kind)).count() != 1 {
            return bad("not behind exactly one description");
        }
    }
    for file in &tree.files {
        if let FileKind::Uring(ring) = file.kind {
            index(tree.urings.len(), "io_uring", ring, || "a file".to_owned())?;
        }
    }
    let mappings = tree.processes.iter().flat_map(|p| &p.mappings);
    for mapping in mappings {
        if let Backing::Uring(ring) = mapping.backing {
            let what = || format!("mapping {:#x}", mapping.start);
            index(tree.urings.len(), "io_uring", ring, what)?;
        }
    }
    Ok(())
}
