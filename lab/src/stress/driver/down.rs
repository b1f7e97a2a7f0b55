//! The way down, and the time without power.

use std::time::{Duration, Instant};

use dormouse_guest::protocol::RunResult;
use dormouse_report::event::Kind;

use super::Driver;
use crate::emulator::power::{PowerOn, What, reply_to};
use crate::emulator::qmp::StopCause;
use crate::stress::class::Class;
use crate::stress::line::StressLine;
use crate::stress::plan::CyclePlan;
use crate::stress::trouble::{Stage, Stop, Trouble};
use crate::stress::watch::{Watch, wait_or_cut};

const SLEEP_TIMEOUT: Duration = Duration::from_secs(420);

/// How the request to sleep ended.
pub(super) enum Down {
    Off,
    Cut,
    Answered(RunResult),
}

impl Driver {
    pub(super) fn go_down(
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
    pub(super) fn stay_off(&self, plan: &CyclePlan, watch: &mut Watch, line: &mut StressLine) {
        let off = Duration::from_millis(plan.off_ms);
        let begun = Instant::now();
        std::thread::sleep(off);
        if watch.cut_phase.is_none() && watch.is_due() {
            watch.cut(line);
        }
        line.span_s.off = begun.elapsed().as_secs_f64();
    }
}
