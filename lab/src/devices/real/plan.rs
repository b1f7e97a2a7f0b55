//! The steps of a machine of real devices, and what has to come of each.

use dormouse_guest::protocol::device_job::{Answer, Cycle, Step};
use dormouse_guest::protocol::real_devices::{Function, Sleep};

use super::hardware::{PARENTS, REMOVABLES, Removable, exchanges};
use super::report::{Report, Round};
use super::{RealArgs, Whole};
use crate::devices::check::{Injection, hang_breaches, refused};
use crate::devices::form::{MODULE, TRACES, load, unload};
use crate::devices::graph::{PHASES, device_name};
use crate::devices::switches::{Mode, set_mode, set_pm_async, set_scope, set_timeout};
use crate::emulator::monitor::Exchanges;
use crate::error::LabError;
use crate::stress::Dice;

const TEST_MODULE: &str = "pm_graph_test";
/// After a boot: disks spin up, links negotiate.
const FIRST_LIMIT_S: u64 = 60;
/// After a resume.
const LIMIT_S: u64 = 30;
/// After this long a device is given up: far beyond what any takes. The one that hangs comes back
/// later than that.
const TIMEOUT_MS: u32 = 20_000;
const HANG_MS: u32 = 40_000;
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
    /// This made-up device's callback does not come back in this phase.
    Hung {
        device: usize,
        phase: usize,
    },
    /// The kernel sleeps no more, because of this one.
    Refused {
        device: usize,
    },
    Absent(&'static str),
}

pub struct Plan {
    pub steps: Vec<Step>,
    expects: Vec<(Expect, Mode)>,
    mode: Mode,
    functions: Vec<Function>,
    /// What happens while the machine sleeps.
    exchanges: Exchanges,
    /// How often it has to sleep to RAM.
    sleeps: usize,
    report: Report,
}

impl Plan {
    pub fn new(args: &RealArgs, functions: &[Function]) -> Plan {
        let mut plan = Plan {
            steps: Vec::new(),
            expects: Vec::new(),
            mode: Mode::Async,
            functions: functions.to_vec(),
            exchanges: Exchanges::new(),
            sleeps: 0,
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
        if args.exchange {
            plan.add_exchanges();
        }
        if let Some(phase) = &args.hang {
            plan.add_hang(args.seed, phase);
        }
        plan.end(args.sleep);
        plan
    }

    /// What happens while the machine sleeps.
    pub fn exchanges(&self) -> Exchanges {
        self.exchanges.clone()
    }

    fn push(&mut self, step: Step, expect: Expect) {
        self.sleeps += usize::from(matches!(step, Step::Sleep { sleep: Sleep::Ram }));
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

    /// A device goes, comes and changes while the machine sleeps to RAM.
    fn add_exchanges(&mut self) {
        for (exchanges, inputs) in exchanges() {
            self.report.exchanges += 1;
            self.exchanges.insert(self.sleeps + 1, exchanges);
            let sleep = Sleep::Ram;
            let is_timed = false;
            self.push(Step::Sleep { sleep }, Expect::Whole { sleep, is_timed });
            for function in &mut self.functions {
                if let Function::Input { devices } = function {
                    *devices = inputs;
                }
            }
            self.use_all(LIMIT_S, &[]);
            // And once more as it is now.
            self.add_sleep(Sleep::Idle, false);
        }
    }

    /// The last transition in graph order: until the callback comes back, no other one begins.
    fn add_hang(&mut self, seed: u64, phase_name: &str) {
        let phase = PHASES.iter().position(|name| *name == phase_name);
        let phase = phase.expect("one of the phases");
        let device = Dice::new(seed, 1).between(0, PARENTS.len() as u64 - 1) as usize;
        self.build_graph(&children());
        self.push(set_timeout(TIMEOUT_MS), Expect::Nothing);
        let line = format!("hang {} {phase_name} {HANG_MS}", device_name(device));
        self.push(Step::Inject { line }, Expect::Nothing);
        let sleep = Sleep::Platform;
        self.push(Step::Sleep { sleep }, Expect::Hung { device, phase });
        self.use_all(LIMIT_S, &[]);
        self.push(Step::Sleep { sleep }, Expect::Refused { device });
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
                self.blame(step, injection.device, injection.breaches(&cycle));
            }
            Expect::Hung { device, phase } => {
                if let Some(cycle) = self.transition(answer, mode, Sleep::Platform) {
                    self.report.hangs += 1;
                    self.blame(step, device, hang_breaches(&cycle, device, phase));
                }
            }
            Expect::Refused { device } => {
                let cycle = answer.cycle.clone().unwrap_or_default();
                self.blame(step, device, refused(&cycle, device));
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

    /// Of a made-up device.
    fn blame(&mut self, step: usize, device: usize, breaches: Vec<String>) {
        let parent = PARENTS[device];
        for text in breaches {
            self.breach(step, self.mode, format!("below {parent}: {text}"));
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

    /// The outcome on this kernel, on a machine that has slept to RAM so often.
    pub fn finish(self, kernel: String, slept: usize) -> Report {
        let mut report = self.report;
        if slept != self.sleeps {
            report.breaches.push(format!(
                "the machine slept to RAM {slept} times, not {}",
                self.sleeps
            ));
        }
        report.sleeps_to_ram = slept;
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RealArgs,
    }

    fn plan(options: &str) -> Plan {
        let line = ["real"].into_iter().chain(options.split_whitespace());
        Plan::new(&Line::parse_from(line).args, &[])
    }

    #[test]
    fn a_machine_that_did_not_sleep_as_often_as_it_should_have_is_a_breach() {
        let options = "--rounds 0 --modes graph --whole 4 --injections 0 --removals 0";
        // One in the round in which the kernel learns, and every second whole sleep.
        assert!(plan(options).finish(String::new(), 3).breaches.is_empty());
        for slept in [1, 4] {
            let report = plan(options).finish(String::new(), slept);
            assert_eq!(report.breaches.len(), 1, "{:?}", report.breaches);
        }
    }

    #[test]
    fn devices_are_exchanged_in_sleeps_to_ram_of_their_own() {
        let options = "--rounds 0 --modes graph --whole 4 --injections 0 --removals 0 --exchange";
        let plan = plan(options);
        assert!(plan.exchanges().keys().eq(&[4, 5, 6]));
        assert!(plan.finish(String::new(), 6).breaches.is_empty());
    }
}
