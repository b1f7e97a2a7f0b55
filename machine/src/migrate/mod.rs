//! Moves the pages of many processes to another node, on many CPUs at once, in batches.
//!
//! ```text
//!  processes, in order ──┐        each worker, until nothing is left:
//!  ┌───┬───┬───┬───┐     │          a batch is waiting?  move_pages(2) on it
//!  │ P │ P │ P │ … │  ───┼──▶       else next process:   small → migrate_pages(2), whole
//!  └───┴───┴───┴───┘     │                               large → scan, cut into batches
//!                        │                               that others move meanwhile
//!  ┌───────┬───────┬──┐  │
//!  │ batch │ batch │… │ ─┘        batches come before further processes: order is kept
//!  └───────┴───────┴──┘
//! ```

mod cut;
pub mod rate;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::migrate::cut::{Cutter, Piece};
use crate::migrate::rate::TokenBucket;
use crate::options::Cancel;
use crate::system::clock::monotonic_ns;
use crate::system::pages::{PAGE_BYTES, Pages};

/// The kernel writes nodes and negative errnos; this is neither.
const NOT_REACHED: i32 = i32::MIN;
/// Tries for pages that are busy at first.
const ROUNDS: usize = 4;
/// Period of progress reports to the caller.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// One process to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub pid: i32,
    /// About how much it has; decides between the two system calls.
    pub bytes: u64,
    pub to_node: u32,
}

/// How to move.
pub struct Settings<'a> {
    pub jobs: usize,
    /// Pages on these nodes are to move.
    pub from_nodes: &'a [u32],
    /// Whether a node has no more room. A huge page may find no contiguous memory on a node that
    /// has plenty: that must not stop all others.
    pub is_full: &'a (dyn Fn(u32) -> bool + Sync),
    /// Processes up to this size move by one migrate_pages(2).
    pub whole_up_to_bytes: u64,
    pub batch_bytes: u64,
    /// Ask first which pages are on `from_nodes`, and touch no others.
    pub ask_first: bool,
    pub bucket: Option<TokenBucket>,
    pub cancel: &'a Cancel,
}

/// The outcome.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Moved page by page; processes that moved whole are not counted here.
    pub moved_bytes: u64,
    /// Of it, by batches that came before their turn.
    pub hot_bytes: u64,
    pub failed_pages: u64,
    /// The processes with pages that did not move. Where the target is full, also those that were
    /// not tried any more.
    pub failed_pids: Vec<i32>,
    pub processes: u64,
    /// The target node is full: the rest was not tried.
    pub full: bool,
    pub canceled: bool,
}

/// A piece of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub pid: i32,
    pub to_node: u32,
    pub pages: Vec<Page>,
    /// It is here because it is hot; counted apart.
    pub hot: bool,
}

/// An address and how many bytes move with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub address: u64,
    pub bytes: u64,
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Moved page by page until now.
    pub moved_bytes: u64,
    /// Of it, by batches that came before their turn.
    pub hot_bytes: u64,
    /// Batches that are to come before their turn and still wait or are on their way.
    pub urgent_batches: usize,
}

#[derive(Default)]
struct Queue {
    /// Before anything else.
    urgent: VecDeque<Batch>,
    urgent_moving: usize,
    tasks: VecDeque<Task>,
    batches: VecDeque<Piece>,
    scanning: usize,
}

impl Queue {
    fn of(urgent: Vec<Batch>, tasks: Vec<Task>) -> Queue {
        Queue {
            urgent: urgent.into(),
            tasks: tasks.into(),
            ..Queue::default()
        }
    }
}

struct Shared<'a> {
    pages: &'a dyn Pages,
    settings: &'a Settings<'a>,
    queue: Mutex<Queue>,
    changed: Condvar,
    bucket: Option<Mutex<TokenBucket>>,
    moved_bytes: AtomicU64,
    /// Pages that did not move, by process.
    failed: Mutex<BTreeMap<i32, u64>>,
    hot_bytes: AtomicU64,
    processes: AtomicU64,
    full: AtomicBool,
}

