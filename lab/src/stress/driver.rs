//! One stress cycle on an emulated machine.
//!
//! ```text
//! (boot) → fill, start the load → sleep … off … wake … home → compare everything → end the load
//!                                 └───── power cut at an instant in here ─────┘
//!                                        └→ power on → as above, or a cold boot: e2fsck,
//!                                                      what was durable must be there
//! ```

use std::time::{Duration, Instant};

use dormouse_guest::protocol::stress::{Durable, StressAsk, StressVerdict};
use dormouse_guest::protocol::{Ask, FromGuest, Hello, RunPlan, RunResult};
use dormouse_report::event::Kind;
use serde_json::Value;

use super::class::Class;
use super::evidence::Traces;
use super::judge::{Cut, judge};
use super::kernel_log;
use super::line::StressLine;
use super::load::{LOAD_TIMEOUT, Running, check_file_systems, start_load, stress};
use super::phase::{Phase, Tracker};
use super::plan::{CyclePlan, Home};
use super::trouble::{Stage, Stop, Trouble};
use super::watch::{Watch, stop, wait_or_cut};
use crate::cycle::line::Outcome;
use crate::emulator::lab::{BOOT_TIMEOUT, Lab, POWER_OFF_TIMEOUT};
use crate::emulator::power::{PowerOn, Signal, What, reply_to};
use crate::emulator::qmp::StopCause;
use crate::error::LabError;
use crate::machine::Machine;

const SLEEP_TIMEOUT: Duration = Duration::from_secs(420);
const HOME_TIMEOUT: Duration = Duration::from_secs(420);
/// e2fsck takes seconds in an emulated machine: undisturbed cycles have it now and then.
const CHECK_EVERY: u64 = 8;
/// With `--home never` the machine runs so long on CXL pages.
const ON_CXL: Duration = Duration::from_millis(400);

/// A machine under stress.
pub struct Driver {
    lab: Lab,
    running: Option<Running>,
}

/// How the request to sleep ended.
enum Down {
    Off,
    Cut,
    Answered(RunResult),
}

/// How a power-on ended.
enum Up {
    Resumed,
    ColdBoot(Hello),
    Cut,
}

impl Driver {
    pub fn new(lab: Lab) -> Driver {
        Driver { lab, running: None }
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Takes the power away and gives what stays.
    pub fn into_machine(self) -> Machine {
        drop(self.running);
        self.lab.machine
    }

    /// Runs one cycle into `line`; returns its traces.
    ///
    /// # Errors
    /// Only what makes further cycles senseless: interruption, no emulator.
    pub fn cycle(
        &mut self,
        plan: &CyclePlan,
        cut_at_s: Option<f64>,
        line: &mut StressLine,
    ) -> Result<Traces, LabError> {
        let mut traces = Traces::begin(&self.lab.machine);
        let begun = Instant::now();
        let name = format!("cycle {}", plan.cycle);
        self.lab.setting.mark("cycle", &name, Kind::Begin);
        line.fill_bytes = plan.fill.0;
        line.load = plan.describe_load();
        line.sleep_arguments.clone_from(&plan.sleep_arguments);
        line.cut_at_s = cut_at_s;

        let mut troubles = Vec::new();
        match self.steps(plan, cut_at_s, line, &mut traces, &mut troubles) {
            Ok(()) => {}
            Err(Stop::Trouble(trouble)) => troubles.push(trouble),
            Err(Stop::End(error)) => return Err(error),
        }
        let findings = kernel_log::findings(&traces.console(&self.lab.machine));
        troubles.extend(findings.into_iter().map(Trouble::from));
        line.total_s = begun.elapsed().as_secs_f64();
        if let Some(class) = troubles.iter().map(|trouble| trouble.class).min() {
            line.class = Some(class);
            let mut reasons: Vec<String> = Vec::new();
            // The gravest first; what follows from it is worth reading, too.
            troubles.sort_by_key(|trouble| trouble.class);
            for trouble in troubles {
                if !reasons.contains(&trouble.reason) && reasons.len() < 8 {
                    reasons.push(trouble.reason);
                }
            }
            line.reason = reasons.join("; ");
            line.verified = false;
        }
        line.ok = line.class.is_none();
        let event = self
            .lab
            .setting
            .event("cycle", &name, Kind::End)
            .with("outcome", line.outcome.name())
            .with("ok", line.ok);
        self.lab.setting.record(&event);
        Ok(traces)
    }

    /// Switches the machine off in order, if it runs.
    pub fn finish(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.power.power_off(POWER_OFF_TIMEOUT);
        }
    }

