//! Makes rings of io_uring.

use std::os::fd::OwnedFd;

use super::Error;
use super::error::system;
use crate::state::{IoUring, Tree};
use crate::uring::{self, Counters, Ring, Setup};

/// Whether rings can be made here.
///
/// # Errors
/// The tree has some, and we may not make any.
pub(super) fn possible(tree: &Tree) -> Result<(), Error> {
    if tree.urings.is_empty() {
        return Ok(());
    }
    uring::usable().map_err(system(
        "make an io_uring (see sysctl kernel.io_uring_disabled)",
    ))
}

/// Makes all rings of the tree.
///
/// # Errors
/// One cannot be made.
pub(super) fn open_all(tree: &Tree) -> Result<Vec<Option<OwnedFd>>, Error> {
    if tree.urings.is_empty() {
        return Ok(Vec::new());
    }
    // The kernel remembers which thread has used a ring as long as it lives, and wakes it at the
    // ring's end.
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            tree.urings
                .iter()
                .map(|ring| open(ring).map(Some))
                .collect()
        });
        opening
            .join()
            .unwrap_or_else(|_| Err(Error::Description("a ring could not be made".to_owned())))
    })
}

fn open(ring: &IoUring) -> Result<OwnedFd, Error> {
    const MONOTONIC: i32 = libc::CLOCK_MONOTONIC;
    let made = (|| {
        let made = Ring::new(Setup {
            flags: ring.flags,
            sq_entries: ring.sq_entries,
            cq_entries: ring.cq_entries,
        })?;
        if ring.clock != MONOTONIC {
            made.set_clock(ring.clock)?;
        }
        made.advance(Counters::of(ring))?;
        made.write(&ring.queues, &ring.entries)?;
        Ok(made.into_descriptor())
    })();
    made.map_err(system("make an io_uring as it was"))
}
