//! The device graph: parents, device links, permissions, ordering dependencies, list order.
//!
//! Edges go from a *superior* (parent or supplier) to a *subordinate* (child or consumer). A
//! superior suspends after and resumes before its subordinates. The kernel refuses a link that
//! would close a cycle (`device_link_add` asks `device_is_dependent`), skips dormant links, and
//! ignores the order of links that exist only for sync_state; [`Edges`] does the same, adding
//! parents first and then links in the order of the recording.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Direction;

/// Devices and their links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// All devices; their place is their number.
    pub devices: Vec<Device>,
    /// All device links.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// One device.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// As in the kernel's messages: `0000:00:1f.2`. Not unique.
    pub name: String,
    /// Below /sys/devices; unique. Missing where only a trace is known.
    pub path: Option<String>,
    /// The number of the parent.
    pub parent: Option<usize>,
    /// The driver; of an unbound device, what the kernel names instead (its bus or class).
    pub driver: Option<String>,
    /// The bus or class.
    pub subsystem: Option<String>,
    /// `power/async`: whether it may be suspended asynchronously. Missing if unknown.
    pub is_async: Option<bool>,
    /// Runtime power management, if the device has it.
    pub runtime: Option<RuntimePm>,
    /// `power/wakeup`: whether it may wake the machine. Missing if it cannot.
    pub wakeup: Option<bool>,
    /// Ascending in the order of registration (the inode number in sysfs).
    pub registered: Option<u64>,
    /// The number of a slow bus that serves one device at a time: callbacks of devices with the same
    /// number do not overlap. Missing if there is none, or unknown.
    pub bus: Option<u32>,
}

/// Runtime power management of a device before the suspend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimePm {
    /// `active`, `suspended`, `unsupported`, …
    pub status: String,
    /// `auto`, or `on` where it must not be suspended at run time.
    pub control: String,
}

/// A device link: the consumer depends on the supplier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The number of the supplier.
    pub supplier: usize,
    /// The number of the consumer.
    pub consumer: usize,
    /// The state of the link.
    #[serde(default)]
    pub status: LinkStatus,
    /// It only delays the supplier's sync_state and orders nothing.
    #[serde(default)]
    pub sync_state_only: bool,
    /// It holds the supplier runtime-active while the consumer is.
    #[serde(default)]
    pub runtime_pm: bool,
}

/// `status` of a device link in /sys/class/devlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkStatus {
    /// Stateless (`not tracked`), or unknown.
    #[default]
    Untracked,
    /// Neither driver is bound.
    Dormant,
    /// The supplier is bound.
    Available,
    /// The consumer is being bound.
    ConsumerProbe,
    /// Both are bound.
    Active,
    /// The supplier is being unbound.
    SupplierUnbind,
}

impl Link {
    /// Whether it orders suspend and resume.
    pub fn orders(&self) -> bool {
        !self.sync_state_only && self.status != LinkStatus::Dormant
    }
}

/// One dependency: the superior suspends last and resumes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The parent or supplier.
    pub superior: usize,
    /// The child or consumer.
    pub subordinate: usize,
}

/// The dependencies of a graph, without cycles; neighbours of each device in both directions.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    subordinates: Adjacency,
    superiors: Adjacency,
    /// Links left out because they would have closed a cycle.
    pub refused: Vec<Edge>,
    all: Vec<Edge>,
}

/// Neighbours of all devices in one vector: those of `d` are `list[start[d]..start[d + 1]]`.
#[derive(Clone, Debug, Default)]
struct Adjacency {
    start: Vec<u32>,
    list: Vec<u32>,
}

impl Adjacency {
    fn new(devices: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Adjacency {
        let mut start = vec![0u32; devices + 1];
        for (from, _) in pairs.clone() {
            start[from + 1] += 1;
        }
        for index in 0..devices {
            start[index + 1] += start[index];
        }
        let mut next = start.clone();
        let mut list = vec![0u32; start[devices] as usize];
        for (from, to) in pairs {
            list[next[from] as usize] = to as u32;
            next[from] += 1;
        }
        Adjacency { start, list }
    }

    fn of(&self, device: usize) -> &[u32] {
        &self.list[self.start[device] as usize..self.start[device + 1] as usize]
    }
}

impl Edges {
    /// The dependencies of a graph. Numbers out of range and devices that depend on themselves
    /// are left out, a link that would close a cycle is refused.
    pub fn of(graph: &Graph) -> Edges {
        let count = graph.devices.len();
        let parents = graph
            .devices
            .iter()
            .enumerate()
            .filter_map(|(child, device)| {
                Some(Edge {
                    superior: device.parent?,
                    subordinate: child,
                })
            });
        let links = graph.links.iter().filter(|link| link.orders());
        let links = links.map(|link| Edge {
            superior: link.supplier,
            subordinate: link.consumer,
        });
        Edges::from_candidates(count, parents.chain(links))
    }

