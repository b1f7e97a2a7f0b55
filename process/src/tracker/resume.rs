//! Restoring a program from its store, and tracking it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Options, Tracker, TrackerError, io_error};
use crate::restore::{self, lazy, restore};
use crate::roots::Roots;
use crate::state::Tree;
use crate::store::verify::verify;
use crate::store::{Snapshot, Store};
use crate::sync::Mirror;

/// How a program is restored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Restoring {
    /// Compare all pages before it runs.
    pub verify_first: bool,
    /// Although files that it has open have changed.
    pub accept_changed_files: bool,
    /// Bring in all pages before it runs.
    pub eager: bool,
}

/// Restores the program that the store holds. It runs when this returns. Only then is `track`
/// tested for the tracking of writes.
///
/// # Errors
/// It cannot be restored; the store is as it was, and no process is left.
///
/// # Panics
/// When the store holds nothing.
pub fn resume(
    store: Store,
    track: impl FnOnce() -> bool,
    options: Options,
    how: &Restoring,
) -> Result<Tracker, TrackerError> {
    let name = store.path().display().to_string();
    let snapshot = store.snapshot().expect("an epoch to restore");
    if how.verify_first {
        let found = verify(&snapshot);
        if !found.damaged.is_empty() {
            return Err(TrackerError::Damaged {
                store: name,
                epoch: found.epoch,
                pages: found.damaged.len(),
            });
        }
    }
    let tree =
        Tree::decode(snapshot.description()).map_err(|source| TrackerError::Description {
            store: name,
            source,
        })?;
    // As when it was started: its orphans are ours.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| io_error("become a subreaper")(error.into()))?;
    let choices = restore::Options {
        accept_changed_files: how.accept_changed_files,
        copy_all_bytes_max: if how.eager {
            u64::MAX
        } else {
            restore::Options::default().copy_all_bytes_max
        },
        held: false,
    };
    let mut restored = restore_when_free(&tree, &snapshot, &choices)?;
    let mut mirror = Mirror::new(store, true);
    for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
        mirror.adopt(process.pid, process.space);
    }
    let mut tracker = Tracker::new(mirror, true, Roots::Children(restored.root), options)?;
    tracker.persister.written.remember(&tree.written);
    tracker.persister.written.watch(&restored.tree.living());
    if restored.left_to_fill.is_empty() {
        restored.tree.thaw();
        tracker.set_tracking(track());
        return Ok(tracker);
    }
    let waker = tracker.wake.waker().map_err(io_error("make a pipe"))?;
    let snapshot = Arc::new(snapshot);
    let filling = lazy::start(&mut restored.tree, &restored.left_to_fill, snapshot, waker);
    match filling {
        Ok(filling) => {
            tracker.filling = Some(filling);
            restored.tree.thaw();
            tracker.set_tracking(track());
            Ok(tracker)
        }
        Err(error) => {
            restored.tree.kill();
            Err(error.into())
        }
    }
}

/// Restores, again and again for a moment while a number is wanted that a process had just now.
fn restore_when_free(
    tree: &Tree,
    snapshot: &dyn Snapshot,
    choices: &restore::Options,
) -> Result<restore::Restored, restore::Error> {
    const FREE_WITHIN: Duration = Duration::from_secs(5);
    let started = Instant::now();
    loop {
        match restore(tree, snapshot, choices) {
            Err(error) if restore::is_nearly_free(&error) && started.elapsed() < FREE_WITHIN => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}
