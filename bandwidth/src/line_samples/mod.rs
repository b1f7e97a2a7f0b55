//! Attribution with cache-line samples that the device itself takes.
//!
//! ```text
//!  ring in the device's memory ──ring──▶ physical address ──blocks──▶ node
//!                                            │
//!                /proc/kpagecgroup ──pages──▶ inode of a cgroup ──names──▶ user
//! ```
//!
//! A device sees lines that are read and lines that caches write back, both alike, but not the
//! requesting task. Each page is charged to a memory cgroup, so a line is attributed to the owner
//! of its memory, whenever it is transferred. This is correct for memory that is not shared. Lines
//! of kernel memory and of cgroups that are not watched are unattributed.

pub mod names;
pub mod pages;
pub mod ring;
#[cfg(test)]
mod tests_support;
pub mod uncharged;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::enforce::cgroup::{Cgroup, Hierarchy, Version};
use crate::perf::LINE_BYTES;
use crate::perf::blocks::{Blocks, SYSTEM};
use crate::samples::shares::{Run, Shares};
use crate::samples::{Samples, UserRef};
use names::Names;
use pages::{KPAGECGROUP, Pages};
use ring::{Line, Ring, Trouble};
use uncharged::Uncharged;

/// Minimum time between two reports of problems with the ring.
const REPORT_EVERY_MS: f64 = 60_000.0;
/// Minimum time between two attempts to map a device that is gone.
const RETRY_AFTER_MS: f64 = 1000.0;
/// The largest number of lost samples for each one that was read: a device that reports more is
/// not trusted.
const MAX_LOST: u64 = 1000;

/// The ring, and the watched cgroups.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub path: &'a Path,
    /// In bytes.
    pub offset: u64,
    /// NUMA nodes of the device.
    pub nodes: &'a [u32],
    /// Cgroups, relative to the hierarchy's root; all below them are watched.
    pub cgroups: &'a [PathBuf],
    pub hierarchy: Hierarchy,
}

/// Maps an inode to the folder of its cgroup.
type Paths = Box<dyn Fn(u64) -> Option<PathBuf> + Send>;

/// Cache-line samples of the device, charged to users.
pub struct LineSampler {
    ring: Ring,
    pages: Pages,
    owners: Owners,
    blocks: Blocks,
    nodes: Vec<u32>,
    /// Whether an address outside of all known blocks was sampled: memory was added.
    unknown_block: bool,
    lines: Vec<Line>,
    /// Bytes that one sample stands for.
    bytes: f64,
    shares: Shares,
    uncharged: Uncharged,
    /// Samples at addresses outside of the nodes.
    elsewhere: u64,
    /// Samples that would stand for an impossible number of others.
    implausible: u64,
    /// Time since the last attempt to map the device, while it is gone.
    gone_ms: f64,
    reported: Reported,
    reported_ms: Option<f64>,
}

/// Problem counters, reported from time to time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    ring: Trouble,
    elsewhere: u64,
}

/// Owners of pages: cgroups by inode.
struct Owners {
    path_of: Paths,
    hierarchy: Hierarchy,
    watched: Vec<PathBuf>,
    users: HashMap<u64, u64>,
    /// Inode of each user, by its number.
    inodes: HashMap<u64, u64>,
    /// Cgroups that are not watched or have no processes; checked again with the next set of
    /// users.
    unwatched: HashSet<u64>,
    /// Other cgroups: bytes sampled on each node since the last step.
    unknown: HashMap<u64, Vec<f64>>,
}

impl LineSampler {
    /// Starts reading the device's samples.
    ///
    /// # Errors
    /// There is no ring, the kernel does not report the owners of pages, or a watched cgroup has
    /// no memory controller.
    pub fn open(wanted: Wanted) -> io::Result<Self> {
        pages::check_kernel(&rustix::system::uname().release().to_string_lossy())?;
        let names = Names::open(&wanted.hierarchy.root)?;
        Self::with(
            wanted,
            Pages::open(Path::new(KPAGECGROUP))?,
            Box::new(move |inode| names.path(inode)),
            Path::new(SYSTEM),
        )
    }

