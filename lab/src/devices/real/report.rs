//! The outcome of the transitions of a machine of real devices.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_guest::protocol::real_devices::{Bound, Sleep};
use dormouse_report::stats::median;
use serde::Serialize;

use crate::devices::graph::{PHASES, is_down};
use crate::devices::switches::Mode;

/// One timed transition.
#[derive(Debug, Clone)]
pub struct Round {
    pub mode: Mode,
    pub sleep: Sleep,
    pub phases_us: BTreeMap<String, u64>,
}

/// Times of one mode and one way to sleep, ms.
#[derive(Debug, Clone, Serialize)]
pub struct RealTimes {
    /// The way.
    pub sleep: Sleep,
    /// The mode; `async` is the stock kernel as it is.
    pub mode: Mode,
    /// Number of transitions.
    pub rounds: usize,
    /// Median of the phases on the way down, together.
    pub down_median_ms: f64,
    /// The same on the way up.
    pub up_median_ms: f64,
    /// Both ways of one transition: median, minimum, maximum.
    pub sum_median_ms: f64,
    /// Minimum.
    pub sum_min_ms: f64,
    /// Maximum.
    pub sum_max_ms: f64,
}

/// The outcome, as `dormouse lab devices real --json` prints it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// Devices that have a driver.
    pub devices: usize,
    /// The same by bus.
    pub by_bus: BTreeMap<String, usize>,
    /// Different drivers.
    pub drivers: usize,
    /// Functions that are used after each transition.
    pub functions: usize,
    /// Uses of a function that succeeded.
    pub uses: u64,
    /// Suspends and resumes.
    pub transitions: u64,
    /// Of these, sleeps to RAM, as the emulator counts them.
    pub sleeps_to_ram: usize,
    /// Transitions by mode.
    pub by_mode: BTreeMap<Mode, u64>,
    /// The same by the way.
    pub by_way: BTreeMap<Sleep, u64>,
    /// Failures that were injected.
    pub failures: u64,
    /// Wakeups that were injected.
    pub wakeups: u64,
    /// Devices that were taken out between two transitions, and came back.
    pub removals: u64,
    /// Sleeps in which a device was taken out, put back, or exchanged for another one.
    pub exchanges: u64,
    /// Hangs that were injected.
    pub hangs: u64,
    /// Times.
    pub times: Vec<RealTimes>,
    /// Drivers that could not be loaded.
    pub missing_drivers: Vec<String>,
    /// Empty when all is as it must be.
    pub breaches: Vec<String>,
    /// Faults that the kernel reported of itself.
    pub kernel_reports: Vec<String>,
    /// The timed transitions.
    #[serde(skip)]
    pub rounds: Vec<Round>,
}

