//! The steps of a machine of real devices, and what has to come of each.

use dormouse_guest::protocol::device_job::{Answer, Cycle, Step};
use dormouse_guest::protocol::real_devices::{Function, Sleep};

use super::hardware::{PARENTS, REMOVABLES, Removable};
use super::report::{Report, Round};
use super::{RealArgs, Whole};
use crate::devices::check::Injection;
use crate::devices::form::{MODULE, TRACES, load, unload};
use crate::devices::graph::{PHASES, device_name};
use crate::devices::switches::{Mode, set_mode, set_pm_async, set_scope};
use crate::error::LabError;
use crate::stress::Dice;

const TEST_MODULE: &str = "pm_graph_test";
/// After a boot: disks spin up, links negotiate.
const FIRST_LIMIT_S: u64 = 60;
/// After a resume.
const LIMIT_S: u64 = 30;
/// Rounds in which the kernel learns how long devices take; not timed.
const LEARNING: u64 = 1;

#[derive(Debug, Clone)]
enum Expect {
    Nothing,
    /// A module was loaded.
    Loaded,
    /// What could not be loaded.
    Drivers,
    Bound,
    /// So many functions work before the first transition.
    Begins(usize),
    /// So many functions work.
    Works(usize),
    /// Down and up; timed or not.
    Whole {
        sleep: Sleep,
        is_timed: bool,
    },
    Injected(Injection),
    Absent(&'static str),
}

pub struct Plan {
    pub steps: Vec<Step>,
    expects: Vec<(Expect, Mode)>,
    mode: Mode,
    functions: Vec<Function>,
    report: Report,
}

impl Plan {
    pub fn new(args: &RealArgs, functions: &[Function]) -> Plan {
        let mut plan = Plan {
            steps: Vec::new(),
            expects: Vec::new(),
            mode: Mode::Async,
            functions: functions.to_vec(),
            report: Report::default(),
        };
        plan.begin();
        plan.add_rounds(args);
        plan.set_mode(Mode::Graph);
        for number in 0..args.whole {
            let sleep = [Sleep::Idle, args.sleep.sleep()][number as usize % 2];
            plan.add_sleep(sleep, false);
        }
        plan.add_injections(args.seed, args.injections);
        for number in 0..args.removals as usize {
            plan.add_removal(&REMOVABLES[number % REMOVABLES.len()]);
        }
        plan.end(args.sleep);
        plan
    }

    fn push(&mut self, step: Step, expect: Expect) {
        self.steps.push(step);
        self.expects.push((expect, self.mode));
    }

    fn set(&mut self, (path, value): (&str, &str)) {
        let (path, value) = (path.to_owned(), value.to_owned());
        self.push(Step::Set { path, value }, Expect::Nothing);
    }

    /// List order and stock async are the stock kernel's own; nothing of ours runs.
    fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        let ours = if mode == Mode::Graph {
            mode
        } else {
            Mode::Async
        };
        self.push(set_mode(ours), Expect::Nothing);
        self.push(set_pm_async(mode != Mode::List), Expect::Nothing);
    }

    fn use_all(&mut self, limit_s: u64, without: &[&str]) {
        let functions = self.functions.iter();
        let functions = functions.filter(|one| !without.contains(&one.title().as_str()));
        let functions: Vec<Function> = functions.cloned().collect();
        let expect = Expect::Works(functions.len());
        self.push(Step::Use { functions, limit_s }, expect);
    }

    /// What does not work before the first transition says nothing about any.
    fn begin_using(&mut self) {
        self.use_all(FIRST_LIMIT_S, &[]);
        if let Some((expect, _)) = self.expects.last_mut() {
            *expect = Expect::Begins(self.functions.len());
        }
    }

    fn begin(&mut self) {
        self.push(Step::LoadDrivers, Expect::Drivers);
        self.push(load(TEST_MODULE, ""), Expect::Loaded);
        self.begin_using();
        self.push(Step::Bound, Expect::Bound);
        self.push(load(MODULE, ""), Expect::Loaded);
    }

    fn add_sleep(&mut self, sleep: Sleep, is_timed: bool) {
        self.push(Step::Sleep { sleep }, Expect::Whole { sleep, is_timed });
        self.use_all(LIMIT_S, &[]);
    }

    fn add_rounds(&mut self, args: &RealArgs) {
        self.push(set_scope(args.scope), Expect::Nothing);
        for round in 0..args.rounds + LEARNING {
            for turn in 0..args.modes.len() {
                // No mode always follows the same one.
                let mode = args.modes[(turn + round as usize) % args.modes.len()];
                self.set_mode(mode);
                for sleep in args.sleep.ways() {
                    self.add_sleep(sleep, round >= LEARNING);
                }
            }
        }
    }

    /// A made-up child of each of some real devices; one of them fails, or wakes the system.
    fn add_injections(&mut self, seed: u64, count: u64) {
        if count == 0 {
            return;
        }
        let mut dice = Dice::new(seed, 0);
        self.build_graph(&children());
        for number in 0..count as usize {
            let injection = Injection {
                device: dice.between(0, PARENTS.len() as u64 - 1) as usize,
                phase: number % PHASES.len(),
                wakes: number / PHASES.len() % 2 == 1,
            };
            let line = injection.line();
            self.push(Step::Inject { line }, Expect::Nothing);
            let sleep = Sleep::Platform;
            self.push(Step::Sleep { sleep }, Expect::Injected(injection));
            self.use_all(LIMIT_S, &[]);
            self.add_sleep(sleep, false);
        }
        self.build_graph("");
    }

