//! Made-up device graphs: at random, and in the shape of a phone, a laptop and a server.
//!
//! A graph is written as the text that the kernel's test module reads
//! (`devices/kernel/files/drivers/base/power/graph_test.h` describes it).

use std::fmt::Write;

use crate::stress::Dice;

/// The phases of a transition, in their order and with the kernel's names.
pub const PHASES: [&str; 6] = [
    "suspend",
    "suspend_late",
    "suspend_noirq",
    "resume_noirq",
    "resume_early",
    "resume",
];

/// Whether subordinates come first in a phase.
pub fn is_down(phase: usize) -> bool {
    phase < 3
}

/// How long a device's callback takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Duration {
    pub us: u64,
    /// It keeps a processor busy instead of sleeping.
    pub busy: bool,
}

/// One made-up device.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// Index of its parent.
    pub parent: Option<usize>,
    /// Has permission to leave the list's order.
    pub permitted: bool,
    /// Has no callbacks.
    pub quiet: bool,
    /// Is bound to no driver.
    pub unbound: bool,
    /// Is runtime-suspended and asks to be left alone.
    pub direct: bool,
    /// Shares this slow bus: one callback at a time.
    pub bus: Option<usize>,
    /// Duration of its callback in each of the six phases.
    pub phases: [Duration; 6],
}

/// Kinds of device links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// `DL_FLAG_STATELESS`.
    Stateless,
    /// `DL_FLAG_PM_RUNTIME` as well.
    Runtime,
    /// Managed by the driver core.
    Managed,
    /// For `sync_state()` alone: orders nothing.
    SyncState,
}

impl LinkKind {
    fn name(self) -> &'static str {
        match self {
            LinkKind::Stateless => "stateless",
            LinkKind::Runtime => "runtime",
            LinkKind::Managed => "managed",
            LinkKind::SyncState => "sync_state",
        }
    }
}

/// A device link.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Number of the supplier.
    pub supplier: usize,
    /// Number of the consumer.
    pub consumer: usize,
    /// Its kind.
    pub kind: LinkKind,
}

/// Devices and what ties them.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Devices in the order of registration.
    pub devices: Vec<Device>,
    /// Device links in their order.
    pub links: Vec<Link>,
}

/// The name under which the kernel knows a device.
pub fn device_name(index: usize) -> String {
    format!("d{index}")
}

impl Graph {
    /// As the test module reads it; with `permit_all` every device may leave the list's order.
    pub fn text(&self, permit_all: bool) -> String {
        let mut text = String::new();
        for (index, device) in self.devices.iter().enumerate() {
            let _ = write!(text, "device {}", device_name(index));
            if let Some(parent) = device.parent {
                let _ = write!(text, " parent={}", device_name(parent));
            }
            for (is_set, word) in [
                (device.permitted || permit_all, " async"),
                (device.quiet, " noops"),
                (device.unbound, " nodriver"),
                (device.direct, " suspended direct"),
            ] {
                text.push_str(if is_set { word } else { "" });
            }
            if let Some(bus) = device.bus {
                let _ = write!(text, " bus={bus}");
            }
            for (phase, duration) in PHASES.iter().zip(device.phases) {
                if duration.us > 0 {
                    let busy = if duration.busy { ":busy" } else { "" };
                    let _ = write!(text, " {phase}={}{busy}", duration.us);
                }
            }
            text.push('\n');
        }
        for link in &self.links {
            let (supplier, consumer) = (device_name(link.supplier), device_name(link.consumer));
            let _ = writeln!(text, "link {supplier} {consumer} {}", link.kind.name());
        }
        text
    }

