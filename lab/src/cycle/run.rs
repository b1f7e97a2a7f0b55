//! The cycles, one after the other: boot, fill, and what follows from how the sleep ended.

use std::time::Duration;

use dormouse_guest::protocol::{Hello, WorkloadPlan};
use dormouse_report::event::Kind;
use serde_json::Value;

use super::line::{CycleLine, Outcome};
use super::method::Moment;
use super::options::CycleOptions;
use crate::emulator::lab::{BOOT_TIMEOUT, Lab, POWER_OFF_TIMEOUT};
use crate::emulator::power::PowerOn;
use crate::emulator::qemu::Parts;
use crate::error::LabError;

const COUNTERS: usize = 4;
/// A line of shell before or after the sleep.
pub(super) const SHELL_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs cycles on one machine.
pub struct Cycles<'a> {
    pub(super) lab: &'a mut Lab,
    pub(super) options: &'a CycleOptions,
    /// Tells people what happens.
    pub(super) say: &'a dyn Fn(&str),
    pub(super) running: Option<Running>,
    pub(super) usual_dram_bytes: u64,
    pub(super) usual_cxl_bytes: u64,
    /// What the machine boots from when it is not to be another kernel.
    pub(super) usual_parts: Parts,
    /// The machine has another key than the one that it seals with.
    pub(super) has_other_key: bool,
}

/// The machine while it is switched on.
pub(super) struct Running {
    pub(super) power: PowerOn,
    pub(super) hello: Hello,
    pub(super) armed: Option<&'static str>,
    pub(super) has_workload: bool,
}

/// How the request to sleep ended.
pub(super) enum Asleep {
    /// The machine switched itself off.
    Off,
    /// Power was cut at the fault point.
    Cut,
    /// The request was answered without the power having gone.
    Answered(Value),
}

/// How a power-on ended.
pub(super) enum Woken {
    Resumed,
    ColdBoot { hello: Hello },
}

impl<'a> Cycles<'a> {
    pub fn new(lab: &'a mut Lab, options: &'a CycleOptions, say: &'a dyn Fn(&str)) -> Self {
        let (usual_dram_bytes, usual_cxl_bytes) =
            (lab.machine.config.dram_bytes, lab.machine.config.cxl_bytes);
        let usual_parts = lab.setting.parts.clone();
        Cycles {
            usual_parts,
            has_other_key: false,
            lab,
            options,
            say,
            running: None,
            usual_dram_bytes,
            usual_cxl_bytes,
        }
    }

    /// Runs all cycles; each line is given out as soon as it is known.
    ///
    /// # Errors
    /// Only what makes further cycles senseless (interruption, no emulator); anything else is
    /// the outcome `failed` of its cycle, and the next one starts from a boot.
    pub fn run(&mut self, on_line: &mut dyn FnMut(&CycleLine)) -> Result<(), LabError> {
        for cycle in 1..=self.options.cycles {
            self.lab
                .setting
                .mark("cycle", &format!("cycle {cycle}"), Kind::Begin);
            let mut line = self.new_line(cycle);
            match self.one(&mut line) {
                Ok(()) => {}
                Err(LabError::Interrupted) => return Err(LabError::Interrupted),
                Err(error) if error.exit_code() != 1 => return Err(error),
                Err(error) => {
                    self.running = None;
                    line.outcome = Outcome::Failed;
                    line.reason = error.to_string();
                }
            }
            line.ok = self.options.is_ok(&line);
            let event = self
                .lab
                .setting
                .event("cycle", &format!("cycle {cycle}"), Kind::End)
                .with("outcome", line.outcome.name())
                .with("verified", line.verified);
            self.lab.setting.record(&event);
            on_line(&line);
        }
        Ok(())
    }

    /// The running machine; it is booted if it does not run.
    ///
    /// # Errors
    /// It does not boot.
    pub(crate) fn power(&mut self) -> Result<&mut PowerOn, LabError> {
        let running = self.booted(0, None)?;
        Ok(&mut self.running.insert(running).power)
    }

    /// One cycle of the machine as it runs.
    ///
    /// # Errors
    /// The machine stopped, or does not answer.
    pub(crate) fn cycle(&mut self, cycle: u64) -> Result<CycleLine, LabError> {
        let mut line = self.new_line(cycle);
        self.one(&mut line)?;
        line.ok = self.options.is_ok(&line);
        Ok(line)
    }

