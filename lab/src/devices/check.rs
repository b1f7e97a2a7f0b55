//! Random graphs through the real kernel, with their order checked, and with failures and wakeups
//! at random devices.

use dormouse_guest::device_job::{Answer, Cycle, Step};
use serde::Serialize;

use super::graph::{Graph, PHASES, device_name, is_down};
use super::order::Order;
use super::switches::{Mode, Scope, set_mode, set_scope, set_threshold, set_timeout};
use crate::error::LabError;
use crate::stress::Dice;

const EIO: i32 = 5;
const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
/// After this long a device is given up; the one that hangs comes back later than that.
const TIMEOUT_MS: u32 = 1500;
const HANG_MS: u32 = 5000;
/// Injections into one graph before the next.
const INJECTIONS_OF_A_GRAPH: u64 = 10;
const THRESHOLD_US: u32 = 200;

/// What was checked, and what was wrong.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub graphs: u64,
    pub failures: u64,
    pub wakeups: u64,
    pub hangs: u64,
    pub transitions: u64,
    /// Empty when all is as it must be. Each begins with what gives it again.
    pub breaches: Vec<String>,
    /// Faults that the kernel reported of itself: lockdep, KASAN, UBSAN, KCSAN, assertions, KUnit.
    pub kernel_reports: Vec<String>,
}

impl Report {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.breaches.is_empty() && self.kernel_reports.is_empty()
    }
}

/// What goes wrong once.
#[derive(Debug, Clone, Copy)]
struct Injection {
    device: usize,
    phase: usize,
    wakes: bool,
}

/// What a step's answer is checked against.
#[derive(Debug, Clone)]
enum Expect {
    Nothing,
    /// One device after the other: says which order the list has.
    List {
        graph: usize,
    },
    /// All devices down and up.
    Whole {
        graph: usize,
        scope: Scope,
    },
    Injected {
        graph: usize,
        scope: Scope,
        injection: Injection,
    },
    /// This device's callback does not come back: the phase ends with its name.
    Hung {
        graph: usize,
        device: usize,
    },
    /// No transition begins any more, and it says because of whom.
    Refused {
        graph: usize,
        device: usize,
    },
}

/// The steps of the whole check, and what has to come of each.
pub struct Check {
    pub steps: Vec<Step>,
    expects: Vec<Expect>,
    graphs: Vec<Graph>,
    /// The list's order of the graph that runs.
    list: Vec<usize>,
    seed: u64,
    pub report: Report,
}

impl Check {
    /// `graphs` graphs without, and as many more as `injections` need.
    pub fn new(seed: u64, graphs: u64, injections: u64) -> Check {
        let mut check = Check {
            steps: Vec::new(),
            expects: Vec::new(),
            graphs: Vec::new(),
            list: Vec::new(),
            seed,
            report: Report::default(),
        };
        check.push(set_threshold(THRESHOLD_US), Expect::Nothing);
        for _ in 0..graphs {
            check.add_graph();
        }
        let mut left = injections;
        while left > 0 {
            let now = left.min(INJECTIONS_OF_A_GRAPH);
            check.add_injections(now);
            left -= now;
        }
        check.add_hang();
        check
    }

    fn push(&mut self, step: Step, expect: Expect) {
        self.steps.push(step);
        self.expects.push(expect);
    }

    /// Builds a new graph and takes it through both ways once; what it is, and its scope.
    fn add_graph(&mut self) -> (usize, Scope, Dice) {
        let number = self.graphs.len();
        let mut dice = Dice::new(self.seed, number as u64);
        let graph = Graph::random(&mut dice);
        let scope = *dice.pick(&Scope::ALL);
        let text = graph.text(false);
        self.graphs.push(graph);
        self.push(Step::Graph { text }, Expect::Nothing);
        self.push(set_scope(scope), Expect::Nothing);
        self.push(set_mode(Mode::List), Expect::Nothing);
        let cycle = Step::Cycle { order: true };
        self.push(cycle.clone(), Expect::List { graph: number });
        self.push(set_mode(Mode::Graph), Expect::Nothing);
        self.push(
            cycle,
            Expect::Whole {
                graph: number,
                scope,
            },
        );
        (number, scope, dice)
    }

