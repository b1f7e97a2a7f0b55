//! A recorded cycle under several schedules: the table that `dormouse devices simulate` prints.

use serde::Serialize;

use super::flags::{Permission, permissions, worst_ns};
use super::{Bound, Problem, Schedule, Setting, bound, simulate};
use crate::model::{Cycle, DevicePhase, Direction, Recording};

/// A schedule with a rule for permissions, under a name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Variant {
    /// The name of the schedule.
    pub name: &'static str,
    /// The order of the devices.
    pub schedule: Schedule,
    /// The permissions to be async.
    pub permission: Permission,
}

/// The variants that are compared; `threshold_ns` is for the threshold rule.
pub fn variants(threshold_ns: u64, has_permissions: bool) -> Vec<Variant> {
    let variant = |name, schedule, permission| Variant {
        name,
        schedule,
        permission,
    };
    let mut all = vec![
        variant("list", Schedule::List, Permission::None),
        variant("async-all", Schedule::WorkItems, Permission::All),
        variant(
            "threshold",
            Schedule::WorkItems,
            Permission::Threshold(threshold_ns),
        ),
        variant("leaves-first", Schedule::LeavesFirst, Permission::All),
        variant("graph", Schedule::Graph, Permission::All),
    ];
    if has_permissions {
        // Between the list and what would be if all were async: what is set now.
        let now = [
            ("async-as-set", Schedule::WorkItems),
            ("leaves-first-as-set", Schedule::LeavesFirst),
            ("graph-as-set", Schedule::Graph),
        ];
        all.extend(now.map(|(name, schedule)| variant(name, schedule, Permission::AsRecorded)));
    }
    all
}

/// What one variant would take in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The name of the schedule.
    pub name: &'static str,
    /// Duration of the whole phase, ns.
    pub makespan_ns: u64,
    /// Of the makespan of list order (below 1 is faster).
    pub ratio_to_list: f64,
    /// Of the lower bound (1 is the best that any schedule could do).
    pub ratio_to_bound: f64,
    /// CPU time of scheduling, ns.
    pub overhead_ns: u64,
    /// Work items queued.
    pub items: u64,
    /// Threads woken.
    pub wakeups: u64,
    /// Devices that may be async.
    pub async_devices: usize,
}

/// One phase under all variants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseTable {
    /// The pass.
    pub phase: DevicePhase,
    /// As recorded, where the recording has the phase's begin and end.
    pub recorded_ns: Option<u64>,
    /// Devices with a callback in this phase.
    pub callbacks: usize,
    /// All callbacks, one after the other.
    pub sum_ns: u64,
    /// The lower bound.
    pub bound: Bound,
    /// The predictions, one per schedule.
    pub predictions: Vec<Prediction>,
}

/// All phases of a direction together: the kernel passes through them one after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DirectionTable {
    /// Suspend or resume.
    pub direction: Direction,
    /// The recorded duration, ns.
    pub recorded_ns: Option<u64>,
    /// The sum of all callbacks, ns.
    pub sum_ns: u64,
    /// The lower bound, ns.
    pub bound_ns: u64,
    /// The predictions, one per schedule.
    pub predictions: Vec<Prediction>,
}

/// What was simulated, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Extent {
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of devices.
    pub devices: usize,
    /// Number of dependencies.
    pub edges: usize,
    /// Links that would have closed a cycle.
    pub refused_links: usize,
}

/// The whole table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What it is of.
    #[serde(flatten)]
    pub extent: Extent,
    /// The parameters of the simulation.
    pub setting: Setting,
    /// The passes.
    pub phases: Vec<PhaseTable>,
    /// Suspend and resume as a whole.
    pub totals: Vec<DirectionTable>,
}

fn ratio(value: u64, of: u64) -> f64 {
    if of == 0 {
        1.0
    } else {
        value as f64 / of as f64
    }
}