    fn steps(
        &mut self,
        plan: &CyclePlan,
        cut_at_s: Option<f64>,
        line: &mut StressLine,
        traces: &mut Traces,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        let mut running = self.switched_on()?;
        let durable = start_load(&mut running, plan)?;

        let arguments = plan.sleep_arguments.clone();
        let mut watch = Watch {
            tracker: Tracker::default(),
            asked: Instant::now(),
            cut_at: cut_at_s.map(Duration::from_secs_f64),
            cut_phase: None,
        };
        let request = running
            .power
            .send(Ask::Sleep { arguments })
            .map_err(|error| Stop::at(Stage::Down, error, None))?;
        let down = self.go_down(&mut running.power, request, &mut watch, line)?;
        let Running { power, hello } = running;
        match down {
            Down::Answered(result) => {
                // The machine goes on as before: does it really?
                line.outcome = Outcome::Refused;
                if result.status == 0 {
                    return Err(Trouble::new(
                        Class::Lab,
                        "`dormouse sleep` reports success, but the power was never gone",
                    )
                    .into());
                }
                let (class, reason) = judge(Outcome::Refused, &refusal(&result), None)
                    .expect_err("a refusal is never right here");
                troubles.push(Trouble::new(class, reason));
                let mut running = Running { power, hello };
                self.compare(&mut running, plan, troubles)?;
                self.running = Some(running);
                return Ok(());
            }
            Down::Off => {
                line.span_s.down = Some(watch.asked.elapsed().as_secs_f64());
                watch.tracker.enter(Phase::Off);
            }
            Down::Cut => {}
        }
        drop(power);
        self.stay_off(plan, &mut watch, line);
        self.come_back(
            &hello, request, plan, &durable, &mut watch, line, traces, troubles,
        )
    }

    /// The running machine, or a new boot.
    fn switched_on(&mut self) -> Result<Running, Stop> {
        if let Some(running) = self.running.take() {
            return Ok(running);
        }
        self.lab.setting.mark("boot", "boot", Kind::Begin);
        let mut power = self
            .lab
            .power_on(None)
            .map_err(|error| Stop::at(Stage::Boot, error, None))?;
        let hello = match power.wait_ready(BOOT_TIMEOUT) {
            Ok(hello) => hello,
            Err(error) => return Err(stop(Stage::Boot, error, &mut power)),
        };
        self.lab.setting.mark("boot", "boot", Kind::End);
        let mut running = Running { power, hello };
        stress::<Value>(&mut running, StressAsk::Mount)?;
        Ok(running)
    }

