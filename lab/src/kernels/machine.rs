//! The checks themselves: what is done in an emulated machine with one kernel.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::{Call, RunPlan, RunResult};

use super::features;
use super::results::{Check, Verdict};
use crate::build::{Artefacts, BuildOptions, StockKernel, build_graph_module, build_stock};
use crate::cycle::Cycles;
use crate::cycle::options::CycleOptions;
use crate::emulator::lab::{Lab, POWER_OFF_TIMEOUT};
use crate::emulator::power::{PowerOn, reply_to};
use crate::emulator::qemu::{Firmware, Parts};
use crate::error::{Doing, LabError};
use crate::machine::MachineConfig;
use crate::terminal::Terminal;
use dormouse_system::arguments::Size;

const DRAM: Size = Size::mib(1024);
const CXL: Size = Size::mib(2048);
const CPUS: u32 = 2;
const REDIS_KEYS: u64 = 1000;
/// A script: redis and the tracker start slowly where everything is emulated.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);
/// Exit code of a script that the agent ended: 128 and SIGKILL.
const KILLED: i32 = 137;
/// How often a machine that may be asleep hears from the host.
const WAKE_EVERY: Duration = Duration::from_secs(2);

const MODULE: &str = "cat /sys/power/dormouse/last_outcome";
const PERSIST: &str = concat!(include_str!("process.sh"), "persist_redis");
const RESTORE: &str = concat!(include_str!("process.sh"), "restore_redis");
const SCHEDULER: &str = include_str!("scheduler.sh");
const DEVICES: &str = concat!(include_str!("devices.sh"), "record_devices recording");
const ORDER: &str = concat!(include_str!("devices.sh"), "graph_order");
/// Where the script looks for it.
const ORDER_MODULE: &str = "/root/dormouse_dpm.ko";

/// Hears of each verdict.
pub type Record<'a> = dyn FnMut(Check, Verdict) -> Result<(), LabError> + 'a;

/// Builds a machine with this kernel and runs the wanted checks.
///
/// # Errors
/// Ctrl-C, or something that this machine lacks; whatever else goes wrong is a verdict.
pub fn run_checks(
    stock: &StockKernel,
    wanted: &[Check],
    fill: Size,
    folder: &Path,
    terminal: &Terminal,
    say: &dyn Fn(&str),
    record: &mut Record<'_>,
) -> Result<(), LabError> {
    let artefacts = match build_stock(&BuildOptions::default(), stock, terminal) {
        Ok(artefacts) => artefacts,
        Err(error) => {
            let error = fatal_or_text(error.into())?;
            for &check in wanted {
                let reason = match check {
                    Check::Module => error.clone(),
                    _ => "not run: the machine could not be built".to_owned(),
                };
                record(check, Verdict::Failed { reason })?;
            }
            return Ok(());
        }
    };
    let config = features::config(&artefacts.kernel_config);
    let mut judge = |check: Check, result: Result<String, LabError>| {
        let verdict = match result.map_err(fatal_or_text) {
            Ok(detail) => Verdict::Ok { detail },
            Err(Err(fatal)) => return Err(fatal),
            Err(Ok(reason)) => match features::lacks(check, &config) {
                Some(missing) => Verdict::NotAvailable { missing },
                None => Verdict::Failed { reason },
            },
        };
        record(check, verdict)
    };
    let machine = Checks {
        stock,
        terminal,
        artefacts: &artefacts,
        folder,
        fill,
        say,
    };
    if wanted.iter().any(|check| *check != Check::Sleep) {
        machine.running_machine(wanted, &mut judge)?;
    }
    if wanted.contains(&Check::Sleep) {
        let result = machine.sleep();
        judge(Check::Sleep, result)?;
    }
    Ok(())
}

/// What ends the whole run is an error; anything else is text for a verdict.
fn fatal_or_text(error: LabError) -> Result<String, LabError> {
    match error.exit_code() {
        3 | 130 => Err(error),
        _ => Ok(error.brief()),
    }
}

/// How a script in the machine is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    Waits,
    /// It keeps writing to the agent's serial line, which may wake the machine.
    Wakes,
}

type Judge<'a> = dyn FnMut(Check, Result<String, LabError>) -> Result<(), LabError> + 'a;

/// A script from its start to its end.
fn run(power: &mut PowerOn, what: &str, script: &str, host: Host) -> Result<RunResult, LabError> {
    let id = power.send(Call::Run(RunPlan {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        stdin: String::new(),
        cgroup: None,
        timeout_s: SCRIPT_TIMEOUT.as_secs(),
    }))?;
    let what = format!("the end of the script of {what}");
    // The agent ends a script that takes too long, and says so.
    let timeout = SCRIPT_TIMEOUT + Duration::from_secs(5);
    let begin = Instant::now();
    loop {
        let left = timeout.saturating_sub(begin.elapsed());
        let turn = match host {
            Host::Waits => left,
            Host::Wakes => left.min(WAKE_EVERY),
        };
        match power.wait(&what, turn, |signal| reply_to(signal, id)) {
            // A character wakes a machine that is asleep; one that is on its way down takes the
            // next; one that is awake answers, which nobody waits for.
            Err(LabError::Timeout { .. }) if turn < left => power.send(Call::Hello).map(drop)?,
            Err(LabError::Timeout { console, .. }) => {
                return Err(LabError::Timeout {
                    what,
                    timeout,
                    console,
                });
            }
            Err(error) => return Err(error),
            Ok(Err(reason)) => return Err(LabError::Guest(reason)),
            Ok(Ok(answer)) => {
                return serde_json::from_value(answer)
                    .map_err(|error| LabError::Unexpected(format!("{what}: {error}")));
            }
        }
    }
}