    fn build_graph(&mut self, text: &str) {
        let text = text.to_owned();
        self.push(Step::Graph { text }, Expect::Nothing);
    }

    fn add_removal(&mut self, removable: &Removable) {
        self.report.removals += 1;
        self.set(removable.out);
        let sleep = Sleep::Idle;
        let expect = Expect::Whole {
            sleep,
            is_timed: false,
        };
        self.push(Step::Sleep { sleep }, expect);
        self.use_all(LIMIT_S, removable.functions);
        self.set(removable.back);
        self.use_all(FIRST_LIMIT_S, &[]);
        self.add_sleep(sleep, false);
    }

    /// Without the module all is as before.
    fn end(&mut self, whole: Whole) {
        self.set_mode(Mode::Async);
        self.push(unload(), Expect::Nothing);
        for path in TRACES {
            let step = Step::Exists { path: path.into() };
            self.push(step, Expect::Absent(path));
        }
        self.add_sleep(
            if whole == Whole::Cxl {
                Sleep::Cxl
            } else {
                Sleep::Platform
            },
            false,
        );
    }

    /// Takes one answer.
    ///
    /// # Errors
    /// A module was refused.
    pub fn receive(&mut self, answer: &Answer) -> Result<(), LabError> {
        let (expect, mode) = match self.expects.get(answer.step) {
            Some((expect, mode)) => (expect.clone(), *mode),
            None => (Expect::Nothing, self.mode),
        };
        let step = answer.step;
        for text in &answer.reports {
            let text = format!("step {step}, {mode} mode: {text}");
            self.report.kernel_reports.push(text);
        }
        match expect {
            Expect::Nothing => {}
            Expect::Loaded if answer.text == "loaded" => {}
            Expect::Loaded => return Err(LabError::Guest(answer.text.clone())),
            Expect::Drivers => {
                let complaints = answer.text.lines().map(str::to_owned);
                self.report.missing_drivers.extend(complaints);
            }
            Expect::Bound => self.report.count(&answer.bound),
            Expect::Begins(_) if !answer.useless.is_empty() => {
                let one = |(function, error): &(Function, String)| {
                    format!("{}: {error}", function.title())
                };
                let list: Vec<String> = answer.useless.iter().map(one).collect();
                let list = list.join("\n  ");
                let missing = self.report.missing_drivers.join("\n  ");
                return Err(LabError::Guest(format!(
                    "before the first transition these do not work:\n  {list}\n  {missing}"
                )));
            }
            Expect::Begins(used) | Expect::Works(used) => {
                self.report.uses += (used - answer.useless.len()) as u64;
                for (function, error) in &answer.useless {
                    let title = function.title();
                    self.breach(step, mode, format!("{title}: {error}"));
                }
            }
            Expect::Absent(_) if answer.text == "no" => {}
            Expect::Absent(path) => self.breach(step, mode, format!("after unloading, {path}")),
            Expect::Whole { sleep, is_timed } => self.hear(answer, mode, sleep, is_timed),
            Expect::Injected(injection) => {
                let Some(cycle) = self.transition(answer, mode, Sleep::Platform) else {
                    return Ok(());
                };
                match injection.wakes {
                    true => self.report.wakeups += 1,
                    false => self.report.failures += 1,
                }
                let parent = PARENTS[injection.device];
                for text in injection.breaches(&cycle) {
                    self.breach(step, mode, format!("below {parent}: {text}"));
                }
            }
        }
        Ok(())
    }

    fn transition(&mut self, answer: &Answer, mode: Mode, way: Sleep) -> Option<Cycle> {
        *self.report.by_mode.entry(mode).or_default() += 1;
        *self.report.by_way.entry(way).or_default() += 1;
        self.report.transitions += 1;
        if answer.cycle.is_none() {
            self.breach(answer.step, mode, "no transition".into());
        }
        answer.cycle.clone()
    }

    fn hear(&mut self, answer: &Answer, mode: Mode, sleep: Sleep, is_timed: bool) {
        let Some(cycle) = self.transition(answer, mode, sleep) else {
            return;
        };
        if cycle.errno != 0 {
            let (errno, device) = (cycle.errno, &cycle.failed_device);
            let text = format!(
                "error {errno}, failed device {device:?}: {:?}",
                cycle.complaints
            );
            self.breach(answer.step, mode, text);
        } else if is_timed {
            self.report.rounds.push(Round {
                mode,
                sleep,
                phases_us: cycle.phases_us,
            });
        }
    }

    fn breach(&mut self, step: usize, mode: Mode, text: String) {
        let text = format!("step {step}, {mode} mode: {text}");
        self.report.breaches.push(text);
    }

    /// What was wrong so far.
    pub fn breaches(&self) -> impl Iterator<Item = &String> {
        self.report
            .breaches
            .iter()
            .chain(&self.report.kernel_reports)
    }

    /// The outcome on this kernel.
    pub fn finish(self, kernel: String) -> Report {
        let mut report = self.report;
        report.kernel = kernel;
        report.functions = self.functions.len();
        report.finish();
        report
    }
}

/// One child below each of the real devices.
fn children() -> String {
    let line = |(number, parent): (usize, &&str)| {
        format!("device {} under={parent} async\n", device_name(number))
    };
    PARENTS.iter().enumerate().map(line).collect()
}
