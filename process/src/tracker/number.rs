//! The tracker's own number. The program's parent is its tracker, and so is that of each process of it whose
//! parent has ended. They see it by `getppid(2)`, and programs compare it with what it was. So the tracker of
//! a restored program has the number of the one before it.
//!
//! ```text
//!  dormouse process restore …  hands signals on, waits, ends with the same code
//!   └─ tracker                 under its number
//!       └─ program …
//! ```

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{process, thread};

use super::outer::{End, INIT, go_on_in_child};
use crate::ptrace::Pid;
use crate::restore;
use crate::state::Tree;
use crate::store::{Access, Snapshot, Store};

/// Goes on as the former parent of the program in this store, in a child of this process. Returns in this process
/// where that is not necessary or not possible; the program then has another parent, which the log says. Call
/// it before the store is opened to write, and before there are threads.
pub fn take_former(path: &Path, name: &str) {
    let Some(number) = former(path, name) else {
        return;
    };
    // A program of a container has a parent outside of it (0) or its init.
    if number <= INIT || number == process::id() as i32 {
        return;
    }
    if let Err(error) = take(number) {
        tracing::warn!(
            "the number of the program's parent, {number}, cannot be had again ({error}): the program \
             sees another parent than before"
        );
    }
}

/// The number of the parent of the program's first process. An error is found again, and reported, when the
/// store is opened to write.
fn former(path: &Path, name: &str) -> Option<Pid> {
    let store = Store::open(path, name, Access::Read, None).ok()?;
    let tree = Tree::decode(store.snapshot()?.description()).ok()?;
    Some(tree.parent)
}

fn take(number: Pid) -> io::Result<()> {
    const FREE_WITHIN: Duration = Duration::from_secs(5);
    let started = Instant::now();
    restore::free_number(number).map_err(io::Error::other)?;
    loop {
        match go_on_in_child(Some(number), End::Alone) {
            // The kernel takes a process out of /proc a moment before its number can be had again.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && !restore::is_there(number)
                    && started.elapsed() < FREE_WITHIN =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}
