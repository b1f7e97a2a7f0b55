//! A made-up machine for tests: processes with pages on nodes, and a tree of files that answers.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Mutex;

use crate::hotness::HotRange;
use crate::hotness::sampler::{Pace, Sampler, Sampling, Seen, Target, Unavailable};
use crate::hotness::watch::Watch;
use crate::system::pages::{PAGE_BYTES, Pages, Run};
use crate::system::state::Entry;

/// Where the first page of each process lies.
const BASE: u64 = 0x10_0000;

#[derive(Default)]
struct Inner {
    /// Node of each page of each process.
    processes: BTreeMap<i32, Vec<u32>>,
    pinned: Vec<(i32, u64)>,
    no_contiguous_memory: Vec<(i32, u64)>,
    /// How many more tries these pages fail.
    busy: BTreeMap<(i32, u64), usize>,
    capacity_pages: BTreeMap<u32, usize>,
    forbid_move_pages: bool,
    moves: Vec<i32>,
}

/// Pages in memory, with the kernel's habits: a call stops at a page that cannot move, and returns
/// nothing about those after it.
#[derive(Default)]
pub struct FakePages {
    inner: Mutex<Inner>,
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl FakePages {
    /// Processes (pid, pages), all on node 0.
    pub fn new(processes: &[(i32, usize)]) -> FakePages {
        let processes = processes
            .iter()
            .map(|(pid, pages)| (*pid, vec![0; *pages]))
            .collect();
        FakePages {
            inner: Mutex::new(Inner {
                processes,
                ..Inner::default()
            }),
        }
    }

    pub fn with_capacity(self, node: u32, pages: usize) -> FakePages {
        self.inner
            .lock()
            .unwrap()
            .capacity_pages
            .insert(node, pages);
        self
    }

    pub fn pin(&self, pid: i32, page: u64) {
        self.inner.lock().unwrap().pinned.push((pid, page));
    }

    /// This page cannot move for this many tries.
    pub fn busy(&self, pid: i32, page: u64, tries: usize) {
        self.inner.lock().unwrap().busy.insert((pid, page), tries);
    }

    /// For this page no memory is found, though others find some.
    pub fn no_contiguous_memory(&self, pid: i32, page: u64) {
        let mut inner = self.inner.lock().unwrap();
        inner.no_contiguous_memory.push((pid, page));
    }

    pub fn put(&self, pid: i32, pages: Range<usize>, node: u32) {
        self.inner.lock().unwrap().processes.get_mut(&pid).unwrap()[pages].fill(node);
    }

    pub fn forbid_move_pages(&self) {
        self.inner.lock().unwrap().forbid_move_pages = true;
    }

    pub fn count_on(&self, node: u32) -> usize {
        self.inner.lock().unwrap().count_on(node)
    }

    /// The pids in the order in which they were moved, without repetition.
    pub fn order_of_moves(&self) -> Vec<i32> {
        let mut moves = self.inner.lock().unwrap().moves.clone();
        moves.dedup();
        moves
    }

    /// Counts moves from here.
    pub fn forget_moves(&self) {
        self.inner.lock().unwrap().moves.clear();
    }
}

impl Inner {
    fn count_on(&self, node: u32) -> usize {
        self.processes
            .values()
            .flatten()
            .filter(|at| **at == node)
            .count()
    }

    fn move_one(&mut self, pid: i32, page: u64, node: u32) -> Result<(), i32> {
        if self.pinned.contains(&(pid, page)) {
            return Err(libc::EBUSY);
        }
        if let Some(tries) = self.busy.get_mut(&(pid, page))
            && *tries > 0
        {
            *tries -= 1;
            return Err(libc::EBUSY);
        }
        if self.no_contiguous_memory.contains(&(pid, page)) {
            return Err(libc::ENOMEM);
        }
        let room = self
            .capacity_pages
            .get(&node)
            .is_none_or(|room| self.count_on(node) < *room);
        if !room {
            return Err(libc::ENOMEM);
        }
        self.processes.get_mut(&pid).expect("checked by the caller")[page as usize] = node;
        Ok(())
    }
}

impl Pages for FakePages {
    fn scan(&self, pid: i32, found: &mut dyn FnMut(Run)) -> io::Result<()> {
        let inner = self.inner.lock().unwrap();
        let pages = inner
            .processes
            .get(&pid)
            .ok_or_else(|| error(libc::ESRCH))?;
        let end = BASE + pages.len() as u64 * PAGE_BYTES;
        // As in the kernel, others go on meanwhile.
        drop(inner);
        found(Run {
            start: BASE,
            end,
            huge: false,
        });
        Ok(())
    }