    fn add_injections(&mut self, count: u64) {
        let (number, scope, mut dice) = self.add_graph();
        let devices = &self.graphs[number].devices;
        // The others may be left alone, and then nothing would happen.
        let able: Vec<usize> = (0..devices.len())
            .filter(|&device| !devices[device].quiet && !devices[device].direct)
            .collect();
        if able.is_empty() {
            return;
        }
        for _ in 0..count {
            let injection = Injection {
                device: *dice.pick(&able),
                phase: dice.between(0, 5) as usize,
                wakes: dice.chance(0.3),
            };
            let what = if injection.wakes { "wake" } else { "fail" };
            let name = device_name(injection.device);
            let line = format!("{what} {name} {}", PHASES[injection.phase]);
            self.push(Step::Inject { line }, Expect::Nothing);
            let cycle = Step::Cycle { order: true };
            let expect = Expect::Injected {
                graph: number,
                scope,
                injection,
            };
            self.push(cycle.clone(), expect);
            self.push(
                cycle,
                Expect::Whole {
                    graph: number,
                    scope,
                },
            );
        }
    }

    /// The last of all: afterwards the machine does not suspend any more.
    fn add_hang(&mut self) {
        let (graph, _, mut dice) = self.add_graph();
        let devices = &self.graphs[graph].devices;
        let able = |device: &usize| !devices[*device].quiet && !devices[*device].direct;
        let able: Vec<usize> = (0..devices.len()).filter(able).collect();
        if able.is_empty() {
            return;
        }
        let device = *dice.pick(&able);
        let line = format!("hang {} {} {HANG_MS}", device_name(device), PHASES[0]);
        self.push(set_timeout(TIMEOUT_MS), Expect::Nothing);
        self.push(Step::Inject { line }, Expect::Nothing);
        let cycle = Step::Cycle { order: true };
        self.push(cycle.clone(), Expect::Hung { graph, device });
        self.push(cycle, Expect::Refused { graph, device });
    }

    /// Checks one answer.
    ///
    /// # Errors
    /// The order cannot be read.
    pub fn hear(&mut self, answer: &Answer) -> Result<(), LabError> {
        self.report
            .kernel_reports
            .extend(answer.reports.iter().cloned());
        let Some(cycle) = &answer.cycle else {
            return Ok(());
        };
        self.report.transitions += 1;
        let order = Order::parse(&cycle.order).map_err(LabError::Unexpected)?;
        let (graph, breaches) = match self.expects[answer.step].clone() {
            Expect::Nothing => return Ok(()),
            Expect::List { graph } => {
                self.report.graphs += 1;
                let resumed = PHASES.len() - 1;
                self.list = order.begun(resumed);
                (graph, self.whole(&order, cycle, graph, true))
            }
            Expect::Whole { graph, scope } => {
                let keeps = scope == Scope::Async;
                (graph, self.whole(&order, cycle, graph, keeps))
            }
            Expect::Injected {
                graph,
                scope,
                injection,
            } => {
                let keeps = scope == Scope::Async;
                let mut breaches = self.order_breaches(&order, graph, keeps);
                breaches.extend(injection.breaches(cycle));
                *if injection.wakes {
                    &mut self.report.wakeups
                } else {
                    &mut self.report.failures
                } += 1;
                (graph, breaches)
            }
            Expect::Hung { graph, device } => {
                self.report.hangs += 1;
                (graph, self.hung(order, cycle, graph, device))
            }
            Expect::Refused { graph, device } => (graph, refused(cycle, device)),
        };
        self.blame(breaches, graph, answer.step);
        Ok(())
    }

    fn blame(&mut self, breaches: Vec<String>, graph: usize, step: usize) {
        let seed = self.seed;
        self.report.breaches.extend(
            breaches
                .into_iter()
                .map(|text| format!("seed {seed}, graph {graph}, step {step}: {text}")),
        );
    }

    /// The others were resumed, in order; the error names the device that hung.
    fn hung(&self, mut order: Order, cycle: &Cycle, graph: usize, device: usize) -> Vec<String> {
        order.calls.retain(|call| call.device != device);
        let mut breaches = self.order_breaches(&order, graph, false);
        let name = device_name(device);
        if cycle.errno != ETIMEDOUT || cycle.failed_device != name {
            let (errno, said) = (cycle.errno, &cycle.failed_device);
            breaches.push(format!(
                "hang of {name}: error {errno}, failed device {said:?}"
            ));
        }
        breaches
    }

