//! What no schedule can beat on the measured graphs, without and with the handling of devices.

use dormouse_devices::model::{DevicePhase, Direction};
use dormouse_devices::simulate::{Job, Problem, bound, bound_with_handling};
use dormouse_lab::devices::{self as lab, PHASES};

use crate::cases::Measured;
use crate::overheads::{Costs, of_case};
use crate::recording::recording;

/// The lower bounds of one case, all phases of a direction together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    pub down_ms: f64,
    pub up_ms: f64,
    /// Both ways, with the handling of each device in each phase.
    pub handled_ms: f64,
}

impl Bounds {
    /// Both ways together.
    pub fn sum_ms(&self) -> f64 {
        self.down_ms + self.up_ms
    }
}

/// The bounds of each case, in the order of the cases.
pub fn all(measured: &[Measured], costs: &Costs) -> Result<Vec<Bounds>, String> {
    measured.iter().map(|one| of(one, costs)).collect()
}

fn of(measured: &Measured, costs: &Costs) -> Result<Bounds, String> {
    let overheads = of_case(costs, &measured.case)?;
    let mut recording = recording(measured)?;
    recording.overheads = Some(overheads);
    let cycle = recording.cycles.last().ok_or("the trace has no suspend")?;
    let cpus = measured.times.cpus as usize;
    let all_devices = measured.times.devices + measured.own_devices;
    let others = all_devices.saturating_sub(recording.graph.devices.len());
    let mut bounds = Bounds::default();
    for phase in DevicePhase::SCHEDULED {
        let mut problem = Problem::of(&recording, cycle, phase);
        limit(&mut problem.jobs, &measured.graph, phase)?;
        let ms = bound(&problem, cpus).ns() as f64 / 1e6;
        match phase.direction() {
            Direction::Suspend => bounds.down_ms += ms,
            Direction::Resume => bounds.up_ms += ms,
        }
        let handled_ns = bound_with_handling(&problem, cpus, overheads.per_device_ns, others);
        bounds.handled_ms += handled_ns as f64 / 1e6;
    }
    Ok(bounds)
}

/// Lowers each recorded time to what the device was configured to take: the rest is the kernel's.
/// Devices of the machine itself take nothing.
fn limit(jobs: &mut [Job], graph: &lab::Graph, phase: DevicePhase) -> Result<(), String> {
    let name = phase.to_string();
    let index = PHASES.iter().position(|&known| known == name);
    let index = index.ok_or_else(|| format!("{name} is no phase of the lab"))?;
    for (device, job) in jobs.iter_mut().enumerate() {
        let duration = graph.devices.get(device).map(|device| device.phases[index]);
        let (us, busy) = duration.map_or((0, false), |duration| (duration.us, duration.busy));
        let max_ns = us * 1_000;
        job.busy_ns = if busy { job.busy_ns.min(max_ns) } else { 0 };
        job.wait_ns = if busy { 0 } else { job.wait_ns.min(max_ns) };
    }
    Ok(())
}
