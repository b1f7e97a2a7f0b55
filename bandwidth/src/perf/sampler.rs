//! Attribution by samples of processors: the daemon's side of [`super::ring`].

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::LINE_BYTES;
use super::blocks::{Blocks, SYSTEM};
use super::decode::Access;
use super::pmu::{DEVICES, Pmu};
use super::presets::{Op, Place, SampleKind, SampledEvent};
use super::ring::{RING_BYTES, Rings, Tally};
use crate::enforce::cgroup::{Hierarchy, Version};
use crate::samples::shares::{Run, Shares};
use crate::samples::{Samples, UserRef};

/// The configuration of sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub kind: Option<SampleKind>,
    /// Instead of the default events of the kind.
    pub events: Vec<SampledEvent>,
    /// Events for each sample; `None`: the default of the kind.
    pub period: Option<u64>,
    /// Whether a user has all cgroups below its own.
    pub units: bool,
}

/// Samples of all CPUs, charged to users.
pub struct Sampler {
    rings: Vec<(Rings, f64, Place)>,
    nodes: Vec<u32>,
    hierarchy: Hierarchy,
    units: bool,
    blocks: Blocks,
    /// Whether an address outside of all known blocks was sampled: memory was added.
    unknown_block: bool,
    /// Users by their processes; `None`: no watched process.
    processes: HashMap<i32, Option<u64>>,
    users: HashMap<PathBuf, u64>,
    shares: Shares,
    tally: Tally,
}

impl Sampler {
    /// Starts sampling.
    ///
    /// # Errors
    /// The machine has no such PMU, the kernel refuses it, or it does not show the memory blocks
    /// of nodes.
    pub fn open(wanted: &Wanted, nodes: &[u32], hierarchy: Hierarchy) -> io::Result<Self> {
        let devices = Path::new(DEVICES);
        let events = match wanted.kind {
            _ if !wanted.events.is_empty() => wanted.events.clone(),
            Some(kind) => {
                let events = kind.events(|name| Pmu::open(devices, name).ok());
                let lacks = || format!("this machine has no PMU for {}", kind.name());
                events.ok_or_else(|| io::Error::other(lacks()))?
            }
            None => Vec::new(),
        };
        let default_events = wanted.kind.unwrap_or(SampleKind::Pebs).period();
        let period = wanted.period.unwrap_or(default_events);
        let rings = events.iter().map(|event| {
            let rings = Rings::open(devices, event, period, RING_BYTES).map_err(|error| {
                let what = format!("{}/{}/: {error}", event.pmu, event.event);
                io::Error::new(error.kind(), what)
            })?;
            Ok((rings, period as f64 * LINE_BYTES, event.place))
        });
        Ok(Self {
            rings: rings.collect::<io::Result<_>>()?,
            nodes: nodes.to_vec(),
            hierarchy,
            units: wanted.units,
            blocks: Blocks::read(Path::new(SYSTEM))?,
            unknown_block: false,
            processes: HashMap::new(),
            users: HashMap::new(),
            shares: Shares::new(nodes.len()),
            tally: Tally::default(),
        })
    }

    fn charge(&mut self, access: Access, bytes: f64, place: Place) {
        let node = match access.address {
            Some(address) => match self.blocks.node_of(address) {
                Some(node) => match self.nodes.iter().position(|one| *one == node) {
                    Some(at) => Some(at),
                    None => return,
                },
                None => {
                    self.unknown_block = true;
                    return;
                }
            },
            None if place == Place::Address => return,
            None => None,
        };
        // A store reads its line first.
        let bytes = match access.op {
            Op::Load => bytes,
            Op::Store => 2.0 * bytes,
        };
        let count = self.nodes.len();
        match (self.user_of(access.pid), node) {
            (Some(user), node) => self.shares.charge(user, node, bytes),
            // Traffic of other processes must not be divided among the watched ones.
            (None, Some(node)) => self.shares.charge_unattributed(node, bytes),
            (None, None) => (0..count)
                .for_each(|node| self.shares.charge_unattributed(node, bytes / count as f64)),
        }
    }

    /// Looks up an unknown process; one that has ended meanwhile belongs to no user.
    fn user_of(&mut self, process: i32) -> Option<u64> {
        if let Some(known) = self.processes.get(&process) {
            return *known;
        }
        let text = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        let path = cgroup_of(&text, self.hierarchy.version);
        let path = path.map(|path| self.hierarchy.root.join(path.trim_start_matches('/')));
        let above = if self.units { usize::MAX } else { 1 };
        let of = |path: PathBuf| {
            let mut paths = path.ancestors().take(above);
            paths.find_map(|path| self.users.get(path)).copied()
        };
        let user = path.and_then(of);
        self.processes.insert(process, user);
        user
    }
}

impl Samples for Sampler {
    fn set_users(&mut self, users: &[UserRef]) {
        self.processes.clear();
        self.users.clear();
        for user in users {
            self.users.insert(user.path.to_owned(), user.id);
            let known = user.processes.iter();
            let known = known.map(|&process| (process, Some(user.id)));
            self.processes.extend(known);
        }
        if std::mem::take(&mut self.unknown_block)
            && let Ok(blocks) = Blocks::read(Path::new(SYSTEM))
        {
            self.blocks = blocks;
        }
    }

    /// Users are identified by their processes, so samples reveal no new cgroup.
    fn collect(&mut self, _interval_ms: f64) -> Vec<PathBuf> {
        let mut rings = std::mem::take(&mut self.rings);
        let mut tally = self.tally;
        for (rings, bytes, place) in &mut rings {
            rings.drain(&mut tally, |access| self.charge(access, *bytes, *place));
        }
        self.tally = tally;
        self.rings = rings;
        Vec::new()
    }

    fn step(&mut self, interval_ms: f64, runs: &[Run]) {
        self.shares.step(interval_ms, runs);
    }

    fn shares(&self) -> &Shares {
        &self.shares
    }

    fn lost(&self) -> u64 {
        self.tally.lost
    }
}

/// The path in a `/proc/PID/cgroup` of the hierarchy with the cpu controller.
fn cgroup_of(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => controllers.split(',').any(|name| name == "cpu"),
        };
        found.then_some(path)
    })
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
