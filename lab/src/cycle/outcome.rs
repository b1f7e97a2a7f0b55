//! The outcome of a sleep: pages back in DRAM, data compared, a refusal understood.

use std::time::Duration;

use dormouse_guest::protocol::Hello;
use dormouse_report::event::Kind;
use serde_json::Value;

use super::line::{CycleLine, Outcome};
use super::method::SleepMethod;
use super::run::{Cycles, Running, SHELL_TIMEOUT};
use crate::emulator::power::{PowerOn, reply_to};
use crate::error::{Doing, LabError};

/// Migrating pages back.
const HOME_TIMEOUT: Duration = Duration::from_secs(600);

impl Cycles<'_> {
    pub(super) fn resumed(
        &mut self,
        mut power: PowerOn,
        hello: Hello,
        request: u64,
        method: &mut dyn SleepMethod,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        line.resume_s = method.resume_times();
        for event in method.events_up() {
            self.lab.setting.record(&event);
        }
        self.say(line.cycle, "awake; pages migrate back");
        let answer = power.wait("pages to migrate back", HOME_TIMEOUT, |signal| {
            method.receive_up(signal);
            reply_to(signal, request)
        })?;
        method.woken(answer.map_err(LabError::Guest)?, line)?;
        self.record_placement(&mut power, "after")?;
        if let Some(after) = &self.options.after {
            let said = power.shell_output(after, SHELL_TIMEOUT)?;
            let name = format!("after-{}.txt", line.cycle);
            let path = self.lab.machine.folder().join(name);
            std::fs::write(&path, said).doing(format!("write {}", path.display()))?;
        }
        line.outcome = Outcome::Resumed;
        self.check_data(&mut power, line)?;
        method
            .proof(&self.console(&power))
            .map_err(LabError::Unexpected)?;
        self.running = Some(Running {
            power,
            hello,
            armed: None,
            has_workload: true,
        });
        Ok(())
    }

    /// Sleep did not happen and the system goes on: does it really?
    pub(super) fn refused(
        &mut self,
        mut running: Running,
        method: &dyn SleepMethod,
        answer: Value,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        line.reason = method.refusal(answer)?;
        line.outcome = Outcome::Refused;
        self.say(line.cycle, &format!("refused: {}", line.reason));
        self.check_data(&mut running.power, line)?;
        self.running = Some(running);
        Ok(())
    }

    pub(super) fn check_data(
        &self,
        power: &mut PowerOn,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        self.say(line.cycle, "compare every page");
        self.lab.setting.mark("workload", "verify", Kind::Begin);
        let verdict = power.verify(self.options.fill.0)?;
        let mut complaints = verdict.complaints();
        if !self.options.hard_to_move.is_empty() {
            for verdict in power.verify_hard_to_move()? {
                complaints.extend(
                    verdict
                        .complaint
                        .map(|why| format!("{}: {why}", verdict.kind)),
                );
                line.hard_to_move.push(verdict.kind.clone());
                line.awkward.push(verdict.kind); // until 0.3
            }
        }
        self.lab.setting.mark("workload", "verify", Kind::End);
        line.verified = complaints.is_empty();
        if !line.verified {
            line.reason = complaints.join("; ");
        }
        Ok(())
    }

    /// The console's text of that power-on.
    pub(super) fn console(&self, power: &PowerOn) -> String {
        let log = self.lab.machine.console_log(power.number());
        let text = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }
}
