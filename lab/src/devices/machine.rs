//! The machine whose devices suspend and resume: one boot for one job.

use std::path::Path;

use dormouse_guest::protocol::device_job::{AP_BOOT_ADDRESS, Answer, JOB, Step};

use crate::build::DevicesArtefacts;
use crate::emulator::job_machine::{Boot, JobMachine};
use crate::emulator::monitor::Exchanges;
use crate::error::LabError;

/// Which processors Linux has.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// How the machine is to be.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Number of processors.
    pub cpus: u32,
    /// A host thread for each processor; one for all otherwise.
    pub threads: bool,
    /// What the time of the machine is made of.
    pub clock: Clock,
    /// Run the kernel's own tests when it boots.
    pub kunit: bool,
    /// As the emulator has it: `512M`.
    pub memory: &'static str,
    /// Further devices: arguments of the emulator.
    pub more: Vec<String>,
    /// What happens to its devices while it sleeps.
    pub exchanges: Exchanges,
}

/// What the machine's time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The host's.
    Host,
    /// Each instruction of any processor takes `ns` nanoseconds, a power of two up to 128. While
    /// all processors sleep, time jumps to the next event. Other load of the host has no effect.
    /// Needs one host thread.
    Instructions {
        /// Nanoseconds per instruction.
        ns: u32,
    },
}

impl Clock {
    fn arguments(self) -> Vec<String> {
        match self {
            Clock::Host => Vec::new(),
            Clock::Instructions { ns } => {
                let shift = ns.max(1).ilog2();
                vec!["-icount".into(), format!("shift={shift},sleep=off")]
            }
        }
    }
}

/// Runs the steps in a fresh machine; `each` receives every answer as it arrives, and a last one
/// that reports that the job is done. How often the machine has slept to RAM.
///
/// # Errors
/// The machine does not start, a step fails, or it is silent for too long: the end of its console
/// is shown.
pub fn run(
    artefacts: &DevicesArtefacts,
    shape: &Shape,
    folder: &Path,
    steps: &[Step],
    mut each: impl FnMut(&Answer) -> Result<(), LabError>,
) -> Result<usize, LabError> {
    let online = Step::Read {
        path: ONLINE.into(),
    };
    let job: Vec<&Step> = std::iter::once(&online).chain(steps).collect();
    let boot = Boot {
        kernel: &artefacts.kernel,
        initrd: &artefacts.initrd,
        job: JOB,
        cpus: shape.cpus,
        threads: shape.threads,
        board: if artefacts.acpi {
            "q35"
        } else {
            "q35,acpi=off"
        },
        memory: shape.memory,
        more: [shape.clock.arguments(), shape.more.clone()].concat(),
        exchanges: shape.exchanges.clone(),
        // The console is slow, and what the kernel says there would count as its own time. On a
        // busy host the timer may be late for the kernel's check of it, which is a panic.
        cmdline: format!(
            "console=ttyS0 loglevel=4 panic=-1 no_console_suspend suspend.pm_test_delay=0 \
             tsc=reliable no_timer_check memmap=4K${AP_BOOT_ADDRESS:#x} kunit.enable={}",
            u8::from(shape.kunit)
        ),
    };
    let mut machine = JobMachine::<Answer>::start(&boot, folder, &job)?;
    // What the kernel reported while it booted goes with the first step.
    let mut reports = Vec::new();
    loop {
        let mut answer = machine.next()?;
        if let Some(error) = answer.error {
            return Err(LabError::Guest(error));
        }
        let Some(step) = answer.step.checked_sub(1) else {
            all_online(shape.cpus, answer.text.trim())?;
            reports = answer.reports;
            continue;
        };
        answer.step = step;
        answer.reports.splice(..0, reports.drain(..));
        each(&answer)?;
        if answer.step == steps.len() {
            return Ok(machine.sleeps());
        }
    }
}

/// With fewer processors than asked for, every result would be about another machine.
fn all_online(cpus: u32, online: &str) -> Result<(), LabError> {
    let wanted = match cpus {
        0 | 1 => "0".to_owned(),
        _ => format!("0-{}", cpus - 1),
    };
    if online == wanted {
        return Ok(());
    }
    Err(LabError::Unexpected(format!(
        "the machine has processors {online}, not {wanted}"
    )))
}
