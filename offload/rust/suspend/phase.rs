//! One phase of a suspend or resume in the executor, and how the big core goes on from it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::energy::count::Cycles;
use crate::error::OffloadError;
use crate::guest::Guest;
use crate::guest::natives::hand_back_at;
use crate::machine::job::Job;
use crate::machine::outcome::{End, Outcome};
use crate::suspend::job_of;
use crate::suspend::kernel::Arrival;

/// Which core a thread waits on, with the board's own devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheduler {
    /// The kernel's scheduler, other threads and interrupt handlers run in the executor; in the idle thread the small
    /// core waits for an interrupt.
    Small,
    /// The executor hands back at each wait, and goes on behind it.
    Big,
}

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
    /// Each phase hands back at a random instruction, by this seed; not in the first suspend.
    pub cuts: Option<u64>,
    /// The board's own devices, and the names of those that are not forwarded; none: dummies only.
    pub real: Option<&'a [String]>,
    /// Where a thread waits, with the board's own devices.
    pub scheduler: Scheduler,
    /// Count cycles, and compute energy.
    pub energy: bool,
    /// Each phase begins with the code cache that the last one left, in the same suspend or another.
    pub keep: bool,
}

/// One phase in the executor.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Which suspend, from 1 on.
    pub cycle: u32,
    /// Name of the function.
    pub function: String,
    /// How it ended in the executor: `returned`; `fallback` where the big core had to go on in it; `budget` where it
    /// was cut;
    /// `refused-access` where it went on because an access to a device is not forwarded.
    #[serde(flatten)]
    pub end: End,
    /// After how many instructions behind its begin, or behind its last wait for an interrupt, it was to be cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_after: Option<u64>,
    /// Of the small core, translation included, waiting not.
    pub instructions: u64,
    /// Counters: translated instructions, bytes emitted, flushes of the cache, faults …
    pub counters: BTreeMap<String, u64>,
    /// How often the thread waited on the big core, and went on in the executor.
    pub waits: u32,
    /// Microseconds of the board's time in those waits; else that stands still.
    pub big_core_us: u64,
    /// How often the kernel's idle thread waited for an interrupt of the board, in the executor.
    pub idle_waits: u32,
    /// Microseconds of the board's time in those.
    pub idle_us: u64,
    /// What the small core executed, in cycles; none: that was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Cycles>,
    /// How often it accessed each of the board's devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accesses: BTreeMap<String, u64>,
}

impl Phase {
    /// Before anything of it has run.
    pub(super) fn of(cycle: u32, function: &str) -> Phase {
        Phase {
            cycle,
            function: function.to_owned(),
            end: End::default(),
            cut_after: None,
            instructions: 0,
            counters: BTreeMap::new(),
            waits: 0,
            big_core_us: 0,
            idle_waits: 0,
            idle_us: 0,
            cycles: None,
            accesses: BTreeMap::new(),
        }
    }

    /// Whether the big core can go on.
    pub fn goes_on(&self) -> bool {
        let stop = self.end.stop.as_str();
        ["returned", "fallback", "refused-access"].contains(&stop) || self.is_cut()
    }

    /// Whether it handed back where it was to be cut.
    pub fn is_cut(&self) -> bool {
        self.cut_after.is_some() && self.end.stop == "budget"
    }

    /// Takes over how it ended, and adds what it took.
    pub(super) fn add(&mut self, frame: Frame, outcome: &Outcome) {
        self.end = End::of(outcome);
        if frame.is_left(outcome) {
            "returned".clone_into(&mut self.end.stop);
            "the function returned".clone_into(&mut self.end.explanation);
            self.end.instruction = None;
        }
        if self.is_cut() {
            "handed back at a random instruction".clone_into(&mut self.end.explanation);
        }
        self.instructions += outcome.instructions;
        for (name, count) in &outcome.counters {
            *self.counters.entry(name.clone()).or_default() += count;
        }
    }
}

/// Where the call of a phase returns to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    back: u32,
    sp: u32,
}

impl Frame {
    /// Of the call that the big core stands at.
    pub(super) fn of(arrival: &Arrival) -> Frame {
        Frame {
            back: arrival.registers[14],
            sp: arrival.registers[13],
        }
    }

    /// Whether the executor handed back at the function's return.
    fn is_left(self, outcome: &Outcome) -> bool {
        outcome.stop == "fallback"
            && outcome.registers[15] == self.back & !1
            && outcome.registers[13] == self.sp
    }
}

/// A job with the registers that a function saves for its caller: the big core goes on with them, and returns
/// where the call does, from wherever the executor leaves it.
pub(super) fn job_to_go_on(
    guest: &Guest,
    arrival: &Arrival,
    frame: Frame,
    settings: &Settings<'_>,
) -> Result<Job, OffloadError> {
    let mut job = job_of(guest, arrival, settings.prune)?;
    job.registers.copy_from_slice(&arrival.registers[4..13]);
    job.link = frame.back;
    job.keep = settings.keep;
    if let Some(name) = settings.hand_back {
        job.natives.push(hand_back_at(guest.address(name)?));
    }
    Ok(job)
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
            processor: None,
        }
    }

    #[test]
    fn a_hand_back_at_the_return_address_and_stack_of_the_call_is_a_return() {
        let mut outcome = outcome("fallback", 0x33);
        outcome.registers[15] = 0xc010_0000;
        let frame = |back: u32| Frame::of(&arrival(back, 0x33));
        assert!(!frame(0xc010_0001).is_left(&outcome));
        outcome.registers[13] = 0;
        assert!(frame(0xc010_0001).is_left(&outcome));
        assert!(!frame(0xc010_0005).is_left(&outcome));
    }
}
