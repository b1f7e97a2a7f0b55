//! Random graphs through the real kernel, with their order checked, and with failures, wakeups and
//! hangs at random devices.

mod changes;
mod head_start;
mod module;

use dormouse_guest::protocol::device_job::{Answer, Cycle, Step};

use self::changes::Change;
use self::module::ModuleExpect;
use super::form::Form;
use super::graph::{Device, Graph, PHASES, device_name, is_down};
use super::order::Order;
use super::report::{Report, accesses_watched, kunit_passed};
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
/// Results of the KUnit tests of the order, which run when the kernel boots.
const KUNIT: &str = "/sys/kernel/debug/kunit/pm_graph/results";
/// What the kernel's watch for data races did, where that is compiled in.
const KCSAN: &str = "/sys/kernel/debug/kcsan";

/// What goes wrong once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injection {
    pub device: usize,
    pub phase: usize,
    pub wakes: bool,
}

/// What a step's answer is checked against.
#[derive(Debug, Clone)]
enum Expect {
    Nothing,
    /// The text says that KUnit tests ran and passed.
    KUnit,
    /// The text says that accesses were watched.
    Watched,
    /// One device after the other: says which order the list has.
    List {
        graph: usize,
    },
    /// All devices down and up.
    Whole {
        graph: usize,
        keeps_list: bool,
    },
    Injected {
        graph: usize,
        keeps_list: bool,
        injection: Injection,
    },
    /// A device goes or comes in the midst of it; nothing else is different.
    Changed {
        graph: usize,
        keeps_list: bool,
        change: Change,
    },
    /// This device's callback does not come back: the phase ends with its name.
    Hung {
        graph: usize,
        device: usize,
        phase: usize,
    },
    /// The kernel refuses every further transition and names the device responsible.
    Refused {
        graph: usize,
        device: usize,
    },
    /// The text says how many devices waited for a head start; whether this is the last chance.
    HeadStart {
        last: bool,
    },
    /// What has to do with loading the module.
    Module(ModuleExpect),
}

/// The steps of the whole check, and what has to come of each.
pub struct Check {
    pub steps: Vec<Step>,
    expects: Vec<Expect>,
    /// In which mode each step happens.
    modes: Vec<Mode>,
    mode: Mode,
    graphs: Vec<Graph>,
    /// The list's order of the graph that runs.
    list: Vec<usize>,
    /// In the last transition.
    order: Order,
    /// What the stock order was before the module was loaded: devices by phase.
    stock: Vec<Vec<usize>>,
    form: Form,
    seed: u64,
    pub report: Report,
}

impl Check {
    fn empty(seed: u64, form: Form) -> Check {
        let mut check = Check {
            steps: Vec::new(),
            expects: Vec::new(),
            modes: Vec::new(),
            mode: Mode::Async,
            graphs: Vec::new(),
            list: Vec::new(),
            order: Order::default(),
            stock: Vec::new(),
            form,
            seed,
            report: Report::default(),
        };
        if form == Form::Series {
            let path = KUNIT.into();
            check.push(Step::Read { path }, Expect::KUnit);
            check.push(set_threshold(THRESHOLD_US), Expect::Nothing);
        }
        check
    }

    /// `graphs` graphs without, and as many more as `injections` need.
    pub fn new(seed: u64, form: Form, graphs: u64, injections: u64) -> Check {
        let mut check = Check::empty(seed, form);
        if form == Form::Module {
            check.begin_module(true);
            check.add_unordered_graphs(graphs / 4 + 1);
        }
        for _ in 0..graphs {
            check.add_graph();
        }
        let mut left = injections;
        while left > 0 {
            let now = left.min(INJECTIONS_OF_A_GRAPH);
            check.add_injections(now);
            left -= now;
        }
        check.add_changes();
        check.add_head_start();
        if form == Form::Module {
            check.end_module();
        }
        check
    }

    /// A device that does not come back in this phase. A machine of its own for each: afterwards it
    /// does not suspend any more.
    pub fn hang(seed: u64, form: Form, phase: usize) -> Check {
        let mut check = Check::empty(seed, form);
        if form == Form::Module {
            check.begin_module(false);
        }
        while !check.add_hang(phase) {}
        if form == Form::Module {
            check.unload();
        }
        check
    }