impl Report {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.breaches.is_empty() && self.kernel_reports.is_empty()
    }

    /// Counts devices that have a driver.
    pub fn count(&mut self, bound: &[Bound]) {
        self.devices = bound.len();
        for one in bound {
            *self.by_bus.entry(one.bus.clone()).or_default() += 1;
        }
        let drivers: BTreeSet<&str> = bound.iter().map(|one| one.driver.as_str()).collect();
        self.drivers = drivers.len();
    }

    /// Makes times of the rounds.
    pub fn finish(&mut self) {
        let kinds: BTreeSet<(Sleep, Mode)> = self
            .rounds
            .iter()
            .map(|one| (one.sleep, one.mode))
            .collect();
        for (sleep, mode) in kinds {
            let rounds = self.rounds.iter();
            let rounds = rounds.filter(|one| (one.sleep, one.mode) == (sleep, mode));
            self.times.push(times(sleep, mode, rounds));
        }
    }

    /// For people.
    pub fn print(&self) {
        for text in &self.missing_drivers {
            println!("not loaded: {text}");
        }
        for breach in &self.breaches {
            println!("{breach}");
        }
        for text in &self.kernel_reports {
            println!("the kernel reports:\n{text}\n");
        }
        let by_bus = joined(self.by_bus.iter());
        println!(
            "Linux {}: {} devices with {} drivers ({by_bus})",
            self.kernel, self.devices, self.drivers
        );
        println!(
            "{:9} {:7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8}",
            "", "", "rounds", "down, ms", "up, ms", "sum, ms", "min", "max", "to list"
        );
        for times in &self.times {
            let is_list =
                |other: &&RealTimes| other.sleep == times.sleep && other.mode == Mode::List;
            let list = self.times.iter().find(is_list);
            let ratio = list.map(|list| times.sum_median_ms / list.sum_median_ms);
            println!(
                "{:9} {:7} {:6} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1} {:>8}",
                name(times.sleep),
                times.mode.name(),
                times.rounds,
                times.down_median_ms,
                times.up_median_ms,
                times.sum_median_ms,
                times.sum_min_ms,
                times.sum_max_ms,
                ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
            );
        }
        println!(
            "{} transitions ({}; {}), after each of which {} functions were used ({} uses); {} failures, \
             {} wakeups, {} hangs, {} devices taken out and back, {} exchanged during a sleep: {} \
             breaches, {} kernel reports",
            self.transitions,
            joined(self.by_mode.iter()),
            joined(self.by_way.iter().map(|(&way, count)| (name(way), count))),
            self.functions,
            self.uses,
            self.failures,
            self.wakeups,
            self.hangs,
            self.removals,
            self.exchanges,
            self.breaches.len(),
            self.kernel_reports.len(),
        );
    }
}

fn name(way: Sleep) -> String {
    format!("{way:?}").to_lowercase()
}

fn joined<K: std::fmt::Display, V: std::fmt::Display>(
    pairs: impl Iterator<Item = (K, V)>,
) -> String {
    let words: Vec<String> = pairs.map(|(key, value)| format!("{key} {value}")).collect();
    words.join(", ")
}

fn times<'a>(sleep: Sleep, mode: Mode, rounds: impl Iterator<Item = &'a Round>) -> RealTimes {
    let (mut down, mut up, mut sum) = (Vec::new(), Vec::new(), Vec::new());
    for round in rounds {
        let way = |wanted: bool| -> f64 {
            let phases = (0..PHASES.len()).filter(|&phase| is_down(phase) == wanted);
            let us = phases.filter_map(|phase| round.phases_us.get(PHASES[phase]));
            us.sum::<u64>() as f64 / 1e3
        };
        down.push(way(true));
        up.push(way(false));
        sum.push(way(true) + way(false));
    }
    let middle = |times: &[f64]| median(times.iter().copied()).unwrap_or(f64::NAN);
    RealTimes {
        sleep,
        mode,
        rounds: sum.len(),
        down_median_ms: middle(&down),
        up_median_ms: middle(&up),
        sum_median_ms: middle(&sum),
        sum_min_ms: sum.iter().copied().fold(f64::INFINITY, f64::min),
        sum_max_ms: sum.iter().copied().fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_one_mode_and_one_way_to_sleep() {
        let mut report = Report::default();
        for (mode, us) in [(Mode::List, 4000), (Mode::Graph, 1000), (Mode::Graph, 3000)] {
            let phases_us = PHASES.iter().map(|name| ((*name).to_owned(), us)).collect();
            report.rounds.push(Round {
                mode,
                sleep: Sleep::Ram,
                phases_us,
            });
        }
        report.finish();
        let graph = report.times.iter().find(|times| times.mode == Mode::Graph);
        let graph = graph.unwrap();
        assert_eq!((graph.rounds, report.times.len()), (2, 2));
        assert_eq!((graph.down_median_ms, graph.sum_median_ms), (6.0, 12.0));
        assert_eq!((graph.sum_min_ms, graph.sum_max_ms), (6.0, 18.0));
    }
}