impl Shared<'_> {
    fn fail(&self, pid: i32, pages: u64) {
        if pages > 0 {
            let mut failed = self.failed.lock().expect("no worker panics");
            *failed.entry(pid).or_default() += pages;
        }
    }

    /// Not enough memory for one page, huge or not: is there none left at all?
    fn is_full(&self, node: u32) -> bool {
        let full = (self.settings.is_full)(node);
        if full {
            self.full.store(true, Ordering::Relaxed);
        }
        full
    }
}

/// Moves all `tasks`, first ones first; calls `progress` with the bytes moved so far when they
/// have grown, at most ten times a second, from the caller's thread.
///
/// Processes with pages that did not move get a second try when all others are done: two workers
/// that are at the pages which two processes share hold them off each other.
pub fn run(
    pages: &dyn Pages,
    tasks: Vec<Task>,
    settings: &Settings<'_>,
    progress: &mut dyn FnMut(u64),
) -> Outcome {
    let mut reported_bytes = 0;
    run_with_urgent(pages, Vec::new(), tasks, settings, &mut |now| {
        if now.moved_bytes > reported_bytes {
            progress(now.moved_bytes);
            reported_bytes = now.moved_bytes;
        }
        Vec::new()
    })
}

/// The same, but `urgent` comes before all tasks, and so does what `more_urgent` returns, which is
/// asked ten times a second from the caller's thread. A page of them that has moved before its
/// turn is not moved again (with [`Settings::ask_first`]).
pub fn run_with_urgent(
    pages: &dyn Pages,
    urgent: Vec<Batch>,
    tasks: Vec<Task>,
    settings: &Settings<'_>,
    more_urgent: &mut dyn FnMut(Progress) -> Vec<Batch>,
) -> Outcome {
    let again = tasks.clone();
    let first = run_once(pages, Queue::of(urgent, tasks), settings, more_urgent);
    if first.failed_pids.is_empty() || first.full || first.canceled {
        return first;
    }
    let failed = |task: &Task| first.failed_pids.contains(&task.pid);
    let settings = Settings {
        jobs: 1,
        whole_up_to_bytes: 0,
        ask_first: true,
        bucket: settings.bucket.clone(),
        ..*settings
    };
    let again = Queue::of(Vec::new(), again.into_iter().filter(failed).collect());
    let (begin_bytes, begin_hot_bytes) = (first.moved_bytes, first.hot_bytes);
    let second = run_once(pages, again, &settings, &mut |now| {
        more_urgent(Progress {
            moved_bytes: begin_bytes + now.moved_bytes,
            hot_bytes: begin_hot_bytes + now.hot_bytes,
            ..now
        })
    });
    Outcome {
        moved_bytes: first.moved_bytes + second.moved_bytes,
        hot_bytes: first.hot_bytes + second.hot_bytes,
        processes: first.processes,
        ..second
    }
}

fn run_once(
    pages: &dyn Pages,
    queue: Queue,
    settings: &Settings<'_>,
    more_urgent: &mut dyn FnMut(Progress) -> Vec<Batch>,
) -> Outcome {
    let shared = Shared {
        pages,
        settings,
        queue: Mutex::new(queue),
        changed: Condvar::new(),
        bucket: settings.bucket.clone().map(Mutex::new),
        moved_bytes: AtomicU64::new(0),
        failed: Mutex::default(),
        hot_bytes: AtomicU64::new(0),
        processes: AtomicU64::new(0),
        full: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        // Nothing is sent: the channel closes when the last worker has ended.
        let (alive, ended) = channel::<()>();
        for _ in 0..settings.jobs.max(1) {
            let (shared, alive) = (&shared, alive.clone());
            scope.spawn(move || work(shared, alive));
        }
        drop(alive);
        while ended.recv_timeout(PROGRESS_EVERY) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let progress = shared.progress();
            let more = more_urgent(progress);
            if !more.is_empty() {
                let mut queue = shared.queue.lock().expect("no worker panics");
                queue.urgent.extend(more);
                shared.changed.notify_all();
            }
        }
    });
    let failed = shared.failed.into_inner().expect("no worker panics");
    let queue = shared.queue.into_inner().expect("no worker panics");
    let untried = queue.tasks.iter().map(|task| task.pid);
    let urgent = queue.urgent.iter().map(|batch| batch.pid);
    let untried = untried.chain(urgent.chain(queue.batches.iter().map(|piece| piece.pid)));
    let mut failed_pids: Vec<i32> = failed.keys().copied().chain(untried).collect();
    failed_pids.sort_unstable();
    failed_pids.dedup();
    Outcome {
        moved_bytes: shared.moved_bytes.into_inner(),
        hot_bytes: shared.hot_bytes.into_inner(),
        failed_pages: failed.values().sum(),
        failed_pids,
        processes: shared.processes.into_inner(),
        full: shared.full.into_inner(),
        canceled: settings.cancel.is_set(),
    }
}