    fn with(wanted: Wanted, pages: Pages, path_of: Paths, system: &Path) -> io::Result<Self> {
        if wanted.hierarchy.version == Version::V1 {
            let why = "attribution by pages needs version 2 of cgroups";
            return Err(io::Error::other(why));
        }
        let what = |error: io::Error| {
            let path = wanted.path.display();
            io::Error::new(error.kind(), format!("{path}: {error}"))
        };
        let absolute = |path: &PathBuf| wanted.hierarchy.root.join(path);
        let watched: Vec<PathBuf> = wanted.cgroups.iter().map(absolute).collect();
        let lacking = watched.iter().filter(|path| uncharged::lacks_memory(path));
        if let Some(lacking) = uncharged::describe(&lacking.cloned().collect::<Vec<_>>()) {
            return Err(io::Error::other(format!(
                "{lacking}: {}",
                uncharged::REMEDY
            )));
        }
        let ring = Ring::open(wanted.path, wanted.offset).map_err(what)?;
        Ok(Self {
            bytes: 0.0,
            ring,
            pages,
            owners: Owners {
                path_of,
                watched,
                hierarchy: wanted.hierarchy,
                users: HashMap::new(),
                inodes: HashMap::new(),
                unwatched: HashSet::new(),
                unknown: HashMap::new(),
            },
            blocks: Blocks::read(system)?,
            nodes: wanted.nodes.to_vec(),
            unknown_block: false,
            lines: Vec::new(),
            shares: Shares::of_all(wanted.nodes.len()),
            uncharged: Uncharged::default(),
            elsewhere: 0,
            implausible: 0,
            gone_ms: 0.0,
            reported: Reported::default(),
            reported_ms: None,
        })
    }

    /// The number of samples that the device reports.
    pub fn samples(&self) -> u64 {
        self.ring.samples()
    }

    fn trouble(&self) -> Reported {
        let mut ring = self.ring.trouble();
        ring.damaged += self.implausible;
        Reported {
            ring,
            elsewhere: self.elsewhere,
        }
    }

    /// Maps a device that has returned.
    fn retry_device(&mut self, interval_ms: f64) {
        if !self.ring.is_gone() {
            self.gone_ms = 0.0;
            return;
        }
        self.gone_ms += interval_ms;
        if self.gone_ms >= RETRY_AFTER_MS {
            self.gone_ms = 0.0;
            // A failure shows with the next reading of the ring.
            let _ = self.ring.map_again();
        }
    }

    /// Reads the samples since the last call. Each one that was read also stands for its share of
    /// the lost ones.
    fn drain(&mut self, lines: &mut Vec<Line>) {
        let before = self.ring.trouble().lost;
        self.ring.drain(|line| lines.push(line));
        let lost = self.ring.trouble().lost - before;
        let read = lines.len() as u64;
        if read > 0 && lost / read > MAX_LOST {
            self.implausible += read;
            lines.clear();
        }
        let each = 1.0 + lost as f64 / read.max(1) as f64;
        self.bytes = each * self.ring.lines() as f64 * LINE_BYTES;
    }

    /// Charges samples of one page.
    fn charge(&mut self, address: u64, lines: u64) {
        let node = self.blocks.node_of(address);
        self.unknown_block |= node.is_none();
        let at = node.and_then(|node| self.nodes.iter().position(|one| *one == node));
        let Some(at) = at else {
            self.elsewhere += lines;
            return;
        };
        let bytes = self.bytes * lines as f64;
        let Some(cgroup) = self.pages.cgroup_of(address) else {
            return self.shares.charge_unattributed(at, bytes);
        };
        if let Some(&user) = self.owners.users.get(&cgroup) {
            self.shares.charge(user, Some(at), bytes);
        } else if self.owners.unwatched.contains(&cgroup) {
            self.shares.charge_unattributed(at, bytes);
        } else {
            let count = self.nodes.len();
            let known = self.owners.unknown.entry(cgroup);
            known.or_insert_with(|| vec![0.0; count])[at] += bytes;
        }
    }
}

