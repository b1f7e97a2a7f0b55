//! Watching processes for hot pages: before the sleep, while user space still runs, and after it,
//! while pages already migrate back.

use std::time::{Duration, Instant};

use dormouse_report::{Event, Kind};
use dormouse_system::Root;

use crate::hotness::ProcessHotness;
use crate::hotness::sampler::{
    Collected, MAX_REGIONS, Pace, Sampler, Sampling, Target, Unavailable, targets,
};
use crate::options::Cancel;
use crate::options::Policy;
use crate::system::clock::event;
use crate::system::state::Entry;

/// Going to sleep waits this long at most for the first window to end …
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// … and this much longer for each page that is watched: two walks through the page tables, on a
/// processor that is emulated. A window that ends earlier is not waited for.
const IDLE_TIMEOUT_PER_PAGE: Duration = Duration::from_micros(12);
/// Records of one window come in one burst, with a gap where a process has nothing hot: this long
/// without one, and it is over. DAMON is in its next pass meanwhile, and does not end before.
const BURST_GAP: Duration = Duration::from_millis(200);
const SCAN_EVERY: Duration = Duration::from_millis(20);

/// Processes that are being watched.
pub struct Watch<'a> {
    sampling: Box<dyn Sampling + 'a>,
    collected: Collected,
    idle_timeout: Duration,
}

/// Begins to watch the processes in `order`, if the policy wants to know. A kernel that cannot say
/// is a warning, not an error.
///
/// # Errors
/// Why it is not known which pages are hot.
pub fn begin<'a>(
    root: &Root,
    sampler: &'a dyn Sampler,
    policy: Policy,
    order: &[Entry],
    pace: Pace,
) -> Result<Option<Watch<'a>>, Unavailable> {
    if policy != Policy::HotFirst {
        return Ok(None);
    }
    let own = std::process::id() as i32;
    let targets = targets(root, order, own);
    if targets.is_empty() {
        return Ok(None);
    }
    let sampling = sampler.start(&targets, pace)?;
    Ok(Some(Watch::new(sampling, &targets)))
}

/// The event that gives the reason why the policy is not followed.
pub fn warning(phase: &str, why: &Unavailable) -> Event {
    event(phase, "hot-pages-unknown", Kind::Mark)
        .with("reason", why.name())
        .with("text", why.to_string())
}

impl<'a> Watch<'a> {
    /// From a sampling of these targets.
    pub fn new(sampling: Box<dyn Sampling + 'a>, targets: &[Target]) -> Watch<'a> {
        let pages: u64 = targets.iter().map(|target| target.span_pages).sum();
        let pages = pages.min(MAX_REGIONS) as u32;
        Watch {
            sampling,
            collected: Collected::new(targets),
            idle_timeout: IDLE_TIMEOUT + IDLE_TIMEOUT_PER_PAGE * pages,
        }
    }

    /// Takes in what was seen since the last call; false if that is nothing.
    pub fn scan(&mut self) -> bool {
        let seen = self.sampling.take();
        self.collected.add(&seen);
        !seen.is_empty()
    }

    /// What was seen until now.
    pub fn hotness(&self) -> Vec<ProcessHotness> {
        self.collected.hotness()
    }

    /// Waits for the end of the first window, but not long, and stops watching.
    pub fn finish(mut self, cancel: &Cancel) -> Vec<ProcessHotness> {
        let mut last_seen = Instant::now();
        loop {
            if self.scan() {
                last_seen = Instant::now();
            }
            let limit = if self.collected.is_empty() {
                self.idle_timeout
            } else {
                BURST_GAP
            };
            if last_seen.elapsed() >= limit || cancel.is_set() {
                return self.hotness();
            }
            std::thread::sleep(SCAN_EVERY);
        }
    }
}