/// One kernel's machines.
struct Checks<'a> {
    stock: &'a StockKernel,
    terminal: &'a Terminal,
    artefacts: &'a Artefacts,
    folder: &'a Path,
    fill: Size,
    say: &'a dyn Fn(&str),
}

impl Checks<'_> {
    fn lab(&self, name: &str) -> Result<Lab, LabError> {
        let config = MachineConfig::new(DRAM, CXL, CPUS)?;
        let parts = Parts::from(self.artefacts);
        let folder = self.folder.join(name);
        Lab::open(&folder, config, false, parts, Firmware::Coreboot)
    }

    /// Everything that needs no sleep, in one machine.
    fn running_machine(&self, wanted: &[Check], judge: &mut Judge<'_>) -> Result<(), LabError> {
        let mut lab = self.lab("running")?;
        let mut first = self.boot(&mut lab)?;
        let wants = |check: Check| wanted.contains(&check);
        if wants(Check::Module) {
            judge(
                Check::Module,
                self.script(&mut first, "module", MODULE, Host::Waits)
                    .map(|_| "loaded".into()),
            )?;
        }
        if wants(Check::Process) {
            let what = "process: persist redis";
            let result = self.script(&mut first, what, PERSIST, Host::Waits);
            match result {
                Ok(_) => {
                    // No warning, and nothing is written back.
                    first.cut_power();
                    drop(first);
                    first = self.boot(&mut lab)?;
                    let what = "process: restore redis";
                    let result = self.script(&mut first, what, RESTORE, Host::Waits);
                    judge(Check::Process, result)?;
                }
                Err(error) => judge(Check::Process, Err(error))?,
            }
        }
        if wants(Check::Scheduler) {
            judge(
                Check::Scheduler,
                self.script(&mut first, "scheduler", SCHEDULER, Host::Waits),
            )?;
        }
        // Last: a kernel that does not come back from its suspend takes nothing with it.
        if wants(Check::Devices) {
            let result = self.script(&mut first, "devices", DEVICES, Host::Wakes);
            judge(Check::Devices, result)?;
        }
        if wants(Check::Order) {
            let result = self.graph_order(&mut first);
            judge(Check::Order, result)?;
        }
        // A machine that hangs is switched off all the same when it is dropped.
        let _ = first.power_off(POWER_OFF_TIMEOUT);
        lab.machine.discard();
        Ok(())
    }

    fn boot(&self, lab: &mut Lab) -> Result<PowerOn, LabError> {
        (self.say)("boot");
        lab.boot(None)
    }

    /// Devices in graph order, by the module that is built for this kernel.
    fn graph_order(&self, power: &mut PowerOn) -> Result<String, LabError> {
        (self.say)("order: build its module");
        let options = BuildOptions::default();
        let module = build_graph_module(&options, self.stock, self.terminal)?;
        let bytes = fs::read(&module).doing(format!("read {}", module.display()))?;
        (self.say)("order: copy its module");
        power.put_file(ORDER_MODULE, &bytes, 0o600)?;
        self.script(power, "order", ORDER, Host::Wakes)
    }

    /// The last line that a script prints, if it succeeds.
    fn script(
        &self,
        power: &mut PowerOn,
        what: &str,
        script: &str,
        host: Host,
    ) -> Result<String, LabError> {
        (self.say)(what);
        let result = run(power, what, script, host)?;
        if result.status == KILLED {
            let seconds = SCRIPT_TIMEOUT.as_secs();
            return Err(LabError::Guest(format!(
                "the script of {what} was not over after {seconds} s"
            )));
        }
        let last = |text: &str| text.trim().lines().last().unwrap_or_default().to_owned();
        if result.status == 0 {
            return Ok(last(&result.stdout));
        }
        let text = match result.stderr.trim().is_empty() {
            true => last(&result.stdout),
            false => result.stderr.trim().replace('\n', "; "),
        };
        Err(LabError::Guest(format!(
            "exit code {}: {text}",
            result.status
        )))
    }

    /// One sleep and wake of a machine of its own.
    fn sleep(&self) -> Result<String, LabError> {
        let mut lab = self.lab("sleep")?;
        let options = CycleOptions {
            redis_keys: REDIS_KEYS,
            ..CycleOptions::plain(self.fill)
        };
        let mut line = None;
        let mut cycles = Cycles::new(&mut lab, &options, self.say);
        cycles.run(&mut |one| line = Some(one.clone()))?;
        cycles.finish();
        drop(cycles);
        let line = line.ok_or_else(|| LabError::Unexpected("no cycle was run".into()))?;
        if !line.ok {
            return Err(LabError::Unexpected(line.describe()));
        }
        lab.machine.discard();
        Ok(line.describe())
    }
}
