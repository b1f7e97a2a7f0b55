//! Whole suspends and resumes: every phase runs in the executor, on the kernel's memory as it is then, and
//! the big core goes on from what the executor left.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::energy::{self, BigRun, Energy, SmallRun};
use crate::error::OffloadError;
use crate::machine;
use crate::machine::kept::Kept;
use crate::parts::Parts;
use crate::suspend::board::windows_without;
use crate::suspend::cuts::Cuts;
use crate::suspend::kernel::{Kernel, Running};
use crate::suspend::phase::{Frame, Phase, Scheduler, Settings, job_to_go_on};
use crate::suspend::{FUNCTIONS, native, real};

/// How the machine came out of it.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// How often it was to suspend.
    pub cycles: u32,
    /// Phases that returned in the executor.
    pub returned: usize,
    /// Phases that the big core finished.
    pub handed_back: usize,
    /// How often the kernel printed `PM: suspend exit`.
    pub suspend_exits: usize,
    /// After how many of them a file had its contents, and a process of before answered.
    pub checked: usize,
    /// After how many of them every device of the board worked; none: it has dummies only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices_worked: Option<usize>,
    /// How often a thread waited on the big core, and went on in the executor.
    pub waits: u32,
    /// Microseconds of the board's time in those waits.
    pub big_core_us: u64,
    /// Instructions of the small core in all phases.
    pub instructions: u64,
    /// Microseconds in which it waited in delays, and executed none.
    pub waited_us: u64,
    /// How often the kernel's idle thread waited for an interrupt of the board, in the executor.
    pub idle_waits: u32,
    /// Microseconds of the board's time in those.
    pub idle_us: u64,
    /// How often each device of the board was accessed from the executor.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accesses: BTreeMap<String, u64>,
    /// Accesses to devices that were refused; the big core made them, and finished the phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// The first cycle of these means: the second where the code cache is kept, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_from_cycle: Option<u32>,
    /// Energy of each phase, means of the cycles, and of all phases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<Energy>,
    /// Warnings of the kernel and errors of its first program.
    pub complaints: Vec<String>,
}

impl Summary {
    /// Whether every cycle came through, and nobody complained.
    pub fn good(&self) -> bool {
        let cycles = self.cycles as usize;
        self.suspend_exits == cycles
            && self.checked == cycles
            && self.devices_worked.is_none_or(|worked| worked == cycles)
            && self.returned + self.handed_back == cycles * FUNCTIONS.len()
            && self.complaints.is_empty()
    }
}

/// What the first program reports of a cycle that came through.
const CHECKED: &str = "dormouse: files and processes as before";
const DEVICES_WORK: &str = "dormouse: clock, serial line, card, disk and network work";

/// Lines of a kernel that say that something is wrong, and our first program's.
fn complains(line: &str) -> bool {
    let checked = line.contains(CHECKED) || line.contains(DEVICES_WORK);
    ["WARNING:", "BUG:", "Oops", "Unable to handle", "panic"]
        .iter()
        .any(|word| line.contains(word))
        || (line.contains("dormouse: ") && !checked)
}

fn summary_of(settings: &Settings<'_>, phases: &[Phase], console: &str) -> Summary {
    let cycles = settings.cycles;
    let mut accesses: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in phases.iter().flat_map(|phase| &phase.accesses) {
        *accesses.entry(name.clone()).or_default() += count;
    }
    let lines_with = |text: &str| console.lines().filter(|line| line.contains(text)).count();
    let stopped = |stop: &str| phases.iter().filter(|phase| phase.end.stop == stop).count();
    Summary {
        cycles,
        returned: stopped("returned"),
        handed_back: stopped("fallback") + phases.iter().filter(|phase| phase.is_cut()).count(),
        suspend_exits: lines_with("PM: suspend exit"),
        checked: lines_with(CHECKED),
        devices_worked: settings.real.map(|_| lines_with(DEVICES_WORK)),
        waits: phases.iter().map(|phase| phase.waits).sum(),
        big_core_us: phases.iter().map(|phase| phase.big_core_us).sum(),
        idle_waits: phases.iter().map(|phase| phase.idle_waits).sum(),
        idle_us: phases.iter().map(|phase| phase.idle_us).sum(),
        instructions: phases.iter().map(|phase| phase.instructions).sum(),
        waited_us: phases
            .iter()
            .filter_map(|phase| phase.counters.get("waited_us"))
            .sum(),
        accesses,
        refused: phases
            .iter()
            .filter(|phase| phase.end.stop == "refused-access")
            .map(|phase| {
                format!(
                    "cycle {}, {}: {}",
                    phase.cycle, phase.function, phase.end.explanation
                )
            })
            .collect(),
        energy_from_cycle: None,
        energy: Vec::new(),
        complaints: console
            .lines()
            // What it says while it boots is not of a suspend.
            .skip_while(|line| !line.contains("PM: suspend entry"))
            .filter(|line| complains(line))
            .map(str::to_owned)
            .collect(),
    }
}