    /// Switches the machine off in order, if it runs.
    pub fn finish(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.power.power_off(POWER_OFF_TIMEOUT);
        }
    }

    pub(super) fn new_line(&self, cycle: u64) -> CycleLine {
        let mut line = CycleLine::new(cycle, self.usual_dram_bytes, self.usual_cxl_bytes);
        if let Some(hibernation) = &self.options.hibernation {
            line.mode = hibernation.mode().name().into();
            line.compressor = Some(hibernation.compressor.to_string());
        }
        line
    }

    pub(super) fn say(&self, cycle: u64, text: &str) {
        (self.say)(&format!("cycle {cycle}: {text}"));
    }

    pub(super) fn one(&mut self, line: &mut CycleLine) -> Result<(), LabError> {
        let cycle = line.cycle;
        let arming = self
            .options
            .fault
            .and_then(|fault| fault.for_power_on(false));
        let mut running = self.booted(cycle, arming)?;
        self.fill(cycle, &mut running, line)?;
        if let Some(before) = &self.options.before {
            self.say(cycle, "run the line before");
            running.power.shell_output(before, SHELL_TIMEOUT)?;
        }

        let mut method = self.options.method(self.usual_dram_bytes);
        let method = method.as_mut();
        method.prepare(&mut running.power)?;
        self.say(cycle, "going to sleep");
        method.reached(Moment::Requested, self.lab.setting.clock.now_ns());
        self.lab.setting.mark("suspend", "suspend", Kind::Begin);
        let request = running.power.send(method.request())?;
        let asleep = self.wait_asleep(cycle, &mut running.power, request, method)?;
        if let Asleep::Answered(answer) = asleep {
            return self.refused(running, method, answer, line);
        }
        for event in method.events_down() {
            self.lab.setting.record(&event);
        }
        self.lab.setting.mark("suspend", "suspend", Kind::End);
        if matches!(asleep, Asleep::Off) {
            line.suspend_s = method.suspend_times();
        }
        let hello = running.hello;
        drop(running.power);

        self.spoil(cycle)?;
        self.say(cycle, "power on");
        let (power, woken) = self.wake(cycle, method, &hello, request)?;
        match woken {
            Woken::Resumed => self.resumed(power, hello, request, method, line),
            Woken::ColdBoot { hello } => {
                line.outcome = Outcome::ColdBoot;
                line.reason = method
                    .cold_boot_reason(&self.console(&power))
                    .unwrap_or_default();
                self.say(cycle, &format!("cold boot: {}", line.reason));
                self.running = Some(Running {
                    power,
                    hello,
                    armed: None,
                    has_workload: false,
                });
                Ok(())
            }
        }
    }

    /// The running machine, or a new boot where it does not run or must be another one.
    pub(super) fn booted(
        &mut self,
        cycle: u64,
        armed: Option<&'static str>,
    ) -> Result<Running, LabError> {
        let config = &self.lab.machine.config;
        let usual = config.dram_bytes == self.usual_dram_bytes
            && config.cxl_bytes == self.usual_cxl_bytes
            && self.lab.setting.parts.kernel == self.usual_parts.kernel
            && !self.has_other_key
            && !self.lab.machine.sealing.tpm_is_out;
        if let Some(mut running) = self.running.take() {
            if usual && running.armed == armed {
                return Ok(running);
            }
            self.say(cycle, "power off, to boot anew");
            running.power.power_off(POWER_OFF_TIMEOUT)?;
        }
        self.make_usual()?;
        self.lab.machine.config.dram_bytes = self.usual_dram_bytes;
        if self.lab.machine.config.cxl_bytes != self.usual_cxl_bytes {
            self.lab.machine.resize_cxl(self.usual_cxl_bytes)?;
        }
        self.lab.machine.save()?;
        if let Some(seal) = self.options.seal {
            self.say(cycle, "boot, to set sealed images up");
            seal.set_up(self.lab)?;
        }
        self.say(cycle, "boot");
        self.lab.setting.mark("boot", "boot", Kind::Begin);
        let mut power = self.lab.power_on(armed)?;
        let hello = power.wait_ready(BOOT_TIMEOUT)?;
        if let Some(seal) = self.options.seal {
            seal.prepare(&mut power)?;
        }
        self.lab.setting.mark("boot", "boot", Kind::End);
        Ok(Running {
            power,
            hello,
            armed,
            has_workload: false,
        })
    }

    /// The machine as it was before something was exchanged or taken out.
    fn make_usual(&mut self) -> Result<(), LabError> {
        self.lab.setting.parts = self.usual_parts.clone();
        self.lab.machine.sealing.tpm_is_out = false;
        if std::mem::take(&mut self.has_other_key)
            && let Some(seal) = self.options.seal
        {
            seal.give_key_back(self.lab)?;
        }
        Ok(())
    }

    pub(super) fn fill(
        &mut self,
        cycle: u64,
        running: &mut Running,
        line: &mut CycleLine,
    ) -> Result<(), LabError> {
        self.say(cycle, &format!("fill {} of memory", self.options.fill));
        self.lab.setting.mark("workload", "fill", Kind::Begin);
        // Other contents in each cycle: what an earlier one left behind is never mistaken.
        let seed = self.options.seed.wrapping_add(cycle);
        let fill_bytes = self.options.fill.0;
        let status = if running.has_workload {
            running.power.refill(seed, fill_bytes)?
        } else {
            running.power.start_workload(WorkloadPlan {
                fill_bytes,
                threads: running.hello.cpus,
                counters: COUNTERS,
                seed,
                redis_keys: self.options.redis_keys,
            })?
        };
        if !running.has_workload && !self.options.hard_to_move.is_empty() {
            self.say(cycle, "set up hard-to-move memory");
            running
                .power
                .start_hard_to_move(&self.options.hard_to_move, seed)?;
        }
        running.has_workload = true;
        line.user_bytes = status.filled_bytes;
        self.lab.setting.mark("workload", "fill", Kind::End);
        self.record_placement(&mut running.power, "before")
    }

    /// Where user pages lie goes into the timeline: awake, the CXL node must hold none.
    pub(super) fn record_placement(&self, power: &mut PowerOn, when: &str) -> Result<(), LabError> {
        let placement = power.placement()?;
        let node_used = placement
            .nodes
            .get(&1)
            .and_then(|node| node.get("MemUsed"))
            .copied()
            .unwrap_or_default();
        let event = self
            .lab
            .setting
            .event("workload", "placement", Kind::Mark)
            .with("when", when)
            .with("dram_user_bytes", placement.user_bytes(0, None))
            .with("cxl_user_bytes", placement.user_bytes(1, None))
            .with("cxl_node_used_bytes", node_used);
        self.lab.setting.record(&event);
        Ok(())
    }
}
