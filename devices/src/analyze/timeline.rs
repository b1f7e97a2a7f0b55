//! A recording as timeline events, for `report`: passes and steps outside, callbacks within.

use std::collections::{BTreeSet, HashMap};

use dormouse_report::{Clock, Event, Kind};

use super::title;
use crate::model::{Cycle, DevicePhase, Direction, Recording};
use crate::simulate::{Problem, bound};

/// The events of these cycles (numbers from 1), on the kernel's clock, in its lane. Callbacks on
/// a critical path are marked.
pub fn events(recording: &Recording, numbers: &[usize], cpus: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for &number in numbers {
        if let Some(cycle) = number.checked_sub(1).and_then(|n| recording.cycles.get(n)) {
            cycle_events(&mut events, recording, cycle, number, cpus);
        }
    }
    // Of the same instant: ends before begins, so that what follows does not nest.
    events.sort_by_key(|event| (event.t_ns, event.kind != Kind::End));
    events
}

fn cycle_events(
    events: &mut Vec<Event>,
    recording: &Recording,
    cycle: &Cycle,
    number: usize,
    cpus: usize,
) {
    let turn_ns = turn(cycle);
    let mut push = |begin_ns: u64, end_ns: u64, event: Event| {
        let event = event.with("source", "kernel").with("cycle", number as u64);
        let mut end = Event::new(
            // A callback that is shorter than the clock's resolution is still shown.
            end_ns.max(begin_ns + 1),
            event.clock,
            event.phase.clone(),
            event.name.clone(),
            Kind::End,
        );
        end.detail.clone_from(&event.detail);
        events.push(Event {
            t_ns: begin_ns,
            ..event
        });
        events.push(end);
    };
    for span in &cycle.phases {
        let name = match span.name.as_str() {
            "CPU_OFF" | "CPU_ON" => format!("{} {}", span.name, span.value),
            name => name.to_owned(),
        };
        let way = if span.begin_ns < turn_ns {
            "suspend"
        } else {
            "resume"
        };
        let event = Event::new(0, Clock::Guest, way, name, Kind::Begin);
        push(span.begin_ns, span.end_ns, event);
    }
    let problems: HashMap<DevicePhase, Problem> = DevicePhase::SCHEDULED
        .into_iter()
        .map(|phase| (phase, Problem::of(recording, cycle, phase)))
        .collect();
    let critical: HashMap<DevicePhase, BTreeSet<usize>> = problems
        .iter()
        .map(|(&phase, problem)| {
            let path = bound(problem, cpus).critical_path;
            (phase, path.into_iter().collect())
        })
        .collect();
    let names = unique_names(recording);
    for callback in &cycle.callbacks {
        let way = match (callback.phase, callback.phase.direction()) {
            (DevicePhase::Prepare, _) | (_, Direction::Suspend)
                if callback.phase != DevicePhase::Complete =>
            {
                "suspend"
            }
            _ => "resume",
        };
        let name = names[callback.device].clone();
        let mut event = Event::new(0, Clock::Guest, way, name, Kind::Begin)
            .with("pass", callback.phase.as_str())
            .with("device", title(recording, callback.device))
            .with("thread", callback.thread);
        if !callback.level.is_empty() {
            event = event.with("callback_of", callback.level.clone());
        }
        if let Some(busy_ns) = callback.busy_ns {
            event = event.with("on_cpu_ns", busy_ns);
        }
        if callback.error != 0 {
            event = event.with("error", callback.error);
        }
        let is_critical = |path: &BTreeSet<usize>| path.contains(&callback.device);
        if critical.get(&callback.phase).is_some_and(is_critical) {
            event = event.with("critical_path", true);
        }
        let before = problems
            .get(&callback.phase)
            .map_or_else(BTreeSet::new, |problem| awaited(problem, callback.device));
        if !before.is_empty() {
            let before: Vec<&str> = before.iter().map(|&d| names[d].as_str()).collect();
            event = event.with("after", before);
        }
        push(callback.begin_ns, callback.end_ns, event);
    }
}

/// The devices with a callback for which a device waits in this phase, also through devices that
/// have none.
fn awaited(problem: &Problem, device: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::from([device]);
    let mut open = vec![device];
    while let Some(next) = open.pop() {
        for &before in problem.before(next) {
            let before = before as usize;
            if !seen.insert(before) {
                continue;
            }
            if problem.jobs[before].has_callback {
                found.insert(before);
            } else {
                open.push(before);
            }
        }
    }
    found
}

/// When the way down ended: where the machine slept, or where the first resume began.
fn turn(cycle: &Cycle) -> u64 {
    let up = [
        DevicePhase::ResumeNoirq,
        DevicePhase::ResumeEarly,
        DevicePhase::Resume,
        DevicePhase::Complete,
    ];
    let passes = up.into_iter().filter_map(|phase| cycle.device_phase(phase));
    let steps = ["syscore_resume", "thaw_processes"];
    let steps = steps.into_iter().filter_map(|name| cycle.phase(name));
    passes
        .chain(steps)
        .map(|span| span.begin_ns)
        .min()
        .unwrap_or(u64::MAX)
}

/// A name for each device that no other has: begins and ends find each other by it.
fn unique_names(recording: &Recording) -> Vec<String> {
    let devices = &recording.graph.devices;
    let mut times: HashMap<&str, usize> = HashMap::new();
    for device in devices {
        *times.entry(device.name.as_str()).or_default() += 1;
    }
    let mut used: HashMap<String, usize> = HashMap::new();
    devices
        .iter()
        .map(|device| {
            let name = match device.parent {
                Some(parent) if times[device.name.as_str()] > 1 => {
                    format!("{}/{}", devices[parent].name, device.name)
                }
                _ => device.name.clone(),
            };
            let count = used.entry(name.clone()).or_default();
            *count += 1;
            match *count {
                1 => name,
                more => format!("{name} #{more}"),
            }
        })
        .collect()
}
