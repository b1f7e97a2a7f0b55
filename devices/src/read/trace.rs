//! A trace's events to cycles: passes, callbacks with begin and end, idle time of the CPUs.

use std::collections::HashMap;

use super::ftrace::{Line, TraceEvent, What, parse_line};
use super::names::{Description, Names};
use super::switches::Switches;
use super::{Damage, Read};
use crate::model::{
    Callback, Cycle, DevicePhase, Direction, Freezing, Graph, IdleTime, PhaseSpan, Recording,
};

/// The kernel's name of the step that freezes processes.
const FREEZING: &str = "freeze_processes";
/// How many of those that froze last are kept.
const MAX_FREEZING: usize = 8;

/// Reads a whole trace without a device graph.
pub fn read(text: &str) -> Read {
    read_with_graph(text, Graph::default())
}

/// Reads a whole trace; finds the devices in the machine's graph.
pub fn read_with_graph(text: &str, graph: Graph) -> Read {
    let (mut events, mut damages, mut lost) = (Vec::new(), Vec::new(), 0u64);
    let mut cpus = None;
    for (index, line) in text.lines().enumerate() {
        cpus = cpus.or_else(|| cpus_of(line));
        match parse_line(line, index + 1) {
            Line::Event(event) => events.push(event),
            Line::Lost(count) => lost = lost.saturating_add(count),
            Line::Other => {}
            Line::Damaged(what) => damages.push(Damage {
                line: index + 1,
                what,
            }),
        }
    }
    // Lines of several CPUs may stand in any order; those of the same time stay as they are.
    events.sort_by_key(|event| event.t_ns);
    let mut assembly = Assembly::new(graph);
    for event in &events {
        assembly.add(event);
    }
    let mut recording = assembly.finish(&mut damages);
    recording.machine.cpus = cpus;
    if lost > 0 {
        recording.notes.push(format!(
            "the ring buffer lost {lost} events; their information is missing (record \
             with a larger buffer)"
        ));
    }
    damages.sort_by_key(|damage| damage.line);
    Read { recording, damages }
}

/// CPUs of the machine: `#P:4` in the head of ftrace's text, `cpus=4` in that of trace-cmd's.
fn cpus_of(line: &str) -> Option<u32> {
    let number = match line.strip_prefix("cpus=") {
        Some(number) => number,
        None if line.starts_with('#') => line.split_once("#P:")?.1,
        None => return None,
    };
    number.trim().parse().ok().filter(|&cpus| cpus > 0)
}

/// The devices of the module dormouse_dpm, whose callbacks run a whole phase: its time is that of the
/// devices that run in it.
fn is_conductor(device: &str) -> bool {
    matches!(device, "dormouse-dpm-first" | "dormouse-dpm-last")
}

/// A callback without its end.
#[derive(Clone, Debug)]
struct Open<'a> {
    begin_ns: u64,
    line: usize,
    driver: &'a str,
    name: &'a str,
    device: usize,
    phase: DevicePhase,
    level: &'a str,
}

