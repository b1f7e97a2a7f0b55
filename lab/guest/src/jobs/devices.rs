//! Init of the machine for device suspend: does the job from the initrd and resets the machine,
//! which ends the emulator. In a machine that has an agent, the agent does the steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::device_job::{Answer, Cycle, JOB, Step};
use dormouse_guest::protocol::real_devices::Sleep;

use crate::error::{Doing, GuestError};
use crate::jobs::pm_ports::PowerManagement;
use crate::jobs::{ap_boot, functions, job, modules};
use crate::system;
use crate::system::kernel_log::KernelLog;

const POWER: &str = "/sys/power";
const TEST_MODULE: &str = "/sys/kernel/debug/pm_graph_test";
/// The callbacks of all phases run, and the machine goes no further.
const SETTINGS: [(&str, &str); 4] = [
    ("mem_sleep", "s2idle"),
    ("pm_test", "platform"),
    ("pm_debug_messages", "1"),
    ("sync_on_suspend", "0"),
];

/// Where the initrd, or a link, has the drivers of real devices.
const DRIVERS: &str = "/drivers";

/// Whether this boot is for that.
pub fn is_asked() -> bool {
    Path::new(JOB).exists()
}

/// Does the job; never returns.
pub fn run() -> ! {
    job::run("devices", serve)
}

fn serve() -> Result<(), GuestError> {
    let more = [("debugfs", "/sys/kernel/debug", "debugfs")];
    let (mut voice, steps) = job::begin::<Step>(JOB, &more)?;
    let mut devices = Devices::new()?;
    for (number, step) in steps.iter().enumerate() {
        let mut answer = devices.act(step)?;
        answer.step = number;
        job::say(&mut voice, &answer)?;
        if answer.error.is_some() {
            return Ok(());
        }
    }
    let done = Answer {
        step: steps.len(),
        reports: devices.log.take_reports()?,
        ..Answer::default()
    };
    job::say(&mut voice, &done)
}

/// The machine's devices, and what the kernel says of them.
pub struct Devices {
    log: KernelLog,
}

impl Devices {
    /// With the settings of the kernel that the steps need.
    pub fn new() -> Result<Devices, GuestError> {
        for (name, value) in SETTINGS {
            let path = format!("{POWER}/{name}");
            // Some distributions build kernels without PM_DEBUG.
            if Path::new(&path).exists() {
                write_value(&path, value)?;
            }
        }
        let log = KernelLog::open()?;
        Ok(Devices { log })
    }

    /// Does a step; what the kernel reported meanwhile is in the answer.
    pub fn act(&mut self, step: &Step) -> Result<Answer, GuestError> {
        let mut answer = match act(step, &mut self.log) {
            Ok(answer) => answer,
            Err(error) => Answer {
                error: Some(error.to_string()),
                ..Answer::default()
            },
        };
        answer.reports = self.log.take_reports()?;
        Ok(answer)
    }
}

fn write_value(path: &str, value: &str) -> Result<(), GuestError> {
    fs::write(path, value).doing(format!("write {value:?} to {path}"))
}

fn read_text(path: &str) -> Result<String, GuestError> {
    fs::read_to_string(path).doing(format!("read {path}"))
}

fn act(step: &Step, log: &mut KernelLog) -> Result<Answer, GuestError> {
    let mut answer = Answer::default();
    let begin = Instant::now();
    match step {
        Step::Graph { text } => build_graph(text)?,
        Step::Inject { line } => write_value(&format!("{TEST_MODULE}/inject"), line)?,
        Step::Set { path, value } => write_value(path, value)?,
        Step::Permit { all } => {
            write_value(
                &format!("{TEST_MODULE}/permit"),
                if *all { "1" } else { "0" },
            )?;
        }
        Step::Read { path } => answer.text = read_text(path)?,
        Step::Exists { path } => {
            answer.text = if Path::new(path).exists() {
                "yes"
            } else {
                "no"
            }
            .into();
        }
        Step::Load { module, parameters } => {
            answer.text = modules::load(module, parameters, log)?;
        }
        Step::Unload { module } => answer.text = modules::unload(module)?,
        Step::Cycle { order } => answer.cycle = Some(cycle("freeze", *order, log)?),
        Step::LoadDrivers => {
            answer.text = system::modules::load_all(Path::new(DRIVERS)).join("\n");
        }
        Step::Bound => answer.bound = functions::bound()?,
        Step::Sleep { sleep: way } => answer.cycle = Some(sleep(*way, log)?),
        Step::Use { functions, limit_s } => {
            answer.useless = functions::use_all(functions, Duration::from_secs(*limit_s));
        }
    }
    answer.took_ms = begin.elapsed().as_millis() as u64;
    Ok(answer)
}