    /// The same from edges in the order in which the kernel would learn of them.
    pub fn from_candidates(count: usize, candidates: impl Iterator<Item = Edge>) -> Edges {
        let mut order = Incremental::new(count);
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        let mut known = std::collections::HashSet::new();
        for edge in candidates {
            if edge.superior >= count || edge.subordinate >= count {
                continue;
            }
            if !known.insert(edge) {
                continue;
            }
            if order.add(edge) {
                all.push(edge);
            } else {
                refused.push(edge);
            }
        }
        Edges {
            subordinates: Adjacency::new(count, all.iter().map(|e| (e.superior, e.subordinate))),
            superiors: Adjacency::new(count, all.iter().map(|e| (e.subordinate, e.superior))),
            refused,
            all,
        }
    }

    /// All edges.
    pub fn iter(&self) -> impl Iterator<Item = &Edge> {
        self.all.iter()
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.subordinates.start.len().saturating_sub(1)
    }

    /// Children and consumers.
    pub fn subordinates(&self, device: usize) -> &[u32] {
        self.subordinates.of(device)
    }

    /// Parent and suppliers.
    pub fn superiors(&self, device: usize) -> &[u32] {
        self.superiors.of(device)
    }

    /// The devices that a device waits for.
    pub fn before(&self, device: usize, direction: Direction) -> &[u32] {
        match direction {
            Direction::Suspend => self.subordinates(device),
            Direction::Resume => self.superiors(device),
        }
    }

    /// The devices that wait for a device.
    pub fn after(&self, device: usize, direction: Direction) -> &[u32] {
        match direction {
            Direction::Suspend => self.superiors(device),
            Direction::Resume => self.subordinates(device),
        }
    }
}

/// A topological order kept while edges are added (Pearce and Kelly, "A Dynamic Topological Sort
/// Algorithm for Directed Acyclic Graphs", 2007): only the part of the order between both ends of
/// a new edge is searched, so adding a machine's links takes next to nothing.
struct Incremental {
    place: Vec<usize>,
    down: Vec<Vec<usize>>,
    up: Vec<Vec<usize>>,
    seen: Vec<bool>,
}

impl Incremental {
    fn new(count: usize) -> Incremental {
        Incremental {
            place: (0..count).collect(),
            down: vec![Vec::new(); count],
            up: vec![Vec::new(); count],
            seen: vec![false; count],
        }
    }

    /// Adds an edge, unless it would close a cycle. Returns whether it was added.
    fn add(&mut self, edge: Edge) -> bool {
        let (from, to) = (edge.superior, edge.subordinate);
        if from == to {
            return false;
        }
        let (lower, upper) = (self.place[to], self.place[from]);
        if lower < upper {
            // What can be reached from `to`, as far as it stands before `from`.
            let Some(forward) = self.reach(to, upper, from) else {
                return false;
            };
            let backward = self.reach_back(from, lower);
            self.reorder(backward, forward);
        }
        self.down[from].push(to);
        self.up[to].push(from);
        true
    }

    fn reach(&mut self, start: usize, limit: usize, goal: usize) -> Option<Vec<usize>> {
        let (mut stack, mut found, mut cycle) = (vec![start], vec![start], false);
        self.seen[start] = true;
        while let Some(device) = stack.pop() {
            for &next in &self.down[device] {
                if next == goal {
                    cycle = true;
                }
                if !self.seen[next] && self.place[next] < limit {
                    self.seen[next] = true;
                    found.push(next);
                    stack.push(next);
                }
            }
        }
        for &device in &found {
            self.seen[device] = false;
        }
        (!cycle).then_some(found)
    }

    fn reach_back(&mut self, start: usize, limit: usize) -> Vec<usize> {
        let (mut stack, mut found) = (vec![start], vec![start]);
        self.seen[start] = true;
        while let Some(device) = stack.pop() {
            for &next in &self.up[device] {
                if !self.seen[next] && self.place[next] > limit {
                    self.seen[next] = true;
                    found.push(next);
                    stack.push(next);
                }
            }
        }
        for &device in &found {
            self.seen[device] = false;
        }
        found
    }

    fn reorder(&mut self, mut backward: Vec<usize>, mut forward: Vec<usize>) {
        backward.sort_unstable_by_key(|&device| self.place[device]);
        forward.sort_unstable_by_key(|&device| self.place[device]);
        let devices: Vec<usize> = backward.into_iter().chain(forward).collect();
        let mut places: Vec<usize> = devices.iter().map(|&device| self.place[device]).collect();
        places.sort_unstable();
        for (device, place) in devices.into_iter().zip(places) {
            self.place[device] = place;
        }
    }
}

/// An order of all devices in which superiors come first, as in the kernel's list: among those
/// that may come next, the one with the smallest key.
///
/// The kernel does not export its list. It is in order of registration, with consumers moved to
/// the end when a link is added, so registration is the key to give; see `docs/explanation/devices.md`.
pub fn list_order<K: Ord>(edges: &Edges, key: impl Fn(usize) -> K) -> Vec<usize> {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    let count = edges.devices();
    let mut missing: Vec<usize> = (0..count).map(|d| edges.superiors(d).len()).collect();
    let mut ready: BinaryHeap<Reverse<(K, usize)>> = (0..count)
        .filter(|&device| missing[device] == 0)
        .map(|device| Reverse((key(device), device)))
        .collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse((_, device))) = ready.pop() {
        order.push(device);
        for &next in edges.subordinates(device) {
            let next = next as usize;
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(Reverse((key(next), next)));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests;
