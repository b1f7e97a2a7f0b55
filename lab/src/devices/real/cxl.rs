//! The same steps in the machine that sleeps by Suspend-to-CXL: the lab's firmware, a root disk, and
//! an agent that takes the steps. Its power is really gone, and each wake is by a new emulator.

use std::fs;
use std::time::Duration;

use dormouse_guest::protocol::Call;
use dormouse_guest::protocol::device_job::{Answer, Cycle, Step};
use dormouse_guest::protocol::real_devices::Sleep;
use dormouse_guest::protocol::stress::{SCRATCH, StressCall};
use dormouse_system::arguments::Size;
use serde_json::Value;

use super::RealArgs;
use super::hardware::Hardware;
use super::plan::Plan;
use super::report::Report;
use crate::build::{BuildOptions, StockKernel, build, build_devices_folder, build_stock};
use crate::cycle::options::CycleOptions;
use crate::cycle::{Cycles, Outcome};
use crate::emulator::lab::Lab;
use crate::emulator::power::PowerOn;
use crate::emulator::qemu::{Firmware, Parts};
use crate::error::{Doing, LabError};
use crate::machine::{MachineConfig, machine_folder};
use crate::terminal::Terminal;

const DRAM: Size = Size::mib(1024);
const CXL: Size = Size::mib(2048);
/// Memory that is filled before each sleep and compared after it: what a device writes to a wrong
/// place is seen.
const FILL: Size = Size::mib(128);
/// Of the disk with the drivers.
const DRIVERS_BYTES: u64 = 256 << 20;
/// To the end, and no made-up device wakes it.
const WHOLE: [(&str, &str); 2] = [
    ("/sys/power/pm_test", "none"),
    ("/sys/kernel/debug/pm_graph_test/wake", "N"),
];
/// Another value each time.
const EXTEND_REGISTER: &str = "export TPM2TOOLS_TCTI=device:/dev/tpmrm0; tpm2 pcrextend \
    10:sha256=1111111111111111111111111111111111111111111111111111111111111111";
const READ_REGISTER: &str = "TPM2TOOLS_TCTI=device:/dev/tpmrm0 tpm2 pcrread sha256:10";
/// No step takes longer; a whole sleep has limits of its own.
const STEP_TIMEOUT: Duration = Duration::from_secs(180);
const SETTING_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds the machine, and takes it through the plan's steps.
///
/// # Errors
/// It cannot be built or started, a step cannot be done, or it boots instead of waking.
pub fn run(
    args: &RealArgs,
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    terminal: &Terminal,
) -> Result<Report, LabError> {
    let artefacts = match stock {
        Some(stock) => build_stock(options, stock, terminal)?,
        None => build(options, terminal)?,
    };
    let drivers = build_devices_folder(options, stock, terminal)?;
    let mut lab = Lab::open(
        &machine_folder(&args.machine),
        MachineConfig::new(DRAM, CXL, args.cpus)?,
        false,
        Parts::from(&artefacts),
        Firmware::Coreboot,
    )?;
    lab.machine
        .make_scratch_disk(DRIVERS_BYTES, Some(&drivers))?;
    let tpm = lab.machine.tpm_folder();
    fs::create_dir_all(&tpm).doing(format!("create {}", tpm.display()))?;
    let hardware = Hardware::prepare(lab.machine.folder())?;
    lab.setting.more.clone_from(&hardware.arguments);
    let mut plan = Plan::new(args, &hardware.functions);
    let steps = std::mem::take(&mut plan.steps);

    let cycle_options = CycleOptions::plain(FILL);
    let say = |text: &str| terminal.now(text);
    let mut cycles = Cycles::new(&mut lab, &cycle_options, &say);
    let taken = take(&mut cycles, &steps, &mut plan, terminal);
    if taken.is_ok() {
        cycles.finish();
    }
    drop(cycles);
    taken.inspect_err(|_| plan.breaches().for_each(|text| eprintln!("{text}")))?;
    lab.machine.discard();
    let sleeps_to_ram = 0;
    Ok(plan.finish(artefacts.kernel_release, sleeps_to_ram))
}

fn take(
    cycles: &mut Cycles<'_>,
    steps: &[Step],
    plan: &mut Plan,
    terminal: &Terminal,
) -> Result<(), LabError> {
    set_up(cycles.power()?)?;
    let mut sleeps = 0;
    for (number, step) in steps.iter().enumerate() {
        if number % 10 == 0 {
            terminal.now(&format!("step {number} of {}", steps.len()));
        }
        let mut answer = if let Step::Sleep { sleep: Sleep::Cxl } = step {
            sleeps += 1;
            sleep(cycles, sleeps, step)?
        } else {
            ask(cycles.power()?, step)?
        };
        answer.step = number;
        plan.receive(&answer)?;
    }
    Ok(())
}

/// What the initrd and the command line of the machine with one job have.
fn set_up(power: &mut PowerOn) -> Result<(), LabError> {
    power.query::<Value>(Call::Stress(StressCall::Mount), SETTING_UP_TIMEOUT)?;
    // The console is slow, and what the kernel says there would count as its own time.
    let line = format!(
        "ln -s {SCRATCH}/modules {SCRATCH}/drivers / && dmesg -n 4 && \
         echo 0 >/sys/module/suspend/parameters/pm_test_delay"
    );
    power.shell_output(&line, SETTING_UP_TIMEOUT).map(drop)
}

fn ask(power: &mut PowerOn, step: &Step) -> Result<Answer, LabError> {
    let call = Call::Device { step: step.clone() };
    let answer: Answer = power.query(call, STEP_TIMEOUT)?;
    match answer.error {
        Some(error) => Err(LabError::Guest(error)),
        None => Ok(answer),
    }
}

/// Memory and a register of the TPM are compared, too: a sleep that ends otherwise than by waking with
/// the same data is a transition that failed.
fn sleep(cycles: &mut Cycles<'_>, number: u64, step: &Step) -> Result<Answer, LabError> {
    for (path, value) in WHOLE {
        let (path, value) = (path.into(), value.into());
        ask(cycles.power()?, &Step::Set { path, value })?;
    }
    let line = format!("{EXTEND_REGISTER} && {READ_REGISTER}");
    let register = cycles.power()?.shell_output(&line, SETTING_UP_TIMEOUT)?;
    let line = cycles.cycle(number)?;
    if line.outcome == Outcome::ColdBoot {
        // Without the module and its settings nothing that follows would be of this plan.
        let reason = format!("the machine booted instead of waking: {}", line.reason);
        return Err(LabError::Unexpected(reason));
    }
    let mut answer = ask(cycles.power()?, step)?;
    let after = cycles.power()?.shell(READ_REGISTER, SETTING_UP_TIMEOUT)?;
    let mut complaints = Vec::new();
    if !line.ok {
        complaints.push(format!("{}: {}", line.outcome, line.reason));
    }
    if after.stdout != register {
        complaints.push("a register of the TPM has another value".into());
    }
    if !complaints.is_empty() {
        let cycle = answer.cycle.get_or_insert_with(Cycle::default);
        cycle.errno = -1;
        cycle.complaints.splice(..0, complaints);
    }
    Ok(answer)
}
