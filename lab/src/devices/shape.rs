//! Device graphs in the shape of real machines, for timing.
//!
//! The phone's totals are those of Kannan 2024: 126 ms down and 82 ms up, one device after the
//! other. Most devices take microseconds or have no callbacks, a few take milliseconds on buses
//! that they share.

use super::graph::{Device, Duration, Graph, Link, LinkKind};
use crate::stress::Dice;

/// Indices of the phases that get the durations; the others stay quick.
const SUSPEND: usize = 0;
const RESUME: usize = 5;

/// A machine whose devices are imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MachineShape {
    /// 600 devices, most of them quick, 16 slow ones on six slow buses
    Phone,
    /// 300 devices: a deep USB tree, a disk, a display, a sound card
    Laptop,
    /// 1500 devices: many network and disk controllers side by side
    Server,
    /// 600 devices, none of them slow
    Quick,
    /// Up to 60 devices at random (`--seed`), everything a graph can have
    Random,
}

impl MachineShape {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            MachineShape::Phone => "phone",
            MachineShape::Laptop => "laptop",
            MachineShape::Server => "server",
            MachineShape::Quick => "quick",
            MachineShape::Random => "random",
        }
    }

    /// The graph; the same each time. The seed is for [`MachineShape::Random`].
    pub fn graph(self, seed: u64) -> Graph {
        match self {
            MachineShape::Phone => phone(),
            MachineShape::Laptop => laptop(),
            MachineShape::Server => server(),
            MachineShape::Quick => quick(),
            MachineShape::Random => Graph::random(&mut Dice::new(seed, 0)),
        }
    }
}

/// Adds devices and remembers where they are.
struct Builder {
    graph: Graph,
    dice: Dice,
}

impl Builder {
    fn new(seed: u64) -> Builder {
        Builder {
            graph: Graph::default(),
            dice: Dice::new(seed, 0),
        }
    }

    fn add(&mut self, parent: Option<usize>, down_us: u64, up_us: u64) -> usize {
        let mut device = Device {
            parent,
            ..Device::default()
        };
        device.phases[SUSPEND].us = down_us;
        device.phases[RESUME].us = up_us;
        self.graph.devices.push(device);
        self.graph.devices.len() - 1
    }

    fn last(&mut self) -> &mut Device {
        self.graph.devices.last_mut().expect("a device was added")
    }

    /// A device without callbacks, or with ones that keep a processor for some microseconds.
    fn add_quick(&mut self, parent: Option<usize>) -> usize {
        let us = self.dice.between(5, 40);
        let index = self.add(parent, us, us);
        let is_quiet = self.dice.chance(0.4);
        let device = self.last();
        device.quiet = is_quiet;
        for phase in [SUSPEND, RESUME] {
            device.phases[phase] = Duration {
                us: if is_quiet { 0 } else { us },
                busy: true,
            };
        }
        index
    }

    fn link(&mut self, supplier: usize, consumer: usize) {
        self.graph.links.push(Link {
            supplier,
            consumer,
            kind: LinkKind::Managed,
        });
    }
}

fn phone() -> Graph {
    let mut builder = Builder::new(1);
    let soc = builder.add_quick(None);
    let clocks: Vec<usize> = (0..12).map(|_| builder.add_quick(Some(soc))).collect();
    let buses: Vec<usize> = (0..6).map(|_| builder.add_quick(Some(soc))).collect();
    // Together 117 ms down and 73 ms up; quick ones make up the rest.
    let slow_ms = [
        (14, 9),
        (5, 3),
        (6, 4),
        (12, 8),
        (5, 4),
        (5, 3),
        (11, 6),
        (6, 4),
        (8, 5),
        (5, 4),
        (9, 5),
        (7, 4),
        (5, 3),
        (6, 4),
        (8, 4),
        (5, 3),
    ];
    for (number, (down_ms, up_ms)) in slow_ms.into_iter().enumerate() {
        let bus = number % buses.len();
        let device = builder.add(Some(buses[bus]), down_ms * 1000, up_ms * 1000);
        builder.last().bus = Some(bus);
        builder.link(clocks[number % clocks.len()], device);
    }
    while builder.graph.devices.len() < 600 {
        let parent = match builder.dice.between(0, 3) {
            0 => soc,
            1 => *builder.dice.pick(&buses),
            _ => {
                let last = builder.graph.devices.len() as u64 - 1;
                builder.dice.between(0, last) as usize
            }
        };
        let device = builder.add_quick(Some(parent));
        let supplier = *builder.dice.pick(&clocks);
        if builder.dice.chance(0.4) {
            builder.link(supplier, device);
        }
    }
    builder.graph
}

