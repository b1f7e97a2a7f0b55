//! A machine with all its files, ready to be powered on, and typed requests to its agent.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_guest::protocol::{
    Call, FilePart, HardToMovePlan, HardToMoveStatus, HardToMoveVerdict, Placement, RunPlan,
    RunResult, Verdict, WorkloadPlan, WorkloadStatus, to_hex,
};
use dormouse_report::event::Kind;

use crate::emulator::accelerator;
use crate::emulator::power::{PowerOn, Setting};
use crate::emulator::qemu::{Firmware, OVMF_VARIABLES, Parts};
use crate::emulator::record::{HostClock, Recorder};
use crate::error::LabError;
use crate::faults::failed_flush::power_was_gone;
use crate::machine::{Machine, MachineConfig};

/// Emulated machines are slow, and the host may be busy: a boot takes 10 s, a hang is for ever.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
/// Maximum time of an orderly power-off.
pub const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const QUESTION_TIMEOUT: Duration = Duration::from_secs(60);
/// For filling or comparing one GiB.
const WORK_TIMEOUT_PER_GIB: Duration = Duration::from_secs(240);
/// For all kinds of hard-to-move memory together.
const HARD_TO_MOVE_TIMEOUT: Duration = Duration::from_secs(400);
/// A part of a file travels in one line of the control channel.
const FILE_PART_BYTES: usize = 16 << 10;

/// A machine and everything that stays the same while it is switched on and off.
pub struct Lab {
    /// What all power-ons share.
    pub setting: Setting,
    /// The files of the machine.
    pub machine: Machine,
}

impl Lab {
    /// A machine in `folder`: as it was left there if `keep` is true and there is one, otherwise
    /// new.
    ///
    /// # Errors
    /// The machine is in use, or its files cannot be made.
    pub fn open(
        folder: &Path,
        config: MachineConfig,
        keep: bool,
        parts: Parts,
        firmware: Firmware,
    ) -> Result<Lab, LabError> {
        let kept = if keep { Machine::open(folder)? } else { None };
        let machine = match kept {
            Some(mut machine) => {
                if machine.config.dram_bytes != config.dram_bytes {
                    machine.config.set_dram(config.dram_bytes);
                }
                machine.config.cpus = config.cpus;
                machine.config.gpf = config.gpf;
                machine.resize_cxl(config.cxl_bytes)?;
                machine
            }
            None => Machine::create(folder, config, &parts.rootfs)?,
        };
        if firmware.is_stock() {
            let variables = (firmware == Firmware::Ovmf).then_some(Path::new(OVMF_VARIABLES));
            if variables.is_some_and(|path| !path.exists()) {
                return Err(LabError::Lacking(format!(
                    "{OVMF_VARIABLES} is missing: install the package ovmf, or take --firmware \
                     seabios"
                )));
            }
            machine.make_stock_parts(variables)?;
        }
        let clock = HostClock::start();
        let recorder = Recorder::create(&machine.events_file(), clock)?;
        let setting = Setting {
            parts,
            firmware,
            accelerator: accelerator::probe(),
            clock,
            recorder: Arc::new(Mutex::new(recorder)),
            more: Vec::new(),
        };
        Ok(Lab { setting, machine })
    }

    /// Switches the machine on; with the name of a fault point, firmware stops there.
    ///
    /// # Errors
    /// The emulator cannot be started.
    pub fn power_on(&mut self, fault: Option<&str>) -> Result<PowerOn, LabError> {
        if self.machine.power_ons() > 0 {
            let lost_pages = power_was_gone(&mut self.machine)?;
            if lost_pages > 0 {
                let event = self.setting.event("machine", "flush-failed", Kind::Mark);
                self.setting.record(&event.with("lost_pages", lost_pages));
            }
        }
        PowerOn::start(&mut self.machine, &self.setting, fault)
    }

    /// Switches the machine on and waits until its agent is ready.
    ///
    /// # Errors
    /// It does not boot.
    pub fn boot(&mut self, fault: Option<&str>) -> Result<PowerOn, LabError> {
        let mut power = self.power_on(fault)?;
        power.wait_ready(BOOT_TIMEOUT)?;
        Ok(power)
    }
}

fn work_timeout(bytes: u64) -> Duration {
    WORK_TIMEOUT_PER_GIB * (bytes.div_ceil(1 << 30) as u32).max(1)
}

