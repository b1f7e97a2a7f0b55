//! `dormouse offload suspend`: a whole kernel's own device suspend and resume in the executor. Either the big
//! core goes on from what the executor left (`cycle`), with dummy devices or with the board's own (`real`), or
//! each phase is compared with the same call on the big core (here).

mod big_core;
mod board;
mod cuts;
pub mod cycle;
pub mod gdb;
mod hardware;
pub mod kernel;
mod native;
pub mod phase;
mod real;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::guest::natives::natives_of;
use crate::machine;
use crate::machine::job::{Device, Job};
use crate::machine::kept::Kept;
use crate::machine::outcome::End;
use crate::parts::Parts;
use crate::suspend::kernel::{Arrival, CLOCK, COUNTER, Call, Kernel, PHYSICAL};

/// What is run, in the order in which the kernel calls it, and whether it returns something.
pub const FUNCTIONS: [(&str, bool); 8] = [
    ("dpm_prepare", true),
    ("dpm_suspend", true),
    ("dpm_suspend_late", true),
    ("dpm_suspend_noirq", true),
    ("dpm_resume_noirq", false),
    ("dpm_resume_early", false),
    ("dpm_resume", false),
    ("dpm_complete", false),
];
/// The board's first dual timer is the small core's dual timer, and the board's counter of 24 MHz the
/// small core's of 25 MHz.
const DEVICES: [Device; 2] = [
    Device {
        physical: CLOCK & !0xfff,
        bytes: 0x1000,
        host: DUAL_TIMER,
    },
    Device {
        physical: COUNTER,
        bytes: 4,
        host: CYCLES,
    },
];
const DUAL_TIMER: u32 = 0x4000_2000;
/// Of the second timer: what it counts down from; its control register, and what makes it one of 32 bits.
const LOAD: u32 = DUAL_TIMER + 0x20;
const CONTROL: u32 = DUAL_TIMER + 0x28;
const SIZE_32: u32 = 1 << 1;
const CYCLES: u32 = 0x4002_8018;
/// One less than the cycles that each count takes.
const PRESCALE: u32 = CYCLES + 4;
/// CPSR.I.
const MASKED: u32 = 0x80;
/// CPSR.T; the entry says so, too.
const THUMB: u32 = 1 << 5;
/// `THREAD_SIZE` of an ARM kernel: a thread's stack, a multiple of its size.
const STACK_BYTES: u32 = 0x2000;
/// Differences that are named one by one.
const MAX_NAMED: usize = 20;

/// One function on both cores.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Name of the function.
    pub function: String,
    /// How it ended in the executor; `returned` is the whole of it.
    #[serde(flatten)]
    pub end: End,
    /// What the function returned, if it returns something: in the executor, on the big core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<[u32; 2]>,
    /// Of the small core, translation included.
    pub instructions: u64,
    /// Counters: translated instructions, bytes emitted, flushes of the cache, faults …
    pub counters: BTreeMap<String, u64>,
    /// Events that the dummy devices' driver noted so far, in the executor: one a device and call.
    pub device_events: u32,
    /// Words of memory that the big core changed.
    pub changed: usize,
    /// Doublewords that depend on the time of the call, as the scheduler's clocks do: on the big core
    /// they are something else when the same call is made once more.
    pub times: usize,
    /// Words that are otherwise than on the big core, without those and what is below the stack
    /// pointer.
    pub different: usize,
    /// The first of them: address, symbol and offset, executor's and big core's value.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Whether all is as on the big core.
    pub fn same(&self) -> bool {
        self.end.stop == "returned"
            && self.results.is_none_or(|results| results[0] == results[1])
            && self.different == 0
    }
}

