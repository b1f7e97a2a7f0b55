//! How long the phases of a graph take in each mode, the modes taking turns.

use std::collections::BTreeMap;

use dormouse_guest::protocol::device_job::{Answer, Step};
use dormouse_report::stats::median;
use serde::{Deserialize, Serialize};

use super::graph::{Graph, PHASES, is_down};
use super::switches::{Mode, Scope, set_mode, set_scope, set_sleepers, set_threshold, set_timeout};
use crate::error::LabError;

pub(super) const TRACING: &str = "/sys/kernel/debug/tracing";
/// What the kernel series reports about its last transition.
const SERIES: &str = "/sys/kernel/debug/pm_graph";

pub(super) fn trace_file(name: &str, value: &str) -> Step {
    Step::Set {
        path: format!("{TRACING}/{name}"),
        value: value.to_owned(),
    }
}

/// How it is timed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub modes: Vec<Mode>,
    pub rounds: u64,
    pub threshold_us: u32,
    /// Workers beside one a processor, for devices that sleep.
    pub sleepers: u32,
    /// After how long a device is given up; 0: never.
    pub timeout_ms: u32,
    pub cpus: u64,
    /// One more cycle of each mode is traced at the end.
    pub traces: bool,
}

/// One mode's times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModeTimes {
    /// The mode.
    pub mode: Mode,
    /// Milliseconds of each round's way down and way up.
    pub down_ms: Vec<f64>,
    /// The same on the way up.
    pub up_ms: Vec<f64>,
    /// Medians; the sum is of both ways of one round.
    pub down_median_ms: f64,
    /// The same on the way up.
    pub up_median_ms: f64,
    /// Median of both ways together.
    pub sum_median_ms: f64,
    /// Medians of each phase.
    pub phases_ms: BTreeMap<String, f64>,
}

impl ModeTimes {
    fn new(mode: Mode, rounds: &[[f64; 6]]) -> ModeTimes {
        let way = |is_wanted: &dyn Fn(usize) -> bool| -> Vec<f64> {
            let one = |round: &[f64; 6]| {
                let phases = (0..PHASES.len()).filter(|&phase| is_wanted(phase));
                phases.map(|phase| round[phase]).sum()
            };
            rounds.iter().map(one).collect()
        };
        let middle = |times: &[f64]| median(times.iter().copied()).unwrap_or(f64::NAN);
        let down_ms = way(&is_down);
        let up_ms = way(&|phase| !is_down(phase));
        ModeTimes {
            mode,
            down_median_ms: middle(&down_ms),
            up_median_ms: middle(&up_ms),
            sum_median_ms: middle(&way(&|_| true)),
            phases_ms: PHASES
                .iter()
                .enumerate()
                .map(|(phase, name)| ((*name).to_owned(), middle(&way(&|other| other == phase))))
                .collect(),
            down_ms,
            up_ms,
        }
    }
}

/// All modes of one graph, as `dormouse lab devices time --json` prints them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    /// Name of the graph.
    pub graph: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Number of devices.
    pub devices: usize,
    /// Number of processors.
    pub cpus: u64,
    /// What the devices' own durations make one after the other, and what no schedule can beat.
    pub list_down_ms: f64,
    /// The same on the way up.
    pub list_up_ms: f64,
    /// Lower bound on the way down.
    pub bound_down_ms: f64,
    /// Lower bound on the way up.
    pub bound_up_ms: f64,
    /// The measured modes.
    pub modes: Vec<ModeTimes>,
}

impl Times {
    /// The times of a mode, if it was measured.
    pub fn of(&self, mode: Mode) -> Option<&ModeTimes> {
        self.modes.iter().find(|times| times.mode == mode)
    }

    /// What no schedule can beat, both ways together.
    pub fn bound_ms(&self) -> f64 {
        self.bound_down_ms + self.bound_up_ms
    }
}

/// The steps, and which of them are timed.
pub struct Timing {
    pub steps: Vec<Step>,
    /// So many at the beginning load modules.
    loads: usize,
    timed: BTreeMap<usize, Mode>,
    /// Milliseconds of each phase.
    times: BTreeMap<Mode, Vec<[f64; 6]>>,
    /// Which steps read a text that is kept, and its name.
    kept: BTreeMap<usize, String>,
    /// What was read: a trace of one cycle of each mode, and what the series says of its own.
    pub texts: BTreeMap<String, String>,
}

impl Timing {
    /// `first` is what comes before all else: modules to load.
    pub fn new(first: Vec<Step>, graph: &Graph, plan: &Plan) -> Timing {
        let loads = first.len();
        let mut steps = first;
        steps.extend([
            Step::Graph {
                text: graph.text(false),
            },
            set_threshold(plan.threshold_us),
            set_sleepers(plan.sleepers),
            set_timeout(plan.timeout_ms),
            set_scope(Scope::Async),
        ]);
        let mut timed = BTreeMap::new();
        // The first two rounds teach the kernel how long devices take, and count for nothing.
        for round in 0..plan.rounds + 2 {
            for turn in 0..plan.modes.len() {
                // No mode always follows the same one.
                let mode = plan.modes[(turn + round as usize) % plan.modes.len()];
                steps.push(set_mode(Mode::List));
                steps.push(Step::Permit {
                    all: mode.permits(),
                });
                steps.push(set_mode(mode));
                if round >= 2 {
                    timed.insert(steps.len(), mode);
                }
                steps.push(Step::Cycle { order: false });
            }
        }
        let mut timing = Timing {
            loads,
            steps,
            timed,
            times: BTreeMap::new(),
            kept: BTreeMap::new(),
            texts: BTreeMap::new(),
        };
        if plan.traces {
            timing.add_traces(&plan.modes);
        }
        timing
    }