impl Shared<'_> {
    fn progress(&self) -> Progress {
        let queue = self.queue.lock().expect("no worker panics");
        Progress {
            moved_bytes: self.moved_bytes.load(Ordering::Relaxed),
            hot_bytes: self.hot_bytes.load(Ordering::Relaxed),
            urgent_batches: queue.urgent.len() + queue.urgent_moving,
        }
    }

    fn count_moved(&self, batch: &Batch, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
        if batch.hot {
            self.hot_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

fn work(shared: &Shared<'_>, _alive: Sender<()>) {
    let stopped = || shared.settings.cancel.is_set() || shared.full.load(Ordering::Relaxed);
    let mut queue = shared.queue.lock().expect("no worker panics");
    while !stopped() {
        if let Some(batch) = queue.urgent.pop_front() {
            queue.urgent_moving += 1;
            drop(queue);
            move_batch(shared, &batch);
            queue = shared.queue.lock().expect("no worker panics");
            queue.urgent_moving -= 1;
            continue;
        } else if let Some(piece) = queue.batches.pop_front() {
            drop(queue);
            move_batch(shared, &piece.into_batch());
        } else if let Some(task) = queue.tasks.pop_front() {
            queue.scanning += 1;
            drop(queue);
            begin(shared, &task);
            queue = shared.queue.lock().expect("no worker panics");
            queue.scanning -= 1;
            shared.changed.notify_all();
            continue;
        } else if queue.scanning > 0 {
            // Somebody may be about to add batches.
            queue = shared
                .changed
                .wait_timeout(queue, PROGRESS_EVERY)
                .expect("no worker panics")
                .0;
            continue;
        } else {
            return;
        }
        queue = shared.queue.lock().expect("no worker panics");
    }
}

/// Moves a small process at once. A large one, and one that has a page for which
/// migrate_pages(2) gives up, is cut into pieces that other workers move while the scan goes on.
fn begin(shared: &Shared<'_>, task: &Task) {
    shared.processes.fetch_add(1, Ordering::Relaxed);
    if task.bytes <= shared.settings.whole_up_to_bytes {
        match move_whole(shared, task.pid, task.to_node) {
            Err(error) if is_no_memory(&error) && !shared.is_full(task.to_node) => {}
            result => {
                return note_whole(shared, task.pid, result);
            }
        }
    }
    let mut cutter = Cutter::new(task, shared.settings.batch_bytes, |piece| {
        let mut queue = shared.queue.lock().expect("no worker panics");
        queue.batches.push_back(piece);
        shared.changed.notify_one();
    });
    let scanned = shared.pages.scan(task.pid, &mut |run| cutter.add(run));
    cutter.finish();
    match scanned {
        Ok(()) => {}
        Err(error) if has_ended(&error) => {}
        Err(_) => note_whole(shared, task.pid, move_whole(shared, task.pid, task.to_node)),
    }
}

/// Returns how many pages could not move.
fn move_whole(shared: &Shared<'_>, pid: i32, to_node: u32) -> io::Result<u64> {
    let move_all = || {
        shared
            .pages
            .move_all(pid, shared.settings.from_nodes, to_node)
    };
    // A page may be busy for a moment: what is left gets a second try.
    move_all().and_then(|left| if left > 0 { move_all() } else { Ok(0) })
}

fn note_whole(shared: &Shared<'_>, pid: i32, result: io::Result<u64>) {
    match result {
        Ok(left) => shared.fail(pid, left),
        Err(error) if has_ended(&error) => {}
        Err(_) => shared.fail(pid, 1),
    }
}

/// The process is gone, or has no memory any more.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}

fn bytes_of(pages: &[Page]) -> u64 {
    pages.iter().map(|page| page.bytes).sum()
}

fn is_no_memory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

fn move_batch(shared: &Shared<'_>, batch: &Batch) {
    let mut left = batch.pages.clone();
    let result = if shared.settings.ask_first {
        keep_those_to_move(shared, batch, &mut left)
    } else {
        Ok(())
    };
    let result = result.and_then(|()| {
        wait_for_tokens(shared, bytes_of(&left));
        move_in_rounds(shared, batch, &mut left)
    });
    match result {
        Ok(()) => {}
        Err(error) if has_ended(&error) => return,
        // A cpuset forbids the node to the process, not to us: migrate_pages(2) may overrule it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            let result = move_whole(shared, batch.pid, batch.to_node);
            return note_whole(shared, batch.pid, result);
        }
        Err(error) if is_no_memory(&error) => {
            // A part of the call may have moved; where asking fails, all count as failed.
            let before = bytes_of(&left);
            let _ = keep_those_to_move(shared, batch, &mut left);
            let moved_bytes = before - bytes_of(&left);
            shared.moved_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
            if !shared.is_full(batch.to_node) && left.len() > 1 {
                return move_halves(shared, batch, left);
            }
        }
        Err(_) => {}
    }
    shared.fail(batch.pid, bytes_of(&left) / PAGE_BYTES);
}

/// One huge page that finds no contiguous memory ends the whole call: the others of the batch are
/// found by halving it.
fn move_halves(shared: &Shared<'_>, batch: &Batch, mut left: Vec<Page>) {
    let second = left.split_off(left.len() / 2);
    for pages in [left, second] {
        let half = Batch {
            pages,
            ..batch.clone()
        };
        move_batch(shared, &half);
    }
}

fn wait_for_tokens(shared: &Shared<'_>, bytes: u64) {
    let Some(bucket) = &shared.bucket else { return };
    let wait = bucket
        .lock()
        .expect("no worker panics")
        .take(bytes, monotonic_ns());
    let until_ns = monotonic_ns().saturating_add(wait.as_nanos() as u64);
    while monotonic_ns() < until_ns && !shared.settings.cancel.is_set() {
        let rest = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        std::thread::sleep(rest.min(PROGRESS_EVERY));
    }
}

/// Leaves in `left` only the pages that lie on one of the nodes to move from.
fn keep_those_to_move(shared: &Shared<'_>, batch: &Batch, left: &mut Vec<Page>) -> io::Result<()> {
    let addresses: Vec<u64> = left.iter().map(|page| page.address).collect();
    let mut status = vec![NOT_REACHED; addresses.len()];
    shared.pages.nodes(batch.pid, &addresses, &mut status)?;
    let mut index = 0;
    left.retain(|_| {
        let node = status[index];
        index += 1;
        node >= 0 && shared.settings.from_nodes.contains(&(node as u32))
    });
    Ok(())
}

/// Several tries, each with smaller calls: one page that cannot move makes the kernel give up the
/// rest of a call. What is still in `left` at the end did not move.
fn move_in_rounds(shared: &Shared<'_>, batch: &Batch, left: &mut Vec<Page>) -> io::Result<()> {
    let mut call_pages = left.len().max(1);
    for round in 0..ROUNDS {
        let mut again = Vec::new();
        for pages in left.chunks(call_pages) {
            let addresses: Vec<u64> = pages.iter().map(|page| page.address).collect();
            let mut status = vec![NOT_REACHED; addresses.len()];
            shared
                .pages
                .move_to(batch.pid, &addresses, batch.to_node, &mut status)?;
            let mut moved_bytes = 0;
            for (page, status) in pages.iter().zip(&status) {
                match *status {
                    node if node == batch.to_node as i32 => moved_bytes += page.bytes,
                    // Unmapped meanwhile, or the zero page: nothing to move.
                    gone if gone == -libc::ENOENT || gone == -libc::EFAULT => {}
                    _ => again.push(*page),
                }
            }
            shared.count_moved(batch, moved_bytes);
        }
        *left = again;
        if left.is_empty() {
            return Ok(());
        }
        // Some have moved although their status does not say so (parts of a large folio).
        let before = bytes_of(left);
        keep_those_to_move(shared, batch, left)?;
        shared.count_moved(batch, before - bytes_of(left));
        if left.is_empty() || shared.settings.cancel.is_set() {
            return Ok(());
        }
        call_pages = (call_pages / 8).clamp(1, 512);
        if round > 0 {
            std::thread::sleep(Duration::from_millis(1 << round));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
