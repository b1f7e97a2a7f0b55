//! The simulator's prediction for a cycle that was recorded in list order, beside the measurement.

use dormouse_devices::model::{Device, Direction, Graph, Link, LinkStatus, Recording};
use dormouse_devices::read::trace::read_with_graph;
use dormouse_devices::simulate::table::{Table, table, variants};
use dormouse_devices::simulate::{Schedule, Setting};
use dormouse_lab::devices::{self as lab, LinkKind, Mode};

use crate::cases::{Kernel, Measured};
use crate::overheads::Costs;

/// Modes of the lab and the simulator's names for them: stock async starts with leaves since 6.17.
pub fn modes(kernel: Kernel) -> [(Mode, &'static str); 3] {
    let stock = match kernel {
        Kernel::Series => "async-all",
        Kernel::Newest => "leaves-first",
    };
    [
        (Mode::List, "list"),
        (Mode::Async, stock),
        (Mode::Graph, "graph"),
    ]
}

/// One graph in one of the [`modes`], both ways together.
#[derive(Debug, Clone)]
pub struct Prediction {
    pub case: String,
    pub kernel: String,
    pub predicted_ms: f64,
    pub measured_ms: f64,
}

impl Prediction {
    /// Of what was measured; below 0: predicted too short.
    pub fn error(&self) -> f64 {
        self.predicted_ms / self.measured_ms - 1.0
    }
}

/// Predicts all, and lowers the bounds to what the devices that did run can explain.
pub fn all(measured: &mut [Measured], costs: &Costs) -> Result<Vec<Prediction>, String> {
    let mut all = Vec::new();
    for one in measured {
        let table = simulated(one, costs)?;
        for total in &table.totals {
            let bound_ms = match total.direction {
                Direction::Suspend => &mut one.times.bound_down_ms,
                Direction::Resume => &mut one.times.bound_up_ms,
            };
            *bound_ms = bound_ms.min(total.bound_ns as f64 / 1e6);
        }
        for (mode, variant) in modes(one.case.kernel) {
            let predicted_ns: u64 = table
                .totals
                .iter()
                .flat_map(|total| &total.predictions)
                .filter(|prediction| prediction.name == variant)
                .map(|prediction| prediction.makespan_ns)
                .sum();
            all.push(Prediction {
                case: one.case.name(),
                kernel: one.version(),
                predicted_ms: predicted_ns as f64 / 1e6,
                measured_ms: one.mode(mode)?.sum_median_ms,
            });
        }
    }
    Ok(all)
}

fn simulated(measured: &Measured, costs: &Costs) -> Result<Table, String> {
    let mut setting = Setting::new(Schedule::List, measured.times.cpus as usize);
    setting.one_clock = true;
    setting.overheads = *costs
        .get(&measured.case.processor())
        .ok_or("the quick shape was not measured on this processor")?;
    let mut recording = recording(measured)?;
    recording.overheads = Some(setting.overheads);
    let cycle = recording.cycles.last().ok_or("the trace has no suspend")?;
    Ok(table(
        &recording,
        cycle,
        &variants(setting.wake_threshold_ns, false),
        &setting,
    ))
}

/// The trace of list order, with the device links that a trace does not have.
fn recording(measured: &Measured) -> Result<Recording, String> {
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