    fn nodes(&self, pid: i32, pages: &[u64], status: &mut [i32]) -> io::Result<()> {
        let inner = self.inner.lock().unwrap();
        let nodes = inner
            .processes
            .get(&pid)
            .ok_or_else(|| error(libc::ESRCH))?;
        for (address, status) in pages.iter().zip(status) {
            let page = ((address - BASE) / PAGE_BYTES) as usize;
            *status = nodes.get(page).map_or(-libc::ENOENT, |node| *node as i32);
        }
        Ok(())
    }

    fn move_to(&self, pid: i32, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<u64> {
        let mut inner = self.inner.lock().unwrap();
        if inner.forbid_move_pages {
            return Err(error(libc::EACCES));
        }
        if !inner.processes.contains_key(&pid) {
            return Err(error(libc::ESRCH));
        }
        inner.moves.push(pid);
        for (index, address) in pages.iter().enumerate() {
            match inner.move_one(pid, (address - BASE) / PAGE_BYTES, node) {
                Ok(()) => status[index] = node as i32,
                Err(libc::ENOMEM) => return Err(error(libc::ENOMEM)),
                Err(_) => return Ok((pages.len() - index) as u64),
            }
        }
        Ok(0)
    }

    fn move_all(&self, pid: i32, from: &[u32], to: u32) -> io::Result<u64> {
        let mut inner = self.inner.lock().unwrap();
        let pages = inner
            .processes
            .get(&pid)
            .ok_or_else(|| error(libc::ESRCH))?
            .clone();
        inner.moves.push(pid);
        let mut left = 0;
        for (page, node) in pages.iter().enumerate() {
            if from.contains(node) {
                match inner.move_one(pid, page as u64, to) {
                    Ok(()) => {}
                    Err(libc::ENOMEM) => return Err(error(libc::ENOMEM)),
                    Err(_) => left += 1,
                }
            }
        }
        Ok(left)
    }
}

/// Windows that were made up: what process was touched where.
#[derive(Default)]
pub struct FakeSampler {
    windows: Vec<(i32, HotRange)>,
    unavailable: bool,
    watching: std::sync::atomic::AtomicBool,
}

impl FakeSampler {
    /// Each time, one process is touched in one place.
    pub fn with_windows(windows: &[(i32, HotRange)]) -> FakeSampler {
        FakeSampler {
            windows: windows.to_vec(),
            ..FakeSampler::default()
        }
    }

    /// A kernel without DAMON.
    pub fn unavailable() -> FakeSampler {
        FakeSampler {
            unavailable: true,
            ..FakeSampler::default()
        }
    }

    pub fn is_watching(&self) -> bool {
        self.watching.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Watches these processes.
    pub fn watch(&self, order: &[Entry]) -> Watch<'_> {
        let targets: Vec<Target> = order
            .iter()
            .map(|entry| Target {
                pid: entry.pid,
                start_ticks: entry.start_ticks,
                span_pages: 1,
            })
            .collect();
        Watch::new(self.start(&targets, Pace::Gentle).unwrap(), &targets)
    }
}

impl Sampler for FakeSampler {
    fn start(&self, targets: &[Target], _: Pace) -> Result<Box<dyn Sampling + '_>, Unavailable> {
        if self.unavailable {
            return Err(Unavailable::NoDamon);
        }
        self.watching
            .store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(Box::new(FakeSampling {
            sampler: self,
            pids: targets.iter().map(|target| target.pid).collect(),
            calls: 0,
        }))
    }

    fn clean_up(&self) {}
}

struct FakeSampling<'a> {
    sampler: &'a FakeSampler,
    pids: Vec<i32>,
    calls: usize,
}

impl Sampling for FakeSampling<'_> {
    /// Every other call falls between two windows.
    fn take(&mut self) -> Vec<Seen> {
        self.calls += 1;
        if self.calls.is_multiple_of(2) {
            return Vec::new();
        }
        let window = self.sampler.windows.get(self.calls / 2);
        let seen = window.and_then(|(pid, range)| {
            let target = self.pids.iter().position(|one| one == pid)?;
            Some(Seen {
                target,
                range: *range,
            })
        });
        seen.into_iter().collect()
    }
}

impl Drop for FakeSampling<'_> {
    fn drop(&mut self) {
        self.sampler
            .watching
            .store(false, std::sync::atomic::Ordering::Relaxed);
    }
}