impl Owners {
    /// The unknown cgroups that are watched and have processes.
    fn newcomers(&mut self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for &inode in self.unknown.keys() {
            let path = (self.path_of)(inode).filter(|path| {
                let watched = self.watched.iter().any(|one| path.starts_with(one));
                let cgroup = Cgroup::new(path, self.hierarchy.version);
                watched && cgroup.processes().is_ok_and(|all| !all.is_empty())
            });
            match path {
                Some(path) => found.push(path),
                None => {
                    self.unwatched.insert(inode);
                }
            }
        }
        found
    }

    fn set_users(&mut self, users: &[UserRef]) {
        let mut before = std::mem::take(&mut self.inodes);
        self.users.clear();
        for user in users {
            let known = before.remove(&user.id);
            if let Some(inode) = known.or_else(|| Names::inode(user.path)) {
                self.inodes.insert(user.id, inode);
                self.users.insert(inode, user.id);
            }
        }
        self.unwatched.clear();
    }
}

impl Samples for LineSampler {
    fn set_users(&mut self, users: &[UserRef]) {
        self.owners.set_users(users);
        self.uncharged.set_users(users);
        if std::mem::take(&mut self.unknown_block)
            && let Ok(blocks) = Blocks::read(Path::new(SYSTEM))
        {
            self.blocks = blocks;
        }
    }

    fn collect(&mut self, interval_ms: f64) -> Vec<PathBuf> {
        self.pages.pass(interval_ms);
        self.reported_ms = self.reported_ms.map(|ms| ms + interval_ms);
        self.retry_device(interval_ms);
        let mut lines = std::mem::take(&mut self.lines);
        self.drain(&mut lines);
        // Sequential accesses produce several samples of one page in a row.
        let page_bytes = rustix::param::page_size() as u64;
        let page = |line: &Line| line.address / page_bytes;
        for run in lines.chunk_by(|a, b| page(a) == page(b)) {
            self.charge(run[0].address, run.len() as u64);
        }
        lines.clear();
        self.lines = lines;
        self.owners.newcomers()
    }

    fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        for (cgroup, nodes) in std::mem::take(&mut self.owners.unknown) {
            let user = self.owners.users.get(&cgroup);
            for (at, bytes) in nodes.into_iter().enumerate() {
                match user {
                    Some(&user) => self.shares.charge(user, Some(at), bytes),
                    None => self.shares.charge_unattributed(at, bytes),
                }
            }
        }
        // Lines of these users are charged to other cgroups: the owner of the traffic is unknown
        // there.
        let blind = self.uncharged.nodes(self.nodes.len(), runs);
        self.shares.set_blind(blind);
        self.shares.step(interval_ms, runs);
    }

    fn lost(&self) -> u64 {
        self.ring.trouble().lost
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn notices(&mut self) -> Vec<String> {
        if self.reported_ms.is_some_and(|ms| ms < REPORT_EVERY_MS) {
            return Vec::new();
        }
        let (now, before) = (self.trouble(), self.reported);
        let mut notices: Vec<String> = self.uncharged.notices().into_iter().collect();
        let mut report = |count: u64, before: u64, what: &str| {
            if count > before {
                notices.push(format!(
                    "cache-line samples: {what} {} times",
                    count - before
                ));
            }
        };
        let (ring, ring_before) = (now.ring, before.ring);
        let lost = "overwritten before they were read, or too many at once,";
        report(ring.lost, ring_before.lost, lost);
        let damaged = "a slot held no valid sample,";
        report(ring.damaged, ring_before.damaged, damaged);
        report(ring.back, ring_before.back, "their number decreased,");
        report(ring.gone, ring_before.gone, "the device did not answer,");
        let elsewhere = "an address was on none of its nodes,";
        report(now.elsewhere, before.elsewhere, elsewhere);
        if !notices.is_empty() {
            self.reported = now;
            self.reported_ms = Some(0.0);
        }
        notices
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