fn word(memory: &[u8], at: usize) -> u32 {
    memory[at..at + 4]
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// The symbol that an address is in, and how far.
fn named(symbols: &BTreeMap<u32, String>, end: u32, address: u32) -> String {
    match symbols.range(..=address).next_back() {
        Some((start, name)) if address < end => format!("{name}+{:#x}", address - start),
        _ => "allocated".into(),
    }
}

fn job_of(guest: &Guest, call: &Arrival, prune: bool) -> Result<Job, OffloadError> {
    let registers = &call.registers;
    let mut job = Job::new(
        registers[15] | u32::from(call.status & THUMB != 0),
        [registers[0], registers[1], registers[2], registers[3]],
    );
    let bottom = registers[13] & !(STACK_BYTES - 1);
    job.stack = Some((registers[13], bottom, bottom));
    job.control = call.status & !THUMB;
    job.thread = call.thread;
    job.cache_bytes = 1 << 20;
    job.physical = PHYSICAL;
    job.page_table = Some(PHYSICAL + (guest.address("swapper_pg_dir")? - guest.base));
    job.devices = DEVICES.to_vec();
    // Both stand where the big core's do. The kernel decides by the time, too, such as when a thread that
    // was woken must have run; how long the small core takes must not make a difference in that.
    job.presets = vec![
        (PRESCALE, u32::MAX - 1),
        (CYCLES, call.clocks[0]),
        (CONTROL, SIZE_32),
        (LOAD, call.clocks[1]),
    ];
    job.dump = (guest.base, guest.memory.len() as u32);
    if prune {
        job.natives = natives_of(guest);
    }
    Ok(job)
}

fn compare(
    parts: &Parts,
    kernel: &Kernel,
    call: &Call,
    (function, returns): (&str, bool),
    (prune, kept): (bool, Option<&Kept>),
) -> Result<Comparison, OffloadError> {
    let guest = kernel.guest(&call.arrival.memory)?;
    let end = guest.address("_end")?;
    let symbols = guest
        .symbols
        .iter()
        .map(|(name, address)| (*address, name.clone()))
        .collect();
    let mut job = job_of(&guest, &call.arrival, prune)?;
    job.keep = kept.is_some();
    let (runs, memory) = machine::run_with(parts, &guest, &job, kept)?;
    let Some(outcome) = runs.into_iter().next() else {
        return Err(OffloadError::Machine("reported no run".into()));
    };
    if memory.len() != call.after.len() {
        return Err(OffloadError::Machine("gave no memory back".into()));
    }
    let sp = call.arrival.registers[13];
    let dead = (sp & !(STACK_BYTES - 1))..sp;
    let words = |left: &[u8], right: &[u8]| {
        (0..left.len())
            .step_by(4)
            .filter(|at| word(left, *at) != word(right, *at))
            .map(|at| guest.base + at as u32)
            .filter(|address| !dead.contains(address))
            .collect::<Vec<u32>>()
    };
    // A clock has 64 bits; mostly the lower ones differ.
    let times: BTreeSet<u32> = words(&call.after, &call.again)
        .iter()
        .map(|address| address & !7)
        .collect();
    let mut different = words(&memory, &call.after);
    different.retain(|address| !times.contains(&(address & !7)));
    let describe = |address: &u32| {
        let at = (address - guest.base) as usize;
        format!(
            "{address:08x} {}: {:08x}, big core {:08x}",
            named(&symbols, end, *address),
            word(&memory, at),
            word(&call.after, at)
        )
    };
    let events = (guest.address("dormouse_dummy_events")? - guest.base) as usize;
    Ok(Comparison {
        function: function.to_owned(),
        device_events: word(&memory, events),
        results: returns.then_some([outcome.registers[0], call.result]),
        instructions: outcome.instructions,
        end: End::of(&outcome),
        counters: outcome.counters,
        changed: words(&call.arrival.memory, &call.after).len(),
        times: times.len(),
        different: different.len(),
        differences: different.iter().take(MAX_NAMED).map(describe).collect(),
    })
}

/// Runs each function of a kernel in A32 or T32 on both, and compares; with `keep` in the code cache that the
/// function before it has left.
///
/// # Errors
/// The kernel cannot be built or does not come to the functions; a tool is missing.
pub fn compare_all(t32: bool, prune: bool, keep: bool) -> Result<Vec<Comparison>, OffloadError> {
    let parts = Parts::ready()?;
    let kernel = Kernel::ready(t32, false)?;
    let kept = keep.then(Kept::new).transpose()?;
    let calls = kernel.calls(&FUNCTIONS.map(|(name, _)| name))?;
    FUNCTIONS
        .iter()
        .zip(&calls)
        .map(|(function, call)| compare(&parts, &kernel, call, *function, (prune, kept.as_ref())))
        .collect()
}