/// Questions to the agent of a running machine.
impl PowerOn {
    /// Fills memory, starts counters and redis.
    ///
    /// # Errors
    /// The agent's, or it does not answer.
    pub fn start_workload(&mut self, plan: WorkloadPlan) -> Result<WorkloadStatus, LabError> {
        self.query(Call::StartWorkload(plan), work_timeout(plan.fill_bytes))
    }

    /// Writes other contents into the memory and keys of the workload.
    ///
    /// # Errors
    /// As above.
    pub fn refill(&mut self, seed: u64, fill_bytes: u64) -> Result<WorkloadStatus, LabError> {
        self.query(Call::Refill { seed }, work_timeout(fill_bytes))
    }

    /// Compares every page and every key.
    ///
    /// # Errors
    /// The workload is gone or does not answer; data that differ are no error but a verdict.
    pub fn verify(&mut self, fill_bytes: u64) -> Result<Verdict, LabError> {
        self.query(Call::Verify, work_timeout(fill_bytes))
    }

    /// Starts processes with hard-to-move memory.
    ///
    /// # Errors
    /// The machine cannot have such memory, or the agent does not answer.
    pub fn start_hard_to_move(
        &mut self,
        plans: &[HardToMovePlan],
        seed: u64,
    ) -> Result<Vec<HardToMoveStatus>, LabError> {
        let plans = plans.to_vec();
        self.query(Call::StartHardToMove { plans, seed }, HARD_TO_MOVE_TIMEOUT)
    }

    /// Lets them compare their memory.
    ///
    /// # Errors
    /// As for [`PowerOn::verify`].
    pub fn verify_hard_to_move(&mut self) -> Result<Vec<HardToMoveVerdict>, LabError> {
        self.query(Call::VerifyHardToMove, HARD_TO_MOVE_TIMEOUT)
    }

    /// Where user pages lie.
    ///
    /// # Errors
    /// The agent does not answer.
    pub fn placement(&mut self) -> Result<Placement, LabError> {
        self.query(Call::Placement, QUESTION_TIMEOUT)
    }

    /// Runs a program in the machine to its end.
    ///
    /// # Errors
    /// It cannot be started or does not end in time; an exit status is no error.
    pub fn run(&mut self, argv: &[&str], timeout: Duration) -> Result<RunResult, LabError> {
        self.run_plan(
            RunPlan {
                argv: argv.iter().map(|&word| word.to_owned()).collect(),
                stdin: String::new(),
                cgroup: None,
                timeout_s: timeout.as_secs(),
            },
            timeout,
        )
    }

    /// Runs a program with input or in a control group.
    ///
    /// # Errors
    /// As above.
    pub fn run_plan(&mut self, plan: RunPlan, timeout: Duration) -> Result<RunResult, LabError> {
        self.query(Call::Run(plan), timeout + Duration::from_secs(5))
    }

    /// Runs a line of shell in the machine.
    ///
    /// # Errors
    /// As above.
    pub fn shell(&mut self, line: &str, timeout: Duration) -> Result<RunResult, LabError> {
        self.run(&["/bin/sh", "-c", line], timeout)
    }

    /// What a line of shell prints in the machine; it must succeed.
    ///
    /// # Errors
    /// As above; or its exit code is not 0.
    pub fn shell_output(&mut self, line: &str, timeout: Duration) -> Result<String, LabError> {
        let result = self.shell(line, timeout)?;
        if result.status != 0 {
            return Err(LabError::Guest(format!(
                "`{line}` ended with {}: {}",
                result.status,
                result.stderr.trim()
            )));
        }
        Ok(result.stdout)
    }

    /// Writes a (small) file in the machine.
    ///
    /// # Errors
    /// The agent cannot write it.
    pub fn put_file(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), LabError> {
        let mut append = false;
        // An empty file is one empty part.
        let parts = bytes
            .chunks(FILE_PART_BYTES)
            .chain(bytes.is_empty().then_some(&[][..]));
        for part in parts {
            let data_hex = to_hex(part);
            let part = FilePart {
                path: path.to_owned(),
                append,
                mode,
                data_hex,
            };
            self.call(Call::PutFile(part), QUESTION_TIMEOUT)?;
            append = true;
        }
        Ok(())
    }

    /// Starts a shell on the serial console.
    ///
    /// # Errors
    /// There is no shell.
    pub fn start_shell(&mut self) -> Result<(), LabError> {
        self.call(Call::Shell, QUESTION_TIMEOUT).map(drop)
    }
}
