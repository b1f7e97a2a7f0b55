//! Overhead of scheduling in the emulated machine, measured where devices do nothing.
//!
//! In some phases no device of the quick shape has anything to do. List order then only handles
//! devices, and the stock kernel with all devices async handles devices and work items. One clock
//! counts the instructions of both processors in this machine, so the duration of a phase is the
//! work of both: the difference to list order is the overhead of work items. Callbacks that do
//! nothing take no other time than the overhead of tracing.
//!
//! The time from a thread's wakeup until an idle processor runs it comes from the traces of all
//! graphs that are not held out: the quick shape has only a few.

use std::collections::{BTreeMap, HashMap};

use dormouse_devices::model::{DevicePhase, Graph};
use dormouse_devices::read::ftrace::nanoseconds;
use dormouse_devices::read::trace::read_with_graph;
use dormouse_devices::simulate::Overheads;
use dormouse_lab::devices::Mode;
use dormouse_report::stats::median;

use crate::cases::{Case, Kernel, Measured};

/// Phases in which the shapes' devices do nothing.
const EMPTY: [&str; 4] = [
    "suspend_late",
    "suspend_noirq",
    "resume_noirq",
    "resume_early",
];

/// By nanoseconds an instruction, on each kernel.
pub type Costs = BTreeMap<(Kernel, u32), Overheads>;

/// Costs on each processor that was measured.
pub fn measured(all: &[Measured]) -> Result<Costs, String> {
    let quick = all.iter().filter(|measured| measured.case.shape == "quick");
    quick
        .map(|measured| {
            let processor = measured.case.processor();
            // The quick graph has too few for a median.
            let waits = all
                .iter()
                .filter(|other| other.case.processor() == processor && !other.case.is_held_out())
                .flat_map(|other| other.traces.values())
                .flat_map(|trace| wakings(trace));
            let latency_ns = median(waits).ok_or("no trace has a waking")?;
            Ok((processor, of(measured, latency_ns)?))
        })
        .collect()
}

/// The costs on the processor of a case.
pub fn of_case(costs: &Costs, case: &Case) -> Result<Overheads, String> {
    let found = costs.get(&case.processor()).copied();
    found.ok_or_else(|| "the quick shape was not measured on this processor".to_owned())
}

fn of(measured: &Measured, latency_ns: f64) -> Result<Overheads, String> {
    let devices = (measured.times.devices + measured.own_devices) as f64;
    let empty_ns = |mode: Mode| -> Result<f64, String> {
        let times = measured.mode(mode)?;
        let ms: f64 = EMPTY.iter().map(|phase| times.phases_ms[*phase]).sum();
        Ok(ms * 1e6 / EMPTY.len() as f64 / devices)
    };
    let per_device_ns = empty_ns(Mode::List)?;
    let item_ns = empty_ns(Mode::Async)?;
    let trace_ns = median(empty_callbacks(&measured.traces[&Mode::List]));
    let trace_ns = trace_ns.ok_or("no trace has a callback that does nothing")?;
    Ok(Overheads {
        per_device_ns: per_device_ns.round() as u64,
        queue_ns: (item_ns - per_device_ns).max(0.0).round() as u64,
        wake_ns: 0,
        latency_ns: latency_ns.round() as u64,
        switch_ns: 0,
        trace_ns: trace_ns.round() as u64,
    })
}

/// What callbacks take in phases in which no device does anything.
fn empty_callbacks(trace: &str) -> Vec<f64> {
    let recording = read_with_graph(trace, Graph::default()).recording;
    let is_empty = |phase: DevicePhase| EMPTY.contains(&phase.to_string().as_str());
    let cycles = recording.cycles.iter().flat_map(|cycle| &cycle.callbacks);
    cycles
        .filter(|callback| is_empty(callback.phase))
        .map(|callback| callback.duration_ns() as f64)
        .collect()
}

/// Nanoseconds from each waking of a worker until an idle processor runs it.
fn wakings(trace: &str) -> Vec<f64> {
    let mut woken: HashMap<&str, u64> = HashMap::new();
    let mut waits = Vec::new();
    for line in trace.lines() {
        let after = |word: &str| {
            let rest = line.split_once(word)?.1;
            rest.split_whitespace().next()
        };
        let Some(now_ns) = time_ns(line) else {
            continue;
        };
        if line.contains(": sched_waking: ") {
            let is_worker = line.contains("comm=kworker/") || line.contains("comm=pm_graph/");
            if let Some(thread) = after(" pid=").filter(|_| is_worker) {
                woken.insert(thread, now_ns);
            }
        } else if line.contains(": sched_switch: ")
            && let Some(begun_ns) = after(" next_pid=").and_then(|thread| woken.remove(thread))
            && after(" prev_pid=") == Some("0")
        {
            waits.push(now_ns.saturating_sub(begun_ns) as f64);
        }
    }
    waits
}

/// The time stamp: the last word before the event's name.
fn time_ns(line: &str) -> Option<u64> {
    let head = line.split_once(": ")?.0;
    nanoseconds(head.split_whitespace().last()?)
}