    /// One more cycle of each mode, traced; its time does not count.
    fn add_traces(&mut self, modes: &[Mode]) {
        for (file, value) in [
            ("current_tracer", "nop"),
            ("buffer_size_kb", "16384"),
            ("trace_clock", "mono"),
            ("events/power/suspend_resume/enable", "1"),
            ("events/power/device_pm_callback_start/enable", "1"),
            ("events/power/device_pm_callback_end/enable", "1"),
            ("events/sched/sched_switch/enable", "1"),
            ("events/sched/sched_waking/enable", "1"),
        ] {
            self.steps.push(trace_file(file, value));
        }
        for &mode in modes {
            self.steps.extend([
                set_mode(Mode::List),
                Step::Permit {
                    all: mode.permits(),
                },
                set_mode(mode),
                trace_file("trace", ""),
                trace_file("tracing_on", "1"),
                Step::Cycle { order: false },
                trace_file("tracing_on", "0"),
            ]);
            self.keep(format!("{mode}.trace"), format!("{TRACING}/trace"));
        }
        if modes.contains(&Mode::Graph) {
            for name in ["order", "phases", "costs"] {
                self.keep(format!("graph.{name}"), format!("{SERIES}/{name}"));
            }
        }
    }

    fn keep(&mut self, name: String, path: String) {
        self.kept.insert(self.steps.len(), name);
        self.steps.push(Step::Read { path });
    }

    /// Takes one answer.
    ///
    /// # Errors
    /// A module is refused, a transition failed, or the kernel's log lacks a phase.
    pub fn receive(&mut self, answer: &Answer) -> Result<(), LabError> {
        let is_load = |step: &Step| matches!(step, Step::Load { .. });
        if answer.step < self.loads
            && self.steps.get(answer.step).is_some_and(is_load)
            && answer.text != "loaded"
        {
            return Err(LabError::Guest(answer.text.clone()));
        }
        if let Some(name) = self.kept.get(&answer.step) {
            self.texts.insert(name.clone(), answer.text.clone());
        }
        let Some(cycle) = &answer.cycle else {
            return Ok(());
        };
        if cycle.errno != 0 {
            let (errno, said) = (cycle.errno, &cycle.complaints);
            let message = format!("a suspend failed with error {errno}: {said:?}");
            return Err(LabError::Guest(message));
        }
        let Some(mode) = self.timed.get(&answer.step) else {
            return Ok(());
        };
        let mut round = [0.0; 6];
        for (ms, name) in round.iter_mut().zip(PHASES) {
            let us = cycle.phases_us.get(name).ok_or_else(|| {
                LabError::Unexpected(format!("the kernel's log has no time of {name}"))
            })?;
            *ms = *us as f64 / 1e3;
        }
        self.times.entry(*mode).or_default().push(round);
        Ok(())
    }

    /// Result of all rounds; of this graph and on this kernel, by name.
    pub fn finish(self, (name, kernel): (&str, String), graph: &Graph, plan: &Plan) -> Times {
        let times = self.times.into_iter();
        let modes = times.map(|(mode, rounds)| ModeTimes::new(mode, &rounds));
        let total = |down: bool, us: &dyn Fn(usize) -> u64| {
            let phases = (0..PHASES.len()).filter(|&phase| is_down(phase) == down);
            phases.map(us).sum::<u64>() as f64 / 1e3
        };
        Times {
            graph: name.to_owned(),
            kernel,
            devices: graph.devices.len(),
            cpus: plan.cpus,
            list_down_ms: total(true, &|phase| graph.sum_us(phase)),
            list_up_ms: total(false, &|phase| graph.sum_us(phase)),
            bound_down_ms: total(true, &|phase| graph.lower_bound_us(phase, plan.cpus)),
            bound_up_ms: total(false, &|phase| graph.lower_bound_us(phase, plan.cpus)),
            modes: modes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::shape::MachineShape;

    #[test]
    fn modes_take_turns_and_each_is_timed_in_every_round() {
        let plan = Plan {
            modes: Mode::ALL.to_vec(),
            rounds: 8,
            threshold_us: 500,
            sleepers: 32,
            timeout_ms: 120_000,
            cpus: 2,
            traces: false,
        };
        let timing = Timing::new(Vec::new(), &MachineShape::Phone.graph(0), &plan);
        for mode in Mode::ALL {
            let rounds = timing.timed.values().filter(|timed| **timed == mode);
            assert_eq!(rounds.count(), 8);
        }
        let order: Vec<Mode> = timing.timed.values().copied().collect();
        assert_ne!(order[0], order[4]);
    }
}
