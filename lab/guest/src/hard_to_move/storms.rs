//! Processes that never stand still: they fork, execute or map memory all the time, also while
//! the machine is about to sleep.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::children::{fork_with, wait};
use super::memory::{PAGE, Region, anonymous, map};
use super::{Kind, Plan};
use crate::error::GuestError;

/// Pages that parent and child share until one of them writes.
const SHARED_PAGES: usize = 64;
/// A storm, not a siege: others want to run on the emulated processors, too.
const PAUSE: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(20);

struct Tally {
    rounds: AtomicU64,
    bad: AtomicU64,
}

pub struct Storm {
    /// A [`Tally`] in memory that all processes of the storm share.
    tally: Region,
}

fn tally(region: &Region) -> &Tally {
    // SAFETY: the first words of a shared mapping, zero at first and only used as atomics.
    unsafe { &*region.words().as_ptr().cast() }
}

/// Starts a process that does `round` again and again and counts.
fn start(round: impl Fn() -> Result<(), ()>) -> Result<Box<dyn Kind>, GuestError> {
    let shared = map(PAGE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)?;
    let counts = tally(&shared);
    fork_with(|| {
        loop {
            if round().is_err() {
                counts.bad.fetch_add(1, Ordering::Relaxed);
            }
            counts.rounds.fetch_add(1, Ordering::Relaxed);
            sleep(PAUSE);
        }
    })?;
    Ok(Box::new(Storm { tally: shared }))
}

/// Each child compares what it got from its parent, writes to it, and compares again.
pub fn fork(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let seed = plan.seed;
    let mut region = anonymous(SHARED_PAGES * PAGE, 0)?;
    region.fill(seed);
    let region = std::cell::RefCell::new(region);
    start(move || {
        let child = fork_with(|| {
            let mut region = region.borrow_mut();
            let before = region.verify(seed);
            region.fill(seed.wrapping_add(1));
            let after = region.verify(seed.wrapping_add(1));
            i32::from(before.and(after).is_err())
        });
        let ended_well = child.is_ok_and(|pid| wait(pid) == 0);
        // What a child wrote must not be seen here.
        let intact = region.borrow().verify(seed).is_ok();
        (ended_well && intact).then_some(()).ok_or(())
    })
}

/// Programs start and end.
pub fn exec(_: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    start(|| {
        let status = Command::new("/bin/true").stdin(Stdio::null()).status();
        status
            .is_ok_and(|status| status.success())
            .then_some(())
            .ok_or(())
    })
}

/// Mappings come and go.
pub fn mmap(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let (bytes, seed) = (plan.bytes.min(1 << 20), plan.seed);
    start(move || {
        let mut region = anonymous(bytes, 0).map_err(drop)?;
        region.fill(seed);
        region.verify(seed).map_err(drop)
    })
}

impl Kind for Storm {
    fn verify(&mut self) -> Result<(), String> {
        let tally = tally(&self.tally);
        let before = tally.rounds.load(Ordering::Relaxed);
        let begin = Instant::now();
        while tally.rounds.load(Ordering::Relaxed) < before + 2 {
            if begin.elapsed() > TIMEOUT {
                return Err(format!("it stands still after {before} rounds"));
            }
            sleep(PAUSE);
        }
        match tally.bad.load(Ordering::Relaxed) {
            0 => Ok(()),
            bad => Err(format!("{bad} of {before} rounds went wrong")),
        }
    }
}