    fn go_down(
        &mut self,
        power: &mut PowerOn,
        request: u64,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<Down, Stop> {
        self.lab.setting.mark("suspend", "suspend", Kind::Begin);
        let what = "the machine to switch itself off";
        let seen =
            wait_or_cut(
                power,
                Stage::Down,
                what,
                SLEEP_TIMEOUT,
                watch,
                |signal| match &signal.what {
                    What::Stopped => Some(None),
                    _ => reply_to(signal, request).map(Some),
                },
            )?;
        match seen {
            None => {
                self.cut(power, watch, line);
                Ok(Down::Cut)
            }
            Some(None) => match power.stop_cause() {
                Some(StopCause::PoweredOff) => {
                    self.lab.setting.mark("suspend", "suspend", Kind::End);
                    Ok(Down::Off)
                }
                Some(StopCause::Reset) => Err(Trouble::new(
                    Class::CrashReset,
                    "the machine reset itself on its way down",
                )
                .into()),
                cause => Err(Trouble::new(
                    Class::Emulator,
                    format!("the emulator ended on the way down ({cause:?})"),
                )
                .into()),
            },
            Some(Some(Ok(value))) => serde_json::from_value(value)
                .map(Down::Answered)
                .map_err(|error| Trouble::new(Class::Lab, error.to_string()).into()),
            Some(Some(Err(error))) => Err(Trouble::new(Class::Lab, error).into()),
        }
    }

    /// No power for a while; a cut that falls into it changes nothing.
    fn stay_off(&self, plan: &CyclePlan, watch: &mut Watch, line: &mut StressLine) {
        let off = Duration::from_millis(plan.off_ms);
        let begun = Instant::now();
        std::thread::sleep(off);
        if watch.cut_phase.is_none() && watch.is_due() {
            watch.cut(line);
        }
        line.span_s.off = begun.elapsed().as_secs_f64();
    }

    /// Powers on until the machine runs, again after a cut, and compares what must be compared.
    #[allow(clippy::too_many_arguments)] // one cycle's whole state, used once
    fn come_back(
        &mut self,
        before: &Hello,
        request: u64,
        plan: &CyclePlan,
        durable: &Durable,
        watch: &mut Watch,
        line: &mut StressLine,
        traces: &mut Traces,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        // Power is cut once, so the second round ends.
        loop {
            traces.note_image(&self.lab.machine);
            if watch.cut_phase.is_some() {
                line.cut_image = traces.image_state().to_owned();
            }
            self.lab.setting.mark("resume", "resume", Kind::Begin);
            let mut power = self
                .lab
                .power_on(None)
                .map_err(|error| Stop::at(Stage::Up, error, None))?;
            let on_since = Instant::now();
            if watch.cut_phase.is_none() {
                watch.tracker.enter(Phase::FirmwareUp);
            }
            let up = match self.go_up(&mut power, before, watch, line) {
                // The kernel that hangs may be a new one: then firmware had done its part.
                Err(Stop::Trouble(trouble)) if self.is_booting(&power) => {
                    return Err(trouble.while_booting().into());
                }
                up => up?,
            };
            match up {
                Up::Cut => continue,
                Up::ColdBoot(hello) => {
                    line.outcome = Outcome::ColdBoot;
                    line.reason = self.cold_boot_reason(&power);
                    let cut = cut_left_behind(watch, traces);
                    add(judge(line.outcome, &line.reason, cut), troubles);
                    let mut running = Running { power, hello };
                    self.check_after_boot(&mut running, plan, durable, troubles)?;
                    line.verified = troubles.is_empty();
                    self.running = Some(running);
                    return Ok(());
                }
                Up::Resumed => {
                    line.outcome = Outcome::Resumed;
                    add(
                        judge(line.outcome, "", cut_left_behind(watch, traces)),
                        troubles,
                    );
                    self.lab.setting.mark("resume", "resume", Kind::End);
                    if watch.cut_phase.is_none_or(|phase| phase == Phase::Off) {
                        line.span_s.up = Some(on_since.elapsed().as_secs_f64());
                    }
                    let home_since = Instant::now();
                    if !self.come_home(&mut power, request, plan, watch, line)? {
                        continue;
                    }
                    line.span_s.home = Some(home_since.elapsed().as_secs_f64());
                    watch.tracker.enter(Phase::Awake);
                    if watch.cut_at.is_some() {
                        self.wait_for_cut(&mut power, watch, line)?;
                        continue;
                    }
                    let mut running = Running {
                        power,
                        hello: before.clone(),
                    };
                    self.injected(&mut running, plan)?;
                    self.compare(&mut running, plan, troubles)?;
                    line.verified = troubles.is_empty();
                    self.running = Some(running);
                    return Ok(());
                }
            }
        }
    }

    fn go_up(
        &mut self,
        power: &mut PowerOn,
        before: &Hello,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<Up, Stop> {
        let what = "waking or a boot";
        let seen = wait_or_cut(
            power,
            Stage::Up,
            what,
            BOOT_TIMEOUT,
            watch,
            |signal| match &signal.what {
                What::Agent(FromGuest::Ready(hello)) => Some(Up::ColdBoot(hello.clone())),
                What::Agent(FromGuest::Awake { boot_id, .. }) if *boot_id == before.boot_id => {
                    Some(Up::Resumed)
                }
                What::Agent(FromGuest::Event { event }) if event["name"] == "thaw" => {
                    Some(Up::Resumed)
                }
                _ => None,
            },
        )?;
        Ok(seen.unwrap_or_else(|| {
            self.cut(power, watch, line);
            Up::Cut
        }))
    }

    /// Until all pages are home; false if power was cut meanwhile.
    fn come_home(
        &mut self,
        power: &mut PowerOn,
        request: u64,
        plan: &CyclePlan,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<bool, Stop> {
        let Some(slept) =
            self.answer(power, request, "the end of `dormouse sleep`", watch, line)?
        else {
            return Ok(false);
        };
        expect_success("`dormouse sleep` after waking", &slept)?;
        let shell = match plan.home {
            Home::Wait => None,
            Home::Background => Some("while pgrep -x dormouse >/dev/null; do sleep 0.05; done"),
            Home::Later => Some("exec dormouse home --json"),
        };
        if plan.home == Home::Later {
            std::thread::sleep(watch.limit(ON_CXL));
        }
        for shell in shell.into_iter().chain([NODES_WITH_MEMORY]) {
            let ask = Ask::Run(RunPlan {
                argv: ["/bin/sh", "-c", shell].map(String::from).to_vec(),
                stdin: String::new(),
                cgroup: None,
                timeout_s: HOME_TIMEOUT.as_secs(),
            });
            let request = match power.send(ask) {
                Ok(request) => request,
                Err(error) => return Err(stop(Stage::Home, error, power)),
            };
            let Some(result) = self.answer(power, request, "pages to migrate back", watch, line)?
            else {
                return Ok(false);
            };
            expect_success(shell, &result)?;
        }
        Ok(true)
    }

    /// A program's end in the machine; None if power was cut meanwhile.
    fn answer(
        &mut self,
        power: &mut PowerOn,
        request: u64,
        what: &str,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<Option<RunResult>, Stop> {
        let seen = wait_or_cut(power, Stage::Home, what, HOME_TIMEOUT, watch, |signal| {
            reply_to(signal, request)
        })?;
        match seen {
            None => {
                self.cut(power, watch, line);
                Ok(None)
            }
            Some(Ok(value)) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| Trouble::new(Class::Lab, error.to_string()).into()),
            Some(Err(error)) => Err(Trouble::new(Class::NoWayHome, error).into()),
        }
    }

    fn wait_for_cut(
        &mut self,
        power: &mut PowerOn,
        watch: &mut Watch,
        line: &mut StressLine,
    ) -> Result<(), Stop> {
        let never = |_: &Signal| None::<()>;
        wait_or_cut(
            power,
            Stage::Awake,
            "the power cut",
            HOME_TIMEOUT,
            watch,
            never,
        )?;
        self.cut(power, watch, line);
        Ok(())
    }

    fn cut(&mut self, power: &mut PowerOn, watch: &mut Watch, line: &mut StressLine) {
        // What the machine had sent before it lost its power tells where it was, not the instant
        // at which the host meant to cut.
        power.cut_power_hearing(|signal| watch.tracker.hear(signal));
        watch.cut(line);
        let event = self
            .lab
            .setting
            .event("machine", "power-cut", Kind::Mark)
            .with("phase", watch.tracker.phase().name())
            .with("step", watch.tracker.step());
        self.lab.setting.record(&event);
    }

    fn injected(&self, running: &mut Running, plan: &CyclePlan) -> Result<(), Stop> {
        let Some(injection) = plan.inject else {
            return Ok(());
        };
        match running.power.shell(injection.shell, LOAD_TIMEOUT) {
            Ok(result) if result.status == 0 => Ok(()),
            Ok(result) => Err(Trouble::new(
                Class::Lab,
                format!(
                    "injecting {} failed: {}",
                    injection.name,
                    result.stderr.trim()
                ),
            )
            .into()),
            Err(error) => Err(stop(Stage::Awake, error, &mut running.power)),
        }
    }

    /// Everything, on a machine that went on where it stood; then the load ends.
    fn compare(
        &mut self,
        running: &mut Running,
        plan: &CyclePlan,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        self.lab.setting.mark("workload", "verify", Kind::Begin);
        let verdict = match running.power.verify(plan.fill.0) {
            Ok(verdict) => verdict,
            Err(error) => return Err(stop(Stage::Awake, error, &mut running.power)),
        };
        let complaints = verdict.complaints().into_iter();
        troubles.extend(complaints.map(|why| Trouble::new(Class::DataDiffers, why)));
        let verdict: StressVerdict = stress(running, StressAsk::Verify)?;
        troubles.extend(Trouble::all(&verdict));
        let verdict: StressVerdict = stress(running, StressAsk::Stop)?;
        troubles.extend(Trouble::all(&verdict));
        self.lab.setting.mark("workload", "verify", Kind::End);
        if plan.cycle.is_multiple_of(CHECK_EVERY) {
            check_file_systems(running, troubles)?;
        }
        Ok(())
    }

    /// What must be there after a cold boot: sound file systems, with all that was durable.
    fn check_after_boot(
        &mut self,
        running: &mut Running,
        plan: &CyclePlan,
        durable: &Durable,
        troubles: &mut Vec<Trouble>,
    ) -> Result<(), Stop> {
        stress::<Value>(running, StressAsk::Mount)?;
        check_file_systems(running, troubles)?;
        let ask = StressAsk::VerifyDurable {
            plan: plan.load.clone(),
            durable: durable.clone(),
        };
        let verdict: StressVerdict = stress(running, ask)?;
        troubles.extend(Trouble::all(&verdict));
        Ok(())
    }

    /// Whether a kernel started anew in that power-on.
    fn is_booting(&self, power: &PowerOn) -> bool {
        self.said(power).contains(FIRST_KERNEL_LINE)
    }

    fn said(&self, power: &PowerOn) -> String {
        let log = self.lab.machine.console_log(power.number());
        let text = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Firmware's reason on the console of that power-on.
    fn cold_boot_reason(&self, power: &PowerOn) -> String {
        self.said(power)
            .lines()
            .find_map(|line| line.split_once("dormouse: cold boot: "))
            .map_or_else(String::new, |(_, reason)| reason.trim().to_owned())
    }
}

/// What each kernel says first, and one that resumes does not.
const FIRST_KERNEL_LINE: &str = "Linux version ";

/// Awake and migrated back, DRAM is the only node with memory.
const NODES_WITH_MEMORY: &str = "nodes=$(cat /sys/devices/system/node/has_memory); \
    [ \"$nodes\" = 0 ] || { dormouse home --json; echo \"memory on nodes $nodes\" >&2; exit 1; }";

/// The power cut, if there was one: what the machine reported, and what firmware finds.
fn cut_left_behind(watch: &Watch, traces: &Traces) -> Option<Cut> {
    watch.cut_phase.map(|phase| Cut {
        phase,
        resumable: traces.is_resumable(),
    })
}

fn add(judged: Result<(), (Class, String)>, troubles: &mut Vec<Trouble>) {
    troubles.extend(
        judged
            .err()
            .map(|(class, reason)| Trouble::new(class, reason)),
    );
}

fn expect_success(what: &str, result: &RunResult) -> Result<(), Stop> {
    if result.status == 0 {
        return Ok(());
    }
    Err(Trouble::new(
        Class::NoWayHome,
        format!("{what} ended with {}: {}", result.status, refusal(result)),
    )
    .into())
}

/// The last line of each stream of a program, on one line.
fn refusal(result: &RunResult) -> String {
    let said = |text: &str| {
        text.lines()
            .rfind(|line| !line.trim().is_empty())
            .map(str::to_owned)
    };
    [said(&result.stdout), said(&result.stderr)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" | ")
}