    fn order_breaches(&self, order: &Order, graph: usize, keeps_list: bool) -> Vec<String> {
        let list = keeps_list.then_some(self.list.as_slice());
        order.breaches(&self.graphs[graph], list)
    }

    /// A transition in which nothing goes wrong takes every device through all six phases.
    fn whole(&self, order: &Order, cycle: &Cycle, graph: usize, keeps_list: bool) -> Vec<String> {
        let mut breaches = self.order_breaches(order, graph, keeps_list);
        if cycle.errno != 0 {
            breaches.push(format!("the transition failed with {}", cycle.errno));
        }
        for (phase, name) in PHASES.iter().enumerate() {
            let ran = order.begun(phase);
            for (these, others, what) in [
                (&self.list, &ran, "not run, but in list order"),
                (&ran, &self.list, "run, but not in list order"),
            ] {
                let alone: Vec<String> = these
                    .iter()
                    .filter(|device| !others.contains(device))
                    .map(|&device| device_name(device))
                    .collect();
                if !alone.is_empty() {
                    breaches.push(format!("{name}: {what}: {}", alone.join(", ")));
                }
            }
        }
        breaches
    }
}

fn refused(cycle: &Cycle, device: usize) -> Vec<String> {
    let name = device_name(device);
    if cycle.errno == EBUSY && cycle.failed_device == name {
        return Vec::new();
    }
    let (errno, said) = (cycle.errno, &cycle.failed_device);
    vec![format!(
        "after the hang of {name}: error {errno}, failed device {said:?}"
    )]
}

impl Injection {
    /// What the kernel says of it is what happened.
    fn breaches(self, cycle: &Cycle) -> Vec<String> {
        let mut breaches = Vec::new();
        let (name, phase) = (device_name(self.device), PHASES[self.phase]);
        let expected: &[i32] = match (self.wakes, is_down(self.phase), self.phase) {
            (false, true, _) => &[EIO],
            // What goes wrong on the way up does not undo the suspend.
            (_, false, _) => &[0],
            (true, _, 0) => &[EBUSY],
            // After the last look for wakeups the test of the platform goes on.
            (true, _, _) => &[EBUSY, 0],
        };
        if !expected.contains(&cycle.errno) {
            breaches.push(format!(
                "{} of {name} in {phase}: error {}, expected {expected:?}",
                if self.wakes { "wakeup" } else { "failure" },
                cycle.errno
            ));
        }
        if !self.wakes {
            let named = cycle
                .complaints
                .iter()
                .any(|line| line.contains(&format!(" {name}: ")));
            if !named {
                let said = &cycle.complaints;
                breaches.push(format!(
                    "failure of {name} in {phase}: the log says {said:?}"
                ));
            }
            if is_down(self.phase) && cycle.failed_device != name {
                let said = &cycle.failed_device;
                breaches.push(format!(
                    "failure of {name} in {phase}: failed device {said:?}"
                ));
            }
        }
        breaches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_injection_is_followed_by_a_transition_that_must_work() {
        let check = Check::new(1, 3, 25);
        let injected = |expect: &&Expect| matches!(expect, Expect::Injected { .. });
        assert_eq!(check.expects.iter().filter(injected).count(), 25);
        for (at, expect) in check.expects.iter().enumerate() {
            if injected(&expect) {
                assert!(matches!(check.expects[at + 1], Expect::Whole { .. }));
                assert!(matches!(check.steps[at - 1], Step::Inject { .. }));
            }
        }
        assert_eq!(check.graphs.len(), 7);
    }

    #[test]
    fn an_error_that_names_another_device_is_a_breach() {
        let injection = Injection {
            device: 3,
            phase: 1,
            wakes: false,
        };
        let mut cycle = Cycle {
            errno: EIO,
            failed_device: "d3".into(),
            complaints: vec!["pm_graph_test d3: failed to suspend late: error -5".into()],
            ..Cycle::default()
        };
        assert!(injection.breaches(&cycle).is_empty());
        cycle.failed_device = "d4".into();
        assert_eq!(injection.breaches(&cycle).len(), 1);
        cycle.complaints.clear();
        cycle.errno = 0;
        assert_eq!(injection.breaches(&cycle).len(), 3);
    }
}
