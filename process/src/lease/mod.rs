//! The lease of a store: one tracker in the world runs the program, also where several nodes see
//! the store.
//!
//! ```text
//!  STORE/cache.store              the store
//!  STORE/cache.lease              the lock of this node (flock): two trackers under one kernel
//!  STORE/cache.lease-00000007     generation 7: written by its holder alone, every third of D
//!
//!  holder      ──renew──┬──renew──┬──renew──┬── … paused, cut off, dead
//!                       │         │         └──────── D ────────┤ the kernel kills keeper, tracker
//!                       │         │                             │ and program, by a timer
//!  challenger                             read … the same ─── 1.25 D ───┤ makes generation 8
//! ```
//!
//! A generation is claimed by making its file, which only one challenger can (`link(2)` is atomic
//! on every file system that is worth sharing). A challenger makes the next one when the holder has
//! given the lease back, or has not renewed it for 1.25 D by the challenger's own clock, from the
//! first time that it saw the last renewal. The holder is dead by then: the timer that kills it
//! counts D from *before* its last renewal that succeeded, on a clock that runs on while the machine
//! sleeps. So no clock of one node is compared with that of another one; that they run equally fast
//! within 10 % is all that is asked of them. After Gray and Cheriton (1989); the rules are in
//! [`rules`], and tested there with clocks of different speed and pauses at every step.
//!
//! What this cannot see: a virtual machine that is paused as a whole, with its timers. Such a node
//! needs fencing by what pauses it.

mod files;
mod keeper;
mod record;
pub mod rules;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::Files;
pub use keeper::{Keeper, keeper_pid};
use record::Record;
use rules::{Sighting, Verdict, Watch};

use crate::store::file::path_of;

/// How often a challenger looks.
const BETWEEN_SIGHTINGS: Duration = Duration::from_millis(100);

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A system call failed.
    #[error("{path}: cannot {doing}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, to follow "cannot".
        doing: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The store is a device.
    #[error(
        "{0}: a lease needs a store in a directory; a store on a device has no room for one: give \
         --store a directory, or leave out --lease"
    )]
    Device(PathBuf),
    /// A process of this node holds it.
    #[error("{path}: another tracker of this node holds the lease ({holder})")]
    Here {
        /// The lock.
        path: PathBuf,
        /// Which, as far as known.
        holder: String,
    },
    /// Nothing was given to wait for it.
    #[error(
        "{path}: node {node} holds the lease (generation {generation}) and renews it; it is free \
         when that tracker ends, or {seconds} s after its node is lost"
    )]
    Held {
        /// The generation's file.
        path: PathBuf,
        /// The holder's name for itself.
        node: String,
        /// Which generation.
        generation: u64,
        /// How long a challenger waits.
        seconds: u64,
    },
    /// The user does not want to wait.
    #[error("interrupted while waiting for the lease")]
    Interrupted,
    /// The name is none.
    #[error(transparent)]
    Name(#[from] crate::store::StoreError),
}

/// The right to run the program of a store, until it is dropped or lost.
#[derive(Debug)]
pub struct Lease {
    files: Files,
    record: Record,
    claimed_ns: u64,
}

impl Lease {
    /// Gets the lease of the store NAME in a directory; waits for one whose holder is silent, until
    /// `stop` is set.
    ///
    /// # Errors
    /// Another tracker holds it and renews it, or the directory cannot be written.
    pub fn acquire(
        directory: &Path,
        name: &str,
        term: Duration,
        stop: &AtomicBool,
    ) -> Result<Self, LeaseError> {
        let store = path_of(directory, name)?;
        if store == directory {
            return Err(LeaseError::Device(store));
        }
        let files = Files::open(&store)?;
        let mut watch = Watch::default();
        let mut said = 0;
        loop {
            if stop.load(Ordering::Acquire) {
                return Err(LeaseError::Interrupted);
            }
            let claimed_ns = now_ns();
            let newest = files.newest()?;
            let (generation, sighting, node) = match &newest {
                None => (0, Sighting::nothing(), String::new()),
                Some((generation, bytes)) => {
                    let record = Record::decode(bytes);
                    let sighting = Sighting {
                        generation: *generation,
                        contents: crate::store::format::checksum(bytes),
                        released: record.as_ref().is_some_and(|record| record.released),
                        holder_is_dead: record.as_ref().is_some_and(|r| files.was_ours(r)),
                        term_ns: record.as_ref().map_or(0, |record| record.term_ns),
                    };
                    let node = record.map_or_else(|| "unknown".to_owned(), |r| r.node);
                    (*generation, sighting, node)
                }
            };
            match watch.see(&sighting, (claimed_ns, now_ns()), nanoseconds(term)) {
                Verdict::Free => {
                    let record =
                        Record::new(generation + 1, nanoseconds(term), files.lock_identity());
                    if files.claim(&record)? {
                        return Ok(Self {
                            files,
                            record,
                            claimed_ns,
                        });
                    }
                    // Another one was faster; its generation is the newest now.
                }
                Verdict::Wait { left_ns, changed } => {
                    if changed {
                        return Err(LeaseError::Held {
                            path: files.of(generation),
                            node,
                            generation,
                            seconds: rules::wait_ns(nanoseconds(term)).div_ceil(1_000_000_000),
                        });
                    }
                    if said != generation {
                        said = generation;
                        tracing::warn!(
                            "node {node} held the lease (generation {generation}): if it stays \
                             silent, this node takes over in {:.1} s",
                            left_ns as f64 / 1e9
                        );
                    }
                    std::thread::sleep(BETWEEN_SIGHTINGS);
                }
            }
        }
    }

    /// The generation: it grows with every holder.
    pub fn generation(&self) -> u64 {
        self.record.generation
    }

    /// Starts the process that renews it and that this process does not outlive.
    ///
    /// # Errors
    /// It cannot be started, or the lease has run out meanwhile.
    pub fn keep(self) -> Result<Keeper, LeaseError> {
        keeper::start(self)
    }
}

/// Time since the boot, asleep or awake: the clock of leases.
fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
