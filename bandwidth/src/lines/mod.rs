//! Whose a device's traffic is, by lines that the device itself samples.
//!
//! ```text
//!  ring in the device's memory ──ring──▶ physical address ──blocks──▶ node
//!                                            │
//!                /proc/kpagecgroup ──pages──▶ inode of a cgroup ──names──▶ user
//! ```
//!
//! A device sees lines that were read and lines that caches have written back, and both alike, but
//! not who asked for them. Pages belong to somebody: the cgroup that their memory is charged to. So
//! lines are charged to whose memory they are of, whenever they come, which is right for memory that
//! is not shared. Lines of the kernel's own memory, and of cgroups that are not watched, are nobody's.

pub mod charged;
pub mod names;
pub mod pages;
pub mod ring;
#[cfg(test)]
mod tests_support;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::enforce::cgroup::{Cgroup, Hierarchy, Version};
use crate::perf::LINE_BYTES;
use crate::perf::blocks::{Blocks, SYSTEM};
use crate::perf::shares::{Run, Shares};
use crate::samples::{Samples, Who};
use charged::Uncharged;
use names::Names;
use pages::{KPAGECGROUP, Pages};
use ring::{Line, Ring, Trouble};

/// Trouble with the ring is told at most this often.
const TOLD_EVERY_MS: f64 = 60_000.0;
/// A device that is gone is looked for at most this often.
const AGAIN_AFTER_MS: f64 = 1000.0;
/// Samples for which one may stand, because they were lost: a device that says more says nonsense.
const MOST_LOST: u64 = 1000;

/// Where the ring is, and who is watched.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub path: &'a Path,
    /// In bytes.
    pub offset: u64,
    /// NUMA nodes of the device.
    pub nodes: &'a [u32],
    /// Cgroups, relative to the hierarchy's root, below which all are watched.
    pub cgroups: &'a [PathBuf],
    pub hierarchy: Hierarchy,
}

/// The folder of a cgroup by its inode.
type Paths = Box<dyn Fn(u64) -> Option<PathBuf> + Send>;

/// Lines that the device samples, charged to users.
pub struct LineSampler {
    ring: Ring,
    pages: Pages,
    owners: Owners,
    blocks: Blocks,
    nodes: Vec<u32>,
    /// Whether an address was met that no block has: memory came.
    unknown_block: bool,
    lines: Vec<Line>,
    /// That one sample stands for.
    bytes: f64,
    shares: Shares,
    uncharged: Uncharged,
    /// Lines at addresses that none of the nodes has.
    elsewhere: u64,
    /// Samples that would have to stand for more than there can have been.
    implausible: u64,
    /// Since the device was looked for, while it is gone.
    gone_ms: f64,
    told: Told,
    told_ms: Option<f64>,
}

/// What goes wrong, and is told now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    ring: Trouble,
    elsewhere: u64,
}

/// Who owns pages: cgroups by inode.
struct Owners {
    path_of: Paths,
    hierarchy: Hierarchy,
    watched: Vec<PathBuf>,
    users: HashMap<u64, u64>,
    /// Inode of each user, by its number.
    inodes: HashMap<u64, u64>,
    /// Cgroups that are not watched, or have no processes; they are looked at again now and then.
    strangers: HashSet<u64>,
    /// Cgroups that are neither: what was sampled of them on each node since the last step.
    unknown: HashMap<u64, Vec<f64>>,
}

