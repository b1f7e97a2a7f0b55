//! Whole suspends and resumes: every phase runs in the executor, on the kernel's memory as it is then, and
//! the big core goes on from what the executor left.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::OffloadError;
use crate::guest::natives::hand_back_at;
use crate::machine;
use crate::machine::outcome::Outcome;
use crate::parts::Parts;
use crate::suspend::kernel::{Arrival, Kernel, Running};
use crate::suspend::{FUNCTIONS, THUMB, job_of};

/// CPSR.GE, which the executor neither reads nor changes between functions.
const GREATER: u32 = 0xf << 16;
/// CPSR's flags, A, I, F and the mode: what the executor reports.
const REPORTED: u32 = 0xf800_01df;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// A kernel in T32 code.
    pub t32: bool,
    /// Calls of kernel functions are served.
    pub prune: bool,
    /// How often the machine suspends and resumes.
    pub cycles: u32,
    /// The executor hands back at the first call of this function in each phase.
    pub hand_back: Option<&'a str>,
}

/// One phase in the executor.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Which suspend, from 1 on.
    pub cycle: u32,
    /// Name of the function.
    pub function: String,
    /// How it ended in the executor: `returned`, or `fallback` where the big core had to go on in it.
    pub stop: String,
    /// The reason in a sentence.
    pub explanation: String,
    /// The instruction that it stopped at, when it did not return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// r0 to r15 in the executor, at the end.
    pub registers: [u32; 16],
    /// Of the small core, translation included, waiting not.
    pub instructions: u64,
    /// Counters: translated instructions, bytes emitted, flushes of the cache, faults …
    pub counters: BTreeMap<String, u64>,
}

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
    /// Warnings of the kernel and errors of its first program.
    pub complaints: Vec<String>,
}

impl Summary {
    /// Whether every cycle came through, and nobody complained.
    pub fn good(&self) -> bool {
        let cycles = self.cycles as usize;
        self.suspend_exits == cycles
            && self.checked == cycles
            && self.returned + self.handed_back == cycles * FUNCTIONS.len()
            && self.complaints.is_empty()
    }
}

/// Lines of a kernel that say that something is wrong, and our first program's.
fn complains(line: &str) -> bool {
    let checked = line.contains("dormouse: files and processes as before");
    ["WARNING:", "BUG:", "Oops", "Unable to handle", "panic"]
        .iter()
        .any(|word| line.contains(word))
        || (line.contains("dormouse: ") && !checked)
}

fn summary_of(cycles: u32, phases: &[Phase], console: &str) -> Summary {
    let lines_with = |text: &str| console.lines().filter(|line| line.contains(text)).count();
    let stopped = |stop: &str| phases.iter().filter(|phase| phase.stop == stop).count();
    Summary {
        cycles,
        returned: stopped("returned"),
        handed_back: stopped("fallback"),
        suspend_exits: lines_with("PM: suspend exit"),
        checked: lines_with("dormouse: files and processes as before"),
        complaints: console
            .lines()
            // What it says while it boots is not of a suspend.
            .skip_while(|line| !line.contains("PM: suspend entry"))
            .filter(|line| complains(line))
            .map(str::to_owned)
            .collect(),
    }
}

/// Whether the executor handed back at the function's return.
fn came_back(arrival: &Arrival, outcome: &Outcome) -> bool {
    outcome.stop == "fallback"
        && outcome.registers[15] == arrival.registers[14] & !1
        && outcome.registers[13] == arrival.registers[13]
}

/// CPSR with which the big core goes on.
fn status_after(arrival: &Arrival, outcome: &Outcome) -> u32 {
    outcome.flags & (REPORTED | THUMB) | arrival.status & GREATER
}