/// Simulates every phase of a cycle that can be scheduled under each variant. The schedule in
/// `setting` is replaced by the variant's.
pub fn table(
    recording: &Recording,
    cycle: &Cycle,
    variants: &[Variant],
    setting: &Setting,
) -> Table {
    let problems: Vec<Problem> = DevicePhase::SCHEDULED
        .into_iter()
        .map(|phase| Problem::of(recording, cycle, phase))
        .collect();
    let worst = worst_ns(&problems);
    let edges = &problems[0].edges;
    let flags: Vec<Vec<bool>> = variants
        .iter()
        .map(|variant| permissions(variant.permission, recording, edges, &worst))
        .collect();
    let phases: Vec<PhaseTable> = DevicePhase::SCHEDULED
        .into_iter()
        .zip(&problems)
        .map(|(phase, problem)| {
            let span = cycle.device_phase(phase);
            PhaseTable {
                phase,
                recorded_ns: span.map(crate::model::PhaseSpan::duration_ns),
                callbacks: problem.jobs.iter().filter(|job| job.has_callback).count(),
                sum_ns: problem.sum_ns(),
                bound: bound(problem, setting.cpus),
                predictions: predict(problem, variants, &flags, setting),
            }
        })
        .collect();
    let totals = [Direction::Suspend, Direction::Resume]
        .into_iter()
        .map(|direction| total(direction, &phases))
        .collect();
    Table {
        extent: Extent {
            cpus: setting.cpus,
            devices: recording.graph.devices.len(),
            edges: edges.iter().count(),
            refused_links: edges.refused.len(),
        },
        setting: *setting,
        phases,
        totals,
    }
}

fn predict(
    problem: &Problem,
    variants: &[Variant],
    flags: &[Vec<bool>],
    setting: &Setting,
) -> Vec<Prediction> {
    let with = |schedule| Setting {
        schedule,
        ..*setting
    };
    let none = vec![false; problem.jobs.len()];
    let list_ns = simulate(problem, &none, &with(Schedule::List)).makespan_ns;
    let bound_ns = bound(problem, setting.cpus).ns();
    variants
        .iter()
        .zip(flags)
        .map(|(variant, flags)| {
            let outcome = simulate(problem, flags, &with(variant.schedule));
            Prediction {
                name: variant.name,
                makespan_ns: outcome.makespan_ns,
                ratio_to_list: ratio(outcome.makespan_ns, list_ns),
                ratio_to_bound: ratio(outcome.makespan_ns, bound_ns),
                overhead_ns: outcome.overhead_ns,
                items: outcome.items,
                wakeups: outcome.wakeups,
                async_devices: flags.iter().filter(|&&flag| flag).count(),
            }
        })
        .collect()
}

fn total(direction: Direction, phases: &[PhaseTable]) -> DirectionTable {
    let parts: Vec<&PhaseTable> = phases
        .iter()
        .filter(|table| table.phase.direction() == direction)
        .collect();
    let recorded: Vec<u64> = parts.iter().filter_map(|part| part.recorded_ns).collect();
    let bound_ns = parts.iter().map(|part| part.bound.ns()).sum();
    let count = parts.first().map_or(0, |part| part.predictions.len());
    let list_ns: f64 = parts
        .iter()
        .filter_map(|part| part.predictions.first())
        .map(|first| first.makespan_ns as f64 / first.ratio_to_list)
        .sum();
    let predictions = (0..count)
        .map(|variant| {
            let of = |value: fn(&Prediction) -> u64| -> u64 {
                parts.iter().map(|p| value(&p.predictions[variant])).sum()
            };
            let first = &parts[0].predictions[variant];
            let makespan_ns = of(|p| p.makespan_ns);
            Prediction {
                name: first.name,
                makespan_ns,
                ratio_to_list: ratio(makespan_ns, list_ns.round() as u64),
                ratio_to_bound: ratio(makespan_ns, bound_ns),
                overhead_ns: of(|p| p.overhead_ns),
                items: of(|p| p.items),
                wakeups: of(|p| p.wakeups),
                async_devices: first.async_devices,
            }
        })
        .collect();
    DirectionTable {
        direction,
        recorded_ns: (!recorded.is_empty()).then(|| recorded.iter().sum()),
        sum_ns: parts.iter().map(|part| part.sum_ns).sum(),
        bound_ns,
        predictions,
    }
}