impl LineSampler {
    /// Reads from now on what the device samples.
    ///
    /// # Errors
    /// There is no ring, the kernel does not tell whose pages are, or no memory is charged to a
    /// cgroup that is watched.
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
            let why =
                "whose memory is charged to which cgroup is known in version 2 of cgroups only";
            return Err(io::Error::other(why));
        }
        let what = |error: io::Error| {
            let path = wanted.path.display();
            io::Error::new(error.kind(), format!("{path}: {error}"))
        };
        let absolute = |path: &PathBuf| wanted.hierarchy.root.join(path);
        let watched: Vec<PathBuf> = wanted.cgroups.iter().map(absolute).collect();
        let lacking = watched.iter().filter(|path| charged::lacks_memory(path));
        if let Some(told) = charged::told(&lacking.cloned().collect::<Vec<_>>()) {
            return Err(io::Error::other(format!("{told}: {}", charged::REMEDY)));
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
                strangers: HashSet::new(),
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
            told: Told::default(),
            told_ms: None,
        })
    }

    /// Samples so far, as the device says.
    pub fn samples(&self) -> u64 {
        self.ring.samples()
    }

    fn trouble(&self) -> Told {
        let mut ring = self.ring.trouble();
        ring.damaged += self.implausible;
        Told {
            ring,
            elsewhere: self.elsewhere,
        }
    }

    /// A device that is gone may be back.
    fn look_for_device(&mut self, interval_ms: f64) {
        if !self.ring.is_gone() {
            self.gone_ms = 0.0;
            return;
        }
        self.gone_ms += interval_ms;
        if self.gone_ms >= AGAIN_AFTER_MS {
            self.gone_ms = 0.0;
            // That it is not is told with the next look at the ring.
            let _ = self.ring.map_again();
        }
    }

    /// Takes what was sampled since the last time; those that were read stand for those that were
    /// not.
    fn drain(&mut self, lines: &mut Vec<Line>) {
        let before = self.ring.trouble().lost;
        self.ring.drain(|line| lines.push(line));
        let lost = self.ring.trouble().lost - before;
        let read = lines.len() as u64;
        if read > 0 && lost / read > MOST_LOST {
            self.implausible += read;
            lines.clear();
        }
        let each = 1.0 + lost as f64 / read.max(1) as f64;
        self.bytes = each * self.ring.lines() as f64 * LINE_BYTES;
    }

    /// So many lines of a page were sampled.
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
            return self.shares.charge_nobody(at, bytes);
        };
        if let Some(&user) = self.owners.users.get(&cgroup) {
            self.shares.charge(user, Some(at), bytes);
        } else if self.owners.strangers.contains(&cgroup) {
            self.shares.charge_nobody(at, bytes);
        } else {
            let count = self.nodes.len();
            let known = self.owners.unknown.entry(cgroup);
            known.or_insert_with(|| vec![0.0; count])[at] += bytes;
        }
    }
}

impl Owners {
    /// Of cgroups that were met and nobody knows, those that are watched and have processes.
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
                    self.strangers.insert(inode);
                }
            }
        }
        found
    }

    fn set_users(&mut self, users: &[Who]) {
        let mut before = std::mem::take(&mut self.inodes);
        self.users.clear();
        for user in users {
            let known = before.remove(&user.id);
            if let Some(inode) = known.or_else(|| Names::inode(user.path)) {
                self.inodes.insert(user.id, inode);
                self.users.insert(inode, user.id);
            }
        }
        self.strangers.clear();
    }
}

impl Samples for LineSampler {
    fn set_users(&mut self, users: &[Who]) {
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
        self.told_ms = self.told_ms.map(|ms| ms + interval_ms);
        self.look_for_device(interval_ms);
        let mut lines = std::mem::take(&mut self.lines);
        self.drain(&mut lines);
        // Who goes through memory has several lines of a page sampled, one after the other.
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
                    None => self.shares.charge_nobody(at, bytes),
                }
            }
        }
        // Their lines are charged to others: who makes the traffic there is not known.
        let blind = self.uncharged.nodes(self.nodes.len(), runs);
        self.shares.set_blind(blind);
        self.shares.step(interval_ms, runs);
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn news(&mut self) -> Vec<String> {
        if self.told_ms.is_some_and(|ms| ms < TOLD_EVERY_MS) {
            return Vec::new();
        }
        let (told, before) = (self.trouble(), self.told);
        let mut news: Vec<String> = self.uncharged.news().into_iter().collect();
        let mut tell = |now: u64, before: u64, what: &str| {
            if now > before {
                news.push(format!(
                    "the device's samples: {what} {} times",
                    now - before
                ));
            }
        };
        let (now, then) = (told.ring, before.ring);
        let lost = "overwritten before they were read, or too many at once,";
        tell(now.lost, then.lost, lost);
        let damaged = "a slot held none that could be there,";
        tell(now.damaged, then.damaged, damaged);
        tell(now.back, then.back, "their number became smaller,");
        tell(now.gone, then.gone, "the device did not answer,");
        let elsewhere = "an address was on none of its nodes,";
        tell(told.elsewhere, before.elsewhere, elsewhere);
        if !news.is_empty() {
            self.told = told;
            self.told_ms = Some(0.0);
        }
        news
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