fn one_phase(
    parts: &Parts,
    kernel: &Kernel,
    running: &mut Running,
    settings: &Settings,
    (cycle, function): (u32, &str),
) -> Result<Phase, OffloadError> {
    let arrival = running.run_to(function)?;
    let guest = kernel.guest(&arrival.memory)?;
    let mut job = job_of(&guest, &arrival, function, settings.prune)?;
    // The big core goes on with registers that the function saves for its caller, and returns where that
    // is, from wherever the executor leaves it.
    job.registers.copy_from_slice(&arrival.registers[4..13]);
    job.link = arrival.registers[14];
    job.natives.push(hand_back_at(job.link));
    if let Some(name) = settings.hand_back {
        job.natives.push(hand_back_at(guest.address(name)?));
    }
    let (runs, memory) = machine::run(parts, &guest, &job)?;
    let Some(mut outcome) = runs.into_iter().next() else {
        return Err(OffloadError::Machine("reported no run".into()));
    };
    if came_back(&arrival, &outcome) {
        "returned".clone_into(&mut outcome.stop);
        "the function returned".clone_into(&mut outcome.explanation);
        outcome.instruction = None;
    }
    if memory.len() != arrival.memory.len() {
        return Err(OffloadError::Machine("gave no memory back".into()));
    }
    // From anything else the big core could not go on.
    if outcome.stop == "returned" || outcome.stop == "fallback" {
        let status = status_after(&arrival, &outcome);
        running.go_on_from(&outcome.registers, status, &memory)?;
    }
    Ok(Phase {
        cycle,
        function: function.to_owned(),
        stop: outcome.stop,
        explanation: outcome.explanation,
        instruction: outcome.instruction,
        registers: outcome.registers,
        instructions: outcome.instructions,
        counters: outcome.counters,
    })
}

/// Runs it; `report` gets each phase when it has ended.
///
/// # Errors
/// The kernel cannot be built, a tool is missing, the machine does not come to a phase or to its end.
pub fn run(settings: &Settings, mut report: impl FnMut(&Phase)) -> Result<Summary, OffloadError> {
    let parts = Parts::ready()?;
    let kernel = Kernel::ready(settings.t32)?;
    let mut running = kernel.boot(settings.cycles)?;
    let mut phases = Vec::new();
    for cycle in 1..=settings.cycles {
        for (function, _) in FUNCTIONS {
            let phase = one_phase(&parts, &kernel, &mut running, settings, (cycle, function))?;
            report(&phase);
            let goes_on = phase.stop == "returned" || phase.stop == "fallback";
            phases.push(phase);
            if !goes_on {
                return Ok(summary_of(settings.cycles, &phases, ""));
            }
        }
    }
    let console = running.run_to_restart()?;
    Ok(summary_of(settings.cycles, &phases, &console))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(back: u32, status: u32) -> Arrival {
        let mut registers = [0; 16];
        registers[14] = back;
        Arrival {
            registers,
            status,
            clocks: [0; 2],
            thread: [0; 3],
            memory: Vec::new(),
        }
    }

    fn outcome(stop: &str, flags: u32) -> Outcome {
        Outcome {
            stop: stop.into(),
            explanation: String::new(),
            registers: [7; 16],
            flags,
            instructions: 0,
            instruction: None,
            encoding: None,
            accessed: None,
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn a_hand_back_at_the_return_address_and_stack_of_the_call_is_a_return() {
        let mut outcome = outcome("fallback", 0x33);
        outcome.registers[15] = 0xc010_0000;
        assert!(!came_back(&arrival(0xc010_0001, 0x33), &outcome));
        outcome.registers[13] = 0;
        assert!(came_back(&arrival(0xc010_0001, 0x33), &outcome));
        assert!(!came_back(&arrival(0xc010_0005, 0x33), &outcome));
    }

    #[test]
    fn the_big_core_goes_on_with_its_own_ge_flags() {
        let status = status_after(&arrival(0, 0x000a_0013), &outcome("fallback", 0x8000_00b3));
        assert_eq!(status, 0x800a_00b3);
    }

    #[test]
    fn a_warning_of_the_kernel_is_a_complaint() {
        let console = "WARNING: at boot\nPM: suspend entry\nPM: suspend exit\nWARNING: CPU: 0\ndormouse: another file after cycle 1\n";
        let summary = summary_of(1, &[], console);
        assert_eq!(summary.suspend_exits, 1);
        assert_eq!(summary.complaints.len(), 2);
        assert!(!summary.good());
    }
}
