//! The way down: until the machine has switched itself off, or its power is cut.

use std::time::Duration;

use dormouse_image::snapshot::is_sealed;
use dormouse_report::event::Kind;
use serde_json::Value;

use super::method::{Moment, SleepMethod};
use super::run::{Asleep, Cycles};
use crate::emulator::power::{PowerOn, What, reply_to};
use crate::emulator::qmp::StopCause;
use crate::error::LabError;
use crate::faults::replay;
use crate::faults::tamper::Tamper;
use crate::machine::image_file::{DeviceFile, newest_copy};

/// Going to sleep: migration of everything, twice the time that was ever seen.
const SLEEP_TIMEOUT: Duration = Duration::from_secs(600);

impl Cycles<'_> {
    pub(super) fn wait_asleep(
        &self,
        cycle: u64,
        power: &mut PowerOn,
        request: u64,
        method: &mut dyn SleepMethod,
    ) -> Result<Asleep, LabError> {
        enum Seen {
            Stopped(u64),
            Point,
            Reply(Result<Value, String>),
        }
        let fault = self.options.fault.filter(|fault| !fault.is_on_the_way_up());
        let seen = power.wait(
            "the machine to switch itself off",
            SLEEP_TIMEOUT,
            |signal| {
                method.receive_down(signal);
                match &signal.what {
                    What::Stopped => Some(Seen::Stopped(signal.at_ns)),
                    What::Console(line) if fault.is_some_and(|fault| fault.is_reached(line)) => {
                        Some(Seen::Point)
                    }
                    _ => reply_to(signal, request).map(Seen::Reply),
                }
            },
        )?;
        match seen {
            Seen::Stopped(at_ns) => {
                method.reached(Moment::Off, at_ns);
                match (power.stop_cause(), fault) {
                    (Some(StopCause::PoweredOff), None) => Ok(Asleep::Off),
                    (Some(StopCause::PoweredOff), Some(fault)) => Err(fault.passed()),
                    (cause, _) => Err(LabError::Unexpected(format!(
                        "the machine did not switch itself off but stopped otherwise: {cause:?}"
                    ))),
                }
            }
            Seen::Reply(Ok(answer)) => Ok(Asleep::Answered(answer)),
            Seen::Reply(Err(error)) => Err(LabError::Guest(error)),
            Seen::Point => {
                self.cut(cycle, power);
                Ok(Asleep::Cut)
            }
        }
    }

    pub(super) fn cut(&self, cycle: u64, power: &mut PowerOn) {
        let name = self.options.fault.map_or("", |fault| fault.name);
        let event = self
            .lab
            .setting
            .event("machine", "power-cut", Kind::Mark)
            .with("at", name);
        self.lab.setting.record(&event);
        self.say(cycle, &format!("power cut: {name}"));
        power.cut_power();
    }

    /// What was asked to happen to the machine while it sleeps.
    pub(super) fn spoil(&mut self, cycle: u64) -> Result<(), LabError> {
        // Before it is opened again: an image in plain text would resume as well.
        if self.options.seal.is_some() && self.options.fault.is_none() {
            let file = DeviceFile::with_header(&self.lab.machine)?;
            if !is_sealed(&newest_copy(&file)?.1) {
                return Err(LabError::Unexpected("the image is not sealed".into()));
            }
        }
        match (self.options.tamper, self.options.seal) {
            (Some(Tamper::WrongKey), Some(seal)) => {
                seal.exchange_key(self.lab)?;
                self.has_other_key = true;
            }
            (Some(Tamper::NoTpm), _) => self.lab.machine.sealing.tpm_is_out = true,
            (Some(Tamper::Replay), _) if cycle == 1 => replay::keep(&self.lab.machine)?,
            (Some(Tamper::Replay), _) => replay::put_back(&self.lab.machine)?,
            (Some(tamper), _) => {
                tamper.apply(&mut self.lab.machine, self.options.seed.wrapping_add(cycle))?;
            }
            (None, _) => {}
        }
        if let Some(parts) = &self.options.parts_after {
            self.lab.setting.parts = parts.clone();
        }
        if let Some(dram) = self.options.dram_after {
            self.lab.machine.config.set_dram(dram.0);
            self.lab.machine.save()?;
        }
        Ok(())
    }
}