fn one_phase(
    parts: &Parts,
    kernel: &Kernel,
    running: &mut Running,
    (settings, kept, cuts): (&Settings<'_>, Option<&Kept>, &mut Option<Cuts>),
    (cycle, function): (u32, &str),
) -> Result<Phase, OffloadError> {
    let arrival = running.run_to(function)?;
    let frame = Frame::of(&arrival);
    let guest = kernel.guest(&arrival.memory)?;
    let mut job = job_to_go_on(&guest, &arrival, frame, settings)?;
    let mut phase = Phase::of(cycle, function);
    phase.cut_after = cuts.as_mut().and_then(|cuts| cuts.cut(function, &mut job));
    let (runs, memory) = machine::run_with(parts, &guest, &job, kept)?;
    let Some(outcome) = runs.into_iter().next() else {
        return Err(OffloadError::Machine("reported no run".into()));
    };
    if memory.len() != arrival.memory.len() {
        return Err(OffloadError::Machine("gave no memory back".into()));
    }
    phase.add(frame, &outcome);
    if let (Some(cuts), false) = (cuts, phase.is_cut()) {
        cuts.ran(function, &outcome);
    }
    // From anything else the big core could not go on.
    if phase.goes_on() {
        let status = outcome.status();
        running.go_on_from(&outcome.registers, status, &memory)?;
    }
    Ok(phase)
}

/// Runs it; `report` gets each phase when it has ended.
///
/// # Errors
/// The kernel cannot be built, a tool is missing, the machine does not come to a phase or to its end.
pub fn run(
    settings: &Settings<'_>,
    mut report: impl FnMut(&Phase),
) -> Result<Summary, OffloadError> {
    let windows = settings.real.map(windows_without).transpose()?;
    let parts = Parts::ready()?;
    let mut kernel = Kernel::ready(settings.t32, windows.is_some())?;
    // The executor follows one thread then.
    if settings.scheduler == Scheduler::Big {
        kernel = kernel.in_order();
    }
    let alone = match settings.energy {
        true => native::measure(&parts, &kernel)?,
        false => Vec::new(),
    };
    let kept = settings.keep.then(Kept::new).transpose()?;
    let mut cuts = settings.cuts.map(Cuts::new);
    let mut running = kernel.boot(settings.cycles)?;
    let mut phases = Vec::new();
    for cycle in 1..=settings.cycles {
        // A phase that is cut leaves nothing: each has what the first suspend left.
        if let (Some(kept), true) = (&kept, cuts.is_some() && cycle > 1) {
            kept.lend(true);
        }
        for (function, _) in FUNCTIONS {
            let what = (cycle, function);
            let phase = match &windows {
                None => {
                    let settings = (settings, kept.as_ref(), &mut cuts);
                    one_phase(&parts, &kernel, &mut running, settings, what)
                }
                Some(windows) => {
                    let settings = (settings, &windows[..], kept.as_ref(), &mut cuts);
                    real::one_phase(&parts, &kernel, &mut running, settings, what)
                }
            };
            let phase = phase.map_err(|error| running.explained(error))?;
            report(&phase);
            let goes_on = phase.goes_on();
            phases.push(phase);
            if !goes_on {
                return Ok(summary_of(settings, &phases, ""));
            }
        }
    }
    let console = running.run_to_restart()?;
    let mut summary = summary_of(settings, &phases, &console);
    if settings.energy {
        // The first fills the cache.
        let from = 1 + u32::from(settings.keep && settings.cycles > 1);
        summary.energy_from_cycle = Some(from);
        phases.retain(|phase| phase.cycle >= from);
        summary.energy = energy_of(&phases, &alone);
    }
    Ok(summary)
}

/// Means of each phase that was counted on both cores.
fn energy_of(phases: &[Phase], alone: &[BigRun]) -> Vec<Energy> {
    let both: Vec<(String, BigRun, SmallRun)> = FUNCTIONS
        .iter()
        .zip(alone)
        .filter_map(|((function, _), big)| {
            let small = native::mean(phases, function)?;
            Some(((*function).to_owned(), *big, small))
        })
        .collect();
    energy::of_phases(&both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_the_kernel_is_a_complaint() {
        let console = "WARNING: at boot\nPM: suspend entry\nPM: suspend exit\nWARNING: CPU: 0\ndormouse: another file after cycle 1\n";
        let settings = Settings {
            t32: false,
            prune: false,
            cycles: 1,
            hand_back: None,
            cuts: None,
            real: None,
            scheduler: Scheduler::Small,
            energy: false,
            keep: true,
        };
        let summary = summary_of(&settings, &[], console);
        assert_eq!(summary.suspend_exits, 1);
        assert_eq!(summary.complaints.len(), 2);
        assert!(!summary.good());
    }
}