fn build_graph(text: &str) -> Result<(), GuestError> {
    write_value(&format!("{TEST_MODULE}/graph"), text)?;
    write_value(&format!("{TEST_MODULE}/build"), "1").map_err(|error| {
        let status = read_text(&format!("{TEST_MODULE}/status")).unwrap_or_default();
        GuestError::Other(format!("{error}: {}", status.trim()))
    })
}

/// A real sleep ends by a made-up device (to idle) or by the emulator (to RAM).
fn sleep(way: Sleep, log: &mut KernelLog) -> Result<Cycle, GuestError> {
    let (test, state) = match way {
        Sleep::Cxl => return logged(log),
        Sleep::Devices => ("devices", "freeze"),
        Sleep::Platform => ("platform", "freeze"),
        Sleep::Idle => ("none", "freeze"),
        Sleep::Ram => ("none", "mem"),
    };
    write_value(&format!("{POWER}/pm_test"), test)?;
    let wakes = if way == Sleep::Idle { "Y" } else { "N" };
    write_value(&format!("{TEST_MODULE}/wake"), wakes)?;
    if way != Sleep::Ram {
        return cycle(state, false, log);
    }
    ap_boot::hold()?;
    write_value(&format!("{POWER}/mem_sleep"), "deep")?;
    let management = PowerManagement::save()?;
    let cycle = cycle(state, false, log);
    management.restore()?;
    cycle
}

fn cycle(state: &str, order: bool, log: &mut KernelLog) -> Result<Cycle, GuestError> {
    let order_file = format!("{TEST_MODULE}/order");
    write_value(&order_file, "1")?;
    let phases_file = format!("{TEST_MODULE}/phases");
    write_value(&phases_file, "1")?;
    // Earlier lines do not count here.
    log.lines()?;
    let mut cycle = Cycle::default();
    if let Err(error) = fs::write(format!("{POWER}/state"), state) {
        cycle.errno = error.raw_os_error().unwrap_or(-1);
        cycle.failed_device = read_text(&format!("{POWER}/suspend_stats/last_failed_dev"))?
            .trim()
            .to_owned();
    }
    let said = logged(log)?;
    (cycle.phases_us, cycle.complaints) = (said.phases_us, said.complaints);
    if cycle.phases_us.is_empty() {
        cycle.phases_us = phase_times(&read_text(&phases_file)?);
    }
    if order {
        cycle.order = read_text(&order_file)?;
    }
    Ok(cycle)
}

/// What the kernel has said of a transition since its log was last read.
fn logged(log: &mut KernelLog) -> Result<Cycle, GuestError> {
    let mut cycle = Cycle::default();
    for line in log.lines()? {
        if let Some((phase, us)) = phase_time(&line) {
            cycle.phases_us.insert(phase, us);
        } else if line.contains("failed to") || line.contains("given up") {
            cycle.complaints.push(line);
        }
    }
    Ok(cycle)
}

/// The test module's lines, `suspend_late 12345`: for kernels that do not log the times.
fn phase_times(text: &str) -> BTreeMap<String, u64> {
    let one = |line: &str| {
        let (phase, us) = line.split_once(' ')?;
        Some((phase.to_owned(), us.parse().ok()?))
    };
    text.lines().filter_map(one).collect()
}

/// `PM: late suspend of devices complete after 12.345 msecs` is `suspend_late` and 12345.
fn phase_time(line: &str) -> Option<(String, u64)> {
    let (kind, rest) = line.strip_prefix("PM: ")?.split_once(" of devices ")?;
    let phase = match kind {
        "suspend" | "resume" => kind.to_owned(),
        _ => {
            let (when, verb) = kind.split_once(' ')?;
            // Late and noirq suspend together.
            if when == "end" {
                return None;
            }
            format!("{verb}_{when}")
        }
    };
    let ms = rest.split_once(" after ")?.1.strip_suffix(" msecs")?;
    let (whole, part) = ms.split_once('.')?;
    Some((
        phase,
        whole.parse::<u64>().ok()? * 1000 + part.parse::<u64>().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_module_s_times_are_read_by_phase() {
        let times = phase_times("suspend 120\nresume_early 7\n");
        assert_eq!(times["suspend"], 120);
        assert_eq!(times["resume_early"], 7);
    }

    #[test]
    fn the_kernel_s_times_are_read_by_phase() {
        let read = |line: &str| phase_time(line);
        assert_eq!(
            read("PM: late suspend of devices complete after 12.045 msecs"),
            Some(("suspend_late".into(), 12_045))
        );
        assert_eq!(
            read("PM: suspend of devices aborted after 0.007 msecs"),
            Some(("suspend".into(), 7))
        );
        assert_eq!(
            read("PM: noirq resume of devices complete after 1.000 msecs"),
            Some(("resume_noirq".into(), 1000))
        );
        assert_eq!(
            read("PM: end suspend of devices complete after 1.000 msecs"),
            None
        );
        assert_eq!(read("PM: suspend entry (s2idle)"), None);
    }
}