    /// Also looks whether data races were watched for.
    pub fn watch_races(&mut self) {
        let path = KCSAN.into();
        self.push(Step::Read { path }, Expect::Watched);
    }

    fn push(&mut self, step: Step, expect: Expect) {
        self.steps.push(step);
        self.expects.push(expect);
        self.modes.push(self.mode);
    }

    fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.push(set_mode(mode), Expect::Nothing);
    }

    fn cycle(&mut self, expect: Expect) {
        self.push(Step::Cycle { order: true }, expect);
    }

    /// The graph's number.
    fn build(&mut self, graph: Graph, scope: Scope) -> usize {
        let text = graph.text(false);
        self.graphs.push(graph);
        self.push(Step::Graph { text }, Expect::Nothing);
        self.push(set_scope(scope), Expect::Nothing);
        self.graphs.len() - 1
    }

    /// Builds a new graph and takes it through both ways once in each mode, graph mode last; what
    /// it is, and its scope.
    fn add_graph(&mut self) -> (usize, Scope, Dice) {
        let (graph, scope, dice) = self.random_graph();
        let number = self.build(graph, scope);
        self.cycle_in_each_mode(number, scope);
        (number, scope, dice)
    }

    fn random_graph(&self) -> (Graph, Scope, Dice) {
        let mut dice = Dice::new(self.seed, self.graphs.len() as u64);
        let mut graph = Graph::random(&mut dice);
        if self.form == Form::Module {
            graph = graph.without_unordered_links();
        }
        let scope = *dice.pick(&Scope::ALL);
        (graph, scope, dice)
    }

    /// Graph mode last.
    fn cycle_in_each_mode(&mut self, number: usize, scope: Scope) {
        // First, because it says which order the list has, and how long devices take.
        self.set_mode(Mode::List);
        self.cycle(Expect::List { graph: number });
        for mode in [Mode::Threshold, Mode::Async, Mode::Graph] {
            self.set_mode(mode);
            self.cycle(Expect::Whole {
                graph: number,
                keeps_list: keeps_list(mode, scope),
            });
        }
    }

    fn add_injections(&mut self, count: u64) {
        let (number, scope, mut dice) = self.add_graph();
        let devices = &self.graphs[number].devices;
        let able = able_devices(devices);
        if able.is_empty() {
            return;
        }
        // Ours most often.
        let mode = match dice.between(0, 9) {
            0 => Mode::List,
            1 => Mode::Threshold,
            2 => Mode::Async,
            _ => Mode::Graph,
        };
        let keeps_list = keeps_list(mode, scope);
        self.set_mode(mode);
        for _ in 0..count {
            let injection = Injection {
                device: *dice.pick(&able),
                phase: dice.between(0, 5) as usize,
                wakes: dice.chance(0.3),
            };
            let line = injection.line();
            self.push(Step::Inject { line }, Expect::Nothing);
            self.cycle(Expect::Injected {
                graph: number,
                keeps_list,
                injection,
            });
            self.cycle(Expect::Whole {
                graph: number,
                keeps_list,
            });
        }
    }

    /// Whether the graph had a device that can hang.
    fn add_hang(&mut self, phase: usize) -> bool {
        let (graph, _, mut dice) = self.add_graph();
        let able = able_devices(&self.graphs[graph].devices);
        if able.is_empty() {
            return false;
        }
        let device = *dice.pick(&able);
        let name = device_name(device);
        let line = format!("hang {name} {} {HANG_MS}", PHASES[phase]);
        self.push(set_timeout(TIMEOUT_MS), Expect::Nothing);
        self.push(Step::Inject { line }, Expect::Nothing);
        self.cycle(Expect::Hung {
            graph,
            device,
            phase,
        });
        self.cycle(Expect::Refused { graph, device });
        true
    }

    /// Checks one answer.
    ///
    /// # Errors
    /// The order cannot be read.
    pub fn receive(&mut self, answer: &Answer) -> Result<(), LabError> {
        self.report.add_kernel_reports(&answer.reports);
        let Some(cycle) = &answer.cycle else {
            self.hear_text(answer);
            return Ok(());
        };
        self.report.transitions += 1;
        let mode = self.modes[answer.step];
        *self.report.by_mode.entry(mode).or_default() += 1;
        let order = Order::parse(&cycle.order).map_err(LabError::Unexpected)?;
        let (graph, breaches) = match self.expects[answer.step].clone() {
            Expect::Nothing | Expect::KUnit | Expect::Watched | Expect::HeadStart { .. } => {
                return Ok(());
            }
            Expect::List { graph } => {
                self.report.graphs += 1;
                let resumed = PHASES.len() - 1;
                self.list = order.begun(resumed);
                (graph, self.whole(&order, cycle, graph, true))
            }
            Expect::Whole { graph, keeps_list } => {
                (graph, self.whole(&order, cycle, graph, keeps_list))
            }
            Expect::Injected {
                graph,
                keeps_list,
                injection,
            } => {
                let mut breaches = self.order_breaches(&order, graph, keeps_list);
                breaches.extend(injection.breaches(cycle));
                *if injection.wakes {
                    &mut self.report.wakeups
                } else {
                    &mut self.report.failures
                } += 1;
                (graph, breaches)
            }
            Expect::Changed {
                graph,
                keeps_list,
                change,
            } => {
                let breaches = self.hear_change(order.clone(), cycle, (graph, keeps_list), change);
                (graph, breaches)
            }
            Expect::Hung {
                graph,
                device,
                phase,
            } => {
                self.report.hangs += 1;
                (graph, self.hung(order.clone(), cycle, graph, device, phase))
            }
            Expect::Refused { graph, device } => (graph, refused(cycle, device)),
            Expect::Module(expect) => self.hear_cycle_beside_module(expect, &order, cycle),
        };
        self.blame(breaches, graph, answer.step);
        self.order = order;
        Ok(())
    }

    fn hear_text(&mut self, answer: &Answer) {
        let text = &answer.text;
        let (found, breach) = match self.expects.get(answer.step) {
            Some(Expect::KUnit) => {
                let passed = kunit_passed(text);
                self.report.kunit += passed;
                (passed > 0, "no KUnit test passed")
            }
            Some(Expect::Module(expect)) => {
                let expect = *expect;
                self.hear_module(expect, text);
                return;
            }
            Some(&Expect::HeadStart { last }) => {
                self.hear_head_start(text, last);
                return;
            }
            Some(Expect::Watched) => {
                let watched = accesses_watched(text);
                self.report.accesses_watched += watched;
                (watched > 0, "the kernel did not watch for data races")
            }
            _ => return,
        };
        if !found {
            self.report.breaches.push(format!("{breach}: {text:?}"));
        }
    }

    fn blame(&mut self, breaches: Vec<String>, graph: usize, step: usize) {
        let (seed, mode) = (self.seed, self.modes[step]);
        self.report.breaches.extend(
            breaches.into_iter().map(|text| {
                format!("seed {seed}, graph {graph}, step {step}, {mode} mode: {text}")
            }),
        );
    }

    /// The others went on, in order; the error, or on the way up the log, names the device that
    /// hung and its phase.
    fn hung(
        &self,
        mut order: Order,
        cycle: &Cycle,
        graph: usize,
        device: usize,
        phase: usize,
    ) -> Vec<String> {
        order.calls.retain(|call| call.device != device);
        let mut breaches = self.order_breaches(&order, graph, false);
        breaches.extend(hang_breaches(cycle, device, phase));
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

/// Whether devices without permission keep the list's order among themselves.
fn keeps_list(mode: Mode, scope: Scope) -> bool {
    match mode {
        Mode::List | Mode::Async => true,
        // It gives permission to devices that had none.
        Mode::Threshold => false,
        Mode::Graph => scope == Scope::Async,
    }
}

/// Devices whose callbacks run: the others may be left alone, and then nothing would go wrong.
fn able_devices(devices: &[Device]) -> Vec<usize> {
    let able = |&device: &usize| !devices[device].quiet && !devices[device].direct;
    (0..devices.len()).filter(able).collect()
}

/// The error, or on the way up the log, names the device that hung and its phase.
pub(super) fn hang_breaches(cycle: &Cycle, device: usize, phase: usize) -> Vec<String> {
    let mut breaches = Vec::new();
    let (name, phase_name) = (device_name(device), PHASES[phase]);
    let (errno, said) = (cycle.errno, &cycle.failed_device);
    let right = match is_down(phase) {
        true => errno == ETIMEDOUT && *said == name,
        // The system was suspended, and is up again.
        false => errno == 0,
    };
    if !right {
        breaches.push(format!(
            "hang of {name} in {phase_name}: error {errno}, failed device {said:?}"
        ));
    }
    let told = format!("{name}: no end of its {phase_name} callback");
    let complaints = &cycle.complaints;
    if !complaints.iter().any(|line| line.contains(&told)) {
        breaches.push(format!(
            "hang of {name} in {phase_name}: the log says {complaints:?}"
        ));
    }
    breaches
}

/// The kernel begins no transition, and names the device that has not come back.
pub(super) fn refused(cycle: &Cycle, device: usize) -> Vec<String> {
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
    /// The line that the test module reads.
    pub fn line(self) -> String {
        let what = if self.wakes { "wake" } else { "fail" };
        format!("{what} {} {}", device_name(self.device), PHASES[self.phase])
    }

    /// What the kernel says of it is what happened.
    pub fn breaches(self, cycle: &Cycle) -> Vec<String> {
        let mut breaches = Vec::new();
        let (name, phase) = (device_name(self.device), PHASES[self.phase]);
        let expected: &[i32] = match (self.wakes, is_down(self.phase), self.phase) {
            (false, true, _) => &[EIO],
            // What goes wrong on the way up does not undo the suspend.
            (_, false, _) => &[0],
            (true, _, 0) => &[EBUSY],
            // After the last check for wakeups the platform test continues.
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
        let check = Check::new(1, Form::Series, 3, 25);
        let injected = |expect: &&Expect| matches!(expect, Expect::Injected { .. });
        assert_eq!(check.expects.iter().filter(injected).count(), 25);
        for (at, expect) in check.expects.iter().enumerate() {
            if injected(&expect) {
                assert!(matches!(check.expects[at + 1], Expect::Whole { .. }));
                assert!(matches!(check.steps[at - 1], Step::Inject { .. }));
            }
        }
        // Three, three for injections, one for changes and six more for what comes, and the head start's.
        assert_eq!(check.graphs.len(), 14);
    }

    #[test]
    fn each_graph_goes_through_every_mode() {
        let mut check = Check::empty(1, Form::Series);
        for _ in 0..5 {
            check.add_graph();
        }
        let cycles = |mode| {
            let steps = check.steps.iter().zip(&check.modes);
            steps
                .filter(|(step, of)| matches!(step, Step::Cycle { .. }) && **of == mode)
                .count()
        };
        assert_eq!(Mode::ALL.map(cycles), [5; 4]);
    }

    #[test]
    fn a_hang_is_told_with_its_device_and_phase_and_ends_suspends() {
        for (phase, phase_name) in PHASES.iter().enumerate() {
            let check = Check::hang(3, Form::Series, phase);
            let last = check.steps.len() - 1;
            let Expect::Refused { graph, device } = check.expects[last] else {
                panic!("{:?}", check.expects[last]);
            };
            let name = device_name(device);
            let mut cycle = Cycle {
                complaints: vec![format!(
                    "PM: {name}: no end of its {phase_name} callback within 1500 ms: given up"
                )],
                ..Cycle::default()
            };
            if is_down(phase) {
                cycle.errno = ETIMEDOUT;
                cycle.failed_device = name;
            }
            let order = Order::default;
            assert!(check.hung(order(), &cycle, graph, device, phase).is_empty());
            cycle.errno ^= ETIMEDOUT;
            cycle.complaints.clear();
            assert_eq!(check.hung(order(), &cycle, graph, device, phase).len(), 2);
        }
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