fn laptop() -> Graph {
    let mut builder = Builder::new(2);
    let root = builder.add_quick(None);
    // A controller, a hub behind it, a hub behind that one, and what is plugged in there.
    let controller = builder.add(Some(root), 4_000, 6_000);
    let hub = builder.add(Some(controller), 5_000, 12_000);
    let inner = builder.add(Some(hub), 5_000, 12_000);
    for _ in 0..3 {
        builder.add(Some(inner), 6_000, 15_000);
    }
    let display = builder.add(Some(root), 18_000, 25_000);
    builder.last().phases[SUSPEND].busy = true;
    builder.last().phases[RESUME].busy = true;
    let sound = builder.add(Some(root), 12_000, 9_000);
    builder.link(display, sound);
    let disk = builder.add(Some(root), 10_000, 14_000);
    builder.add_quick(Some(disk));
    for _ in 0..2 {
        builder.add(Some(root), 7_000, 11_000);
    }
    while builder.graph.devices.len() < 300 {
        let last = builder.graph.devices.len() as u64 - 1;
        let parent = builder.dice.between(0, last) as usize;
        builder.add_quick(Some(parent));
    }
    builder.graph
}

fn server() -> Graph {
    let mut builder = Builder::new(3);
    let root = builder.add_quick(None);
    for socket in 0..2 {
        let bridge = builder.add_quick(Some(root));
        for _ in 0..5 {
            builder.add(Some(bridge), 8_000, 12_000);
        }
        for _ in 0..6 {
            let controller = builder.add(Some(bridge), 4_000, 5_000);
            builder.add_quick(Some(controller));
        }
        while builder.graph.devices.len() < 750 * (socket + 1) {
            let last = builder.graph.devices.len() as u64 - 1;
            let parent = builder.dice.between(bridge as u64, last) as usize;
            builder.add_quick(Some(parent));
        }
    }
    builder.graph
}

/// What is left of the phone without its slow devices: what a work item each costs.
fn quick() -> Graph {
    let mut builder = Builder::new(4);
    let root = builder.add_quick(None);
    let clocks: Vec<usize> = (0..12).map(|_| builder.add_quick(Some(root))).collect();
    while builder.graph.devices.len() < 600 {
        let last = builder.graph.devices.len() as u64 - 1;
        let parent = match builder.dice.between(0, 1) {
            0 => root,
            _ => builder.dice.between(0, last) as usize,
        };
        let device = builder.add_quick(Some(parent));
        let supplier = *builder.dice.pick(&clocks);
        if builder.dice.chance(0.4) && supplier != parent {
            builder.link(supplier, device);
        }
    }
    builder.graph
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_phone_takes_what_the_talk_measured_one_device_after_the_other() {
        let graph = MachineShape::Phone.graph(0);
        assert_eq!(graph.devices.len(), 600);
        let (down, up) = (graph.sum_us(SUSPEND), graph.sum_us(RESUME));
        assert!((120_000..=132_000).contains(&down), "{down}");
        assert!((78_000..=86_000).contains(&up), "{up}");
    }

    #[test]
    fn a_shape_is_the_same_each_time() {
        for shape in MachineShape::value_variants() {
            assert_eq!(shape.graph(3).text(true), shape.graph(3).text(true));
            assert!(shape.graph(3).lower_bound_us(SUSPEND, 2) > 0);
        }
    }
}
