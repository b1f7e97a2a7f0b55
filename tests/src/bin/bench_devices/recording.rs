//! A measured cycle in list order, as the simulator reads it.

use dormouse_devices::model::{Device, Graph, Link, LinkStatus, Recording};
use dormouse_devices::read::trace::read_with_graph;
use dormouse_lab::devices::{self as lab, LinkKind, Mode};

use crate::cases::Measured;

/// The trace of list order, with the device links that a trace does not have.
pub fn recording(measured: &Measured) -> Result<Recording, String> {
    let read = read_with_graph(&measured.traces[&Mode::List], graph(&measured.graph));
    match read.damages.first() {
        Some(damage) => Err(format!("line {}: {}", damage.line, damage.what)),
        None => Ok(read.recording),
    }
}

/// The lab's graph as a recording has it.
fn graph(lab: &lab::Graph) -> Graph {
    let devices = lab
        .devices
        .iter()
        .enumerate()
        .map(|(index, device)| Device {
            name: lab::device_name(index),
            parent: device.parent,
            bus: device.bus.and_then(|bus| u32::try_from(bus).ok()),
            ..Device::default()
        });
    let links = lab.links.iter().map(|link| Link {
        supplier: link.supplier,
        consumer: link.consumer,
        status: match link.kind {
            LinkKind::Managed if lab.devices[link.supplier].unbound => LinkStatus::Dormant,
            LinkKind::Managed => LinkStatus::Active,
            _ => LinkStatus::Untracked,
        },
        sync_state_only: link.kind == LinkKind::SyncState,
        ..Link::default()
    });
    Graph {
        devices: devices.collect(),
        links: links.collect(),
    }
}