    /// All pairs (superior, subordinate) that the kernel has to keep in order.
    ///
    /// A link whose supplier has no driver is dormant and orders nothing, unless it is stateless.
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let parents = self
            .devices
            .iter()
            .enumerate()
            .filter_map(|(index, device)| Some((device.parent?, index)));
        let links = self.links.iter().filter(|link| match link.kind {
            LinkKind::Stateless | LinkKind::Runtime => true,
            LinkKind::Managed => !self.devices[link.supplier].unbound,
            LinkKind::SyncState => false,
        });
        parents
            .chain(links.map(|link| (link.supplier, link.consumer)))
            .collect()
    }

    /// Without links that order nothing: stock kernels follow them nevertheless, and two devices
    /// may wait for each other for ever (docs/explanation/devices-kernel.md).
    pub fn without_unordered_links(mut self) -> Graph {
        let devices = &self.devices;
        self.links.retain(|link| match link.kind {
            LinkKind::Stateless | LinkKind::Runtime => true,
            LinkKind::Managed => !devices[link.supplier].unbound,
            LinkKind::SyncState => false,
        });
        self
    }

    /// Makes the first `count` slow devices (a callback of a millisecond or more), and all that
    /// depends on them, runtime-suspended and asking to be left alone. How many devices that are.
    pub fn leave_unused(&mut self, count: usize) -> usize {
        let superiors = self.superiors();
        let is_slow = |device: &Device| device.phases.iter().any(|phase| phase.us >= 1000);
        let slow: Vec<usize> = (0..self.devices.len())
            .filter(|&device| is_slow(&self.devices[device]))
            .take(count)
            .collect();
        for (index, device) in self.devices.iter_mut().enumerate() {
            let depends = slow.iter().any(|&other| superiors[index][other]);
            device.direct |= depends || slow.contains(&index);
        }
        match count {
            0 => 0,
            _ => self.devices.iter().filter(|device| device.direct).count(),
        }
    }

    /// For each device, which others come before it on the way up, however far.
    pub fn superiors(&self) -> Vec<Vec<bool>> {
        let count = self.devices.len();
        let mut direct = vec![Vec::new(); count];
        for (superior, subordinate) in self.edges() {
            direct[subordinate].push(superior);
        }
        (0..count)
            .map(|device| {
                let mut seen = vec![false; count];
                let mut open = direct[device].clone();
                while let Some(superior) = open.pop() {
                    if !std::mem::replace(&mut seen[superior], true) {
                        open.extend(&direct[superior]);
                    }
                }
                seen
            })
            .collect()
    }

    /// Microseconds of one phase that no schedule can beat: the longest path, the work that needs
    /// processors shared by them, and the longest queue at a slow bus.
    pub fn lower_bound_us(&self, phase: usize, cpus: u64) -> u64 {
        let superiors = self.superiors();
        let count = self.devices.len();
        // By number of superiors: a superior has fewer than what depends on it.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&device| superiors[device].iter().filter(|&&is| is).count());
        let edges = self.edges();
        let mut path = vec![0; count];
        let mut longest = 0;
        let mut before = vec![Vec::new(); count];
        for (superior, subordinate) in edges {
            before[subordinate].push(superior);
        }
        for device in order {
            let start = before[device].iter().map(|&superior| path[superior]).max();
            path[device] = start.unwrap_or(0) + self.devices[device].phases[phase].us;
            longest = longest.max(path[device]);
        }
        let busy: u64 = self.durations(phase, |_, duration| duration.busy).sum();
        let queue = (0..16)
            .map(|bus| {
                self.durations(phase, |device, _| device.bus == Some(bus))
                    .sum()
            })
            .max();
        longest.max(busy.div_ceil(cpus)).max(queue.unwrap_or(0))
    }

    /// Microseconds of one phase, one device after the other.
    pub fn sum_us(&self, phase: usize) -> u64 {
        self.durations(phase, |_, _| true).sum()
    }

    fn durations(
        &self,
        phase: usize,
        wanted: impl Fn(&Device, Duration) -> bool,
    ) -> impl Iterator<Item = u64> {
        self.devices.iter().filter_map(move |device| {
            let duration = device.phases[phase];
            wanted(device, duration).then_some(duration.us)
        })
    }

    /// A graph with everything that a graph can have.
    pub fn random(dice: &mut Dice) -> Graph {
        let count = dice.between(2, 60) as usize;
        let permitted = dice.fraction();
        let mut graph = Graph::default();
        for index in 0..count {
            graph.devices.push(random_device(dice, index, permitted));
        }
        for _ in 0..dice.between(0, count as u64) {
            graph.add_random_link(dice);
        }
        graph
    }

    fn add_random_link(&mut self, dice: &mut Dice) {
        let last = self.devices.len() as u64 - 1;
        let supplier = dice.between(0, last) as usize;
        let consumer = dice.between(0, last) as usize;
        let kind = *dice.pick(&[
            LinkKind::Stateless,
            LinkKind::Runtime,
            LinkKind::Managed,
            LinkKind::SyncState,
        ]);
        let taken = |link: &Link| link.supplier == supplier && link.consumer == consumer;
        if supplier == consumer || self.links.iter().any(taken) {
            return;
        }
        if kind == LinkKind::SyncState {
            // The driver core takes these only for devices without a driver.
            if self.devices[consumer].unbound {
                self.links.push(Link {
                    supplier,
                    consumer,
                    kind,
                });
            }
            return;
        }
        // It refuses a link that closes a circle, counting dormant links, too.
        if !self.depends(supplier, consumer) {
            self.links.push(Link {
                supplier,
                consumer,
                kind,
            });
        }
    }

    /// Whether `device` depends on `on`, as the driver core sees it.
    fn depends(&self, device: usize, on: usize) -> bool {
        if device == on {
            return true;
        }
        let parent = self.devices[device].parent;
        parent.is_some_and(|parent| self.depends(parent, on))
            || self.links.iter().any(|link| {
                link.consumer == device
                    && link.kind != LinkKind::SyncState
                    && self.depends(link.supplier, on)
            })
    }
}

fn random_device(dice: &mut Dice, index: usize, permitted: f64) -> Device {
    let mut device = Device {
        permitted: dice.chance(permitted),
        quiet: dice.chance(0.2),
        unbound: dice.chance(0.15),
        ..Device::default()
    };
    if index > 0 && dice.chance(0.7) {
        let nearest = dice.between(1, 4.min(index as u64)) as usize;
        device.parent = Some(index - nearest);
    }
    device.direct = dice.chance(0.1);
    if dice.chance(0.1) {
        device.bus = Some(dice.between(0, 2) as usize);
    }
    for duration in &mut device.phases {
        duration.us = match dice.between(0, 9) {
            0 => dice.between(1000, 3000),
            1 | 2 => dice.between(50, 500),
            _ => 0,
        };
        duration.busy = dice.chance(0.3);
    }
    device
}

#[cfg(test)]
mod tests;
