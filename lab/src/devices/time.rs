//! How long the phases of a graph take in each mode, the modes taking turns.

use std::collections::BTreeMap;

use dormouse_guest::device_job::{Answer, Step};
use dormouse_report::stats::median;
use serde::Serialize;

use super::graph::{Graph, PHASES, is_down};
use super::switches::{Mode, Scope, set_mode, set_scope, set_sleepers, set_threshold};
use crate::error::LabError;

/// How it is timed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub modes: Vec<Mode>,
    pub rounds: u64,
    pub threshold_us: u32,
    /// Workers beside one a processor, for devices that sleep.
    pub sleepers: u32,
    pub cpus: u64,
}

/// One mode's times.
#[derive(Debug, Clone, Serialize)]
pub struct ModeTimes {
    pub mode: Mode,
    /// Milliseconds of each round's way down and way up.
    pub down_ms: Vec<f64>,
    pub up_ms: Vec<f64>,
    /// Medians; the sum is of both ways of one round.
    pub down_median_ms: f64,
    pub up_median_ms: f64,
    pub sum_median_ms: f64,
}

/// All modes of one graph.
#[derive(Debug, Clone, Serialize)]
pub struct Times {
    pub graph: String,
    pub devices: usize,
    pub cpus: u64,
    /// What the devices' own durations make one after the other, and what no schedule can beat.
    pub list_down_ms: f64,
    pub list_up_ms: f64,
    pub bound_down_ms: f64,
    pub bound_up_ms: f64,
    pub modes: Vec<ModeTimes>,
}

impl Times {
    pub fn of(&self, mode: Mode) -> Option<&ModeTimes> {
        self.modes.iter().find(|times| times.mode == mode)
    }
}

/// The steps, and which of them are timed.
pub struct Timing {
    pub steps: Vec<Step>,
    timed: BTreeMap<usize, Mode>,
    heard: BTreeMap<Mode, Vec<(f64, f64)>>,
}

impl Timing {
    pub fn new(graph: &Graph, plan: &Plan) -> Timing {
        let mut steps = vec![
            Step::Graph {
                text: graph.text(false),
            },
            set_threshold(plan.threshold_us),
            set_sleepers(plan.sleepers),
            set_scope(Scope::Async),
        ];
        let mut timed = BTreeMap::new();
        // The first two rounds teach the kernel how long devices take, and count for nothing.
        for round in 0..plan.rounds + 2 {
            for turn in 0..plan.modes.len() {
                // Nobody always follows the same one.
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
        Timing {
            steps,
            timed,
            heard: BTreeMap::new(),
        }
    }

    /// Takes one answer.
    ///
    /// # Errors
    /// A transition failed, or the kernel's log lacks a phase.
    pub fn hear(&mut self, answer: &Answer) -> Result<(), LabError> {
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
        let (mut down, mut up) = (0.0, 0.0);
        for (phase, name) in PHASES.iter().enumerate() {
            let us = cycle.phases_us.get(*name).ok_or_else(|| {
                LabError::Unexpected(format!("the kernel's log has no time of {name}"))
            })?;
            let ms = *us as f64 / 1e3;
            *if is_down(phase) { &mut down } else { &mut up } += ms;
        }
        self.heard.entry(*mode).or_default().push((down, up));
        Ok(())
    }

    /// What came of all rounds.
    pub fn finish(self, name: &str, graph: &Graph, plan: &Plan) -> Times {
        let modes = self.heard.into_iter().map(|(mode, rounds)| ModeTimes {
            mode,
            down_median_ms: median(rounds.iter().map(|r| r.0)).unwrap_or(f64::NAN),
            up_median_ms: median(rounds.iter().map(|r| r.1)).unwrap_or(f64::NAN),
            sum_median_ms: median(rounds.iter().map(|r| r.0 + r.1)).unwrap_or(f64::NAN),
            down_ms: rounds.iter().map(|r| r.0).collect(),
            up_ms: rounds.iter().map(|r| r.1).collect(),
        });
        let total = |down: bool, us: &dyn Fn(usize) -> u64| {
            let phases = (0..PHASES.len()).filter(|&phase| is_down(phase) == down);
            phases.map(us).sum::<u64>() as f64 / 1e3
        };
        Times {
            graph: name.to_owned(),
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
            cpus: 2,
        };
        let timing = Timing::new(&MachineShape::Phone.graph(), &plan);
        for mode in Mode::ALL {
            let rounds = timing.timed.values().filter(|timed| **timed == mode);
            assert_eq!(rounds.count(), 8);
        }
        let order: Vec<Mode> = timing.timed.values().copied().collect();
        assert_ne!(order[0], order[4]);
    }
}
