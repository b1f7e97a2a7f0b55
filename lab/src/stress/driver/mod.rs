//! One stress cycle on an emulated machine.
//!
//! ```text
//! (boot) → fill, start the load → sleep … off … wake … home → compare everything → end the load
//!                                 └───── power cut at an instant in here ─────┘
//!                                        └→ power on → as above, or a cold boot: e2fsck,
//!                                                      what was durable must be there
//! ```

mod checks;
mod down;
mod migrate_back;
mod up;

use std::time::{Duration, Instant};

use dormouse_guest::protocol::Call;
use dormouse_guest::protocol::stress::StressCall;
use dormouse_report::event::Kind;
use serde_json::Value;

use super::class::Class;
use super::evidence::Traces;
use super::judge::judge;
use super::kernel_log;
use super::line::StressLine;
use super::load::{Running, start_load, stress};
use super::phase::{Phase, Tracker};
use super::plan::CyclePlan;
use super::trouble::{Stage, Stop, Trouble};
use super::watch::{Watch, stop};
use crate::cycle::line::Outcome;
use crate::emulator::lab::{BOOT_TIMEOUT, Lab, POWER_OFF_TIMEOUT};
use crate::emulator::power::PowerOn;
use crate::error::LabError;
use crate::machine::Machine;
use down::Down;

/// A machine under stress.
pub struct Driver {
    lab: Lab,
    running: Option<Running>,
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
        line.cut.at_s = cut_at_s;

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
            requested: Instant::now(),
            cut_at: cut_at_s.map(Duration::from_secs_f64),
            cut_phase: None,
        };
        let request = running
            .power
            .send(Call::Sleep { arguments })
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
                let (class, reason) =
                    judge(Outcome::Refused, &migrate_back::refusal(&result), None)
                        .expect_err("a refusal is never right here");
                troubles.push(Trouble::new(class, reason));
                let mut running = Running { power, hello };
                self.compare(&mut running, plan, troubles)?;
                self.running = Some(running);
                return Ok(());
            }
            Down::Off => {
                line.span_s.down = Some(watch.requested.elapsed().as_secs_f64());
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
        stress::<Value>(&mut running, StressCall::Mount)?;
        Ok(running)
    }

    fn cut(&mut self, power: &mut PowerOn, watch: &mut Watch, line: &mut StressLine) {
        // The machine's last messages before it lost power show where it was, not the instant
        // at which the host meant to cut.
        power.cut_power_and_drain(|signal| watch.tracker.receive(signal));
        watch.cut(line);
        let event = self
            .lab
            .setting
            .event("machine", "power-cut", Kind::Mark)
            .with("phase", watch.tracker.phase().name())
            .with("step", watch.tracker.step());
        self.lab.setting.record(&event);
    }
}