struct Assembly<'a> {
    names: Names,
    cycles: Vec<Cycle>,
    current: Option<Cycle>,
    /// Passes without their end: name, number, begin, line, thread.
    open_phases: Vec<(&'a str, u64, u64, usize, u32)>,
    /// Threads that were seen to leave a CPU while processes are frozen: when, and its name.
    freezing: HashMap<u32, (u64, &'a str)>,
    open: HashMap<u32, Vec<Open<'a>>>,
    switches: Switches,
    /// Devices in the order in which they were prepared: the kernel's list.
    prepared: Vec<usize>,
    list_is_known: bool,
    other_transitions: usize,
    damages: Vec<Damage>,
}

impl<'a> Assembly<'a> {
    fn new(graph: Graph) -> Assembly<'a> {
        Assembly {
            names: Names::new(graph),
            cycles: Vec::new(),
            current: None,
            open_phases: Vec::new(),
            freezing: HashMap::new(),
            open: HashMap::new(),
            switches: Switches::default(),
            prepared: Vec::new(),
            list_is_known: false,
            other_transitions: 0,
            damages: Vec::new(),
        }
    }

    fn add(&mut self, event: &TraceEvent<'a>) {
        self.switches.note_cpu(event.cpu);
        match event.what {
            What::Start { device, .. } | What::End { device, .. } if is_conductor(device) => {}
            What::Phase { name, value, begin } if begin => self.phase_begins(event, name, value),
            What::Phase { name, value, .. } => self.phase_ends(event, name, value),
            What::Start {
                driver,
                device,
                parent,
                level,
                verb,
            } => {
                let Some(phase) = self.phase_of(level, verb) else {
                    self.other_transitions += 1;
                    return;
                };
                let index = self.names.find(Description {
                    name: device,
                    parent,
                    driver,
                });
                if phase == DevicePhase::Prepare && !self.list_is_known {
                    self.prepared.push(index);
                }
                self.open.entry(event.thread).or_default().push(Open {
                    begin_ns: event.t_ns,
                    line: event.line,
                    driver,
                    name: device,
                    device: index,
                    phase,
                    level,
                });
            }
            What::End {
                driver,
                device,
                error,
            } => self.callback_ends(event, driver, device, error),
            What::Switch {
                previous,
                name,
                preempted,
                next,
            } => {
                self.switches
                    .switch(event.t_ns, event.cpu, previous, preempted, next);
                // The thread that freezes the others is not one of them.
                let by = self.open_phases.iter().find(|open| open.0 == FREEZING);
                if by.is_some_and(|by| previous != 0 && previous != by.4) {
                    self.freezing.insert(previous, (event.t_ns, name));
                }
            }
        }
    }

    /// The phase of a callback: by the pass that runs; where its begin was lost, by the kernel's
    /// words for the callback.
    fn phase_of(&self, level: &str, verb: &str) -> Option<DevicePhase> {
        let direction = match verb {
            "suspend" => Direction::Suspend,
            "resume" => Direction::Resume,
            _ => return None,
        };
        let running = self.open_phases.iter().rev();
        if let Some(phase) = running
            .filter_map(|&(name, ..)| DevicePhase::from_span_name(name))
            .next()
        {
            return Some(phase);
        }
        let word = level.split(' ').next().unwrap_or_default();
        Some(match (direction, word) {
            (Direction::Suspend, "preparing") => DevicePhase::Prepare,
            (Direction::Suspend, "noirq") => DevicePhase::SuspendNoirq,
            (Direction::Suspend, "late") => DevicePhase::SuspendLate,
            (Direction::Suspend, "") => DevicePhase::Prepare,
            (Direction::Suspend, _) => DevicePhase::Suspend,
            (Direction::Resume, "completing" | "") => DevicePhase::Complete,
            (Direction::Resume, "noirq") => DevicePhase::ResumeNoirq,
            (Direction::Resume, "early") => DevicePhase::ResumeEarly,
            (Direction::Resume, _) => DevicePhase::Resume,
        })
    }

    fn phase_begins(&mut self, event: &TraceEvent<'a>, name: &'a str, value: u64) {
        // A suspend begins here, or in the middle, where its begin was lost.
        let first = name == "suspend_enter";
        let after_the_last = self
            .current
            .as_ref()
            .is_some_and(|cycle| cycle.phase("thaw_processes").is_some());
        if first || after_the_last {
            self.close_cycle(event.t_ns);
        }
        let cycle = self.current.get_or_insert_with(Cycle::default);
        if first {
            // Becomes true for good when the thawing ends.
            cycle.complete = true;
        }
        self.open_phases
            .push((name, value, event.t_ns, event.line, event.thread));
    }

    fn phase_ends(&mut self, event: &TraceEvent<'a>, name: &'a str, value: u64) {
        let same =
            |&(open, number, ..): &(&str, u64, u64, usize, u32)| open == name && number == value;
        let Some(place) = self.open_phases.iter().rposition(same) else {
            self.damages.push(Damage {
                line: event.line,
                what: format!("{name} ends and never began"),
            });
            return;
        };
        let (_, _, begin_ns, ..) = self.open_phases.remove(place);
        let span = PhaseSpan {
            name: name.to_owned(),
            value,
            begin_ns,
            end_ns: event.t_ns,
        };
        self.current
            .get_or_insert_with(Cycle::default)
            .phases
            .push(span);
        if name == FREEZING {
            self.frozen(begin_ns);
        }
        if name == DevicePhase::Prepare.span_name() && !self.prepared.is_empty() {
            self.list_is_known = true;
        }
    }

    /// Processes are frozen: the threads that ran last.
    fn frozen(&mut self, begin_ns: u64) {
        let mut freezing: Vec<Freezing> = std::mem::take(&mut self.freezing)
            .into_iter()
            .map(|(thread, (last_ns, name))| Freezing {
                thread,
                name: name.to_owned(),
                last_ns: last_ns.saturating_sub(begin_ns),
            })
            .collect();
        freezing.sort_by_key(|one| (std::cmp::Reverse(one.last_ns), one.thread));
        freezing.truncate(MAX_FREEZING);
        self.current.get_or_insert_with(Cycle::default).freezing = freezing;
    }

    fn callback_ends(&mut self, event: &TraceEvent<'a>, driver: &str, name: &str, error: i64) {
        let stack = self.open.entry(event.thread).or_default();
        let same = |open: &Open<'_>| open.driver == driver && open.name == name;
        let Some(place) = stack.iter().rposition(same) else {
            if self.current.is_some() {
                self.damages.push(Damage {
                    line: event.line,
                    what: format!("a callback of {name} ends and never began"),
                });
            }
            return;
        };
        // What began later in this thread and has no end lost it.
        for lost in stack.drain(place + 1..) {
            self.damages.push(without_end(&lost));
        }
        let Some(open) = stack.pop() else { return };
        let share = self.switches.share(event.thread, open.begin_ns, event.t_ns);
        let callback = Callback {
            device: open.device,
            phase: open.phase,
            begin_ns: open.begin_ns,
            end_ns: event.t_ns,
            level: without_phase(open.level).to_owned(),
            thread: event.thread,
            busy_ns: share.map(|(busy_ns, _)| busy_ns),
            delayed_ns: share.map_or(0, |(_, delayed_ns)| delayed_ns),
            error,
        };
        self.current
            .get_or_insert_with(Cycle::default)
            .callbacks
            .push(callback);
    }

    /// Ends the cycle at hand; what has no end by now has lost it.
    fn close_cycle(&mut self, now_ns: u64) {
        for (name, value, begin_ns, line, _) in std::mem::take(&mut self.open_phases) {
            self.damages.push(Damage {
                line,
                what: format!("{name}[{value}] begins and never ends"),
            });
            if let Some(cycle) = &mut self.current {
                cycle.complete = false;
                cycle.phases.push(PhaseSpan {
                    name: name.to_owned(),
                    value,
                    begin_ns,
                    end_ns: now_ns.max(begin_ns),
                });
            }
        }
        let open = std::mem::take(&mut self.open);
        self.damages
            .extend(open.values().flatten().map(without_end));
        let Some(mut cycle) = self.current.take() else {
            return;
        };
        cycle.complete &= cycle.phase("thaw_processes").is_some();
        cycle
            .phases
            .sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
        cycle.callbacks.sort_by_key(|callback| callback.begin_ns);
        if self.switches.were_seen() {
            cycle.idle = cycle
                .phases
                .iter()
                .map(|span| IdleTime {
                    phase: span.name.clone(),
                    idle_ns: self.switches.idle_ns(span.begin_ns, span.end_ns),
                })
                .collect();
        }
        if !cycle.callbacks.is_empty() || cycle.phases.len() > 1 {
            self.cycles.push(cycle);
        }
    }

    fn finish(mut self, damages: &mut Vec<Damage>) -> Recording {
        let ends = self
            .open_phases
            .iter()
            .map(|&(_, _, begin_ns, ..)| begin_ns);
        let done = self.current.iter().flat_map(|cycle| {
            let phases = cycle.phases.iter().map(|span| span.end_ns);
            phases.chain(cycle.callbacks.iter().map(|callback| callback.end_ns))
        });
        let end_ns = ends.chain(done).max().unwrap_or(0);
        self.close_cycle(end_ns);
        let mut recording = Recording::default();
        if self.list_is_known {
            self.names.set_list_order(&self.prepared);
        }
        if self.names.ambiguous > 0 {
            recording.notes.push(format!(
                "{} devices have the same name, parent and driver as others; the first of each \
                 stands for all",
                self.names.ambiguous
            ));
        }
        if self.names.unknown > 0 {
            recording.notes.push(format!(
                "{} devices of the trace are not in /sys (they came or went meanwhile)",
                self.names.unknown
            ));
        }
        if self.other_transitions > 0 {
            recording.notes.push(format!(
                "{} callbacks of a hibernation were left out; only suspend and resume are read",
                self.other_transitions
            ));
        }
        damages.append(&mut self.damages);
        recording.cycles = self.cycles;
        recording.graph = self.names.into_graph();
        recording
    }
}

fn without_end(open: &Open<'_>) -> Damage {
    Damage {
        line: open.line,
        what: format!(
            "the {} callback of {} begins and never ends",
            open.phase, open.name
        ),
    }
}

/// `bus` of `noirq bus`: the phase is known without it.
fn without_phase(level: &str) -> &str {
    ["noirq ", "late ", "early ", "preparing ", "completing "]
        .iter()
        .find_map(|prefix| level.strip_prefix(prefix))
        .unwrap_or(level)
}

#[cfg(test)]
mod tests;
