//! `dormouse offload suspend`: a whole kernel's own device suspend and resume in the executor, on its
//! memory at the call, compared with the same call on the big core.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::job::{Device, Job, natives_of};
use crate::kernel::{Call, Kernel, PHYSICAL};
use crate::machine;
use crate::parts::Parts;

/// What is run, in the order in which the kernel calls it.
pub const FUNCTIONS: [&str; 2] = ["dpm_suspend", "dpm_resume"];
/// The board's first dual timer, which the kernel reads its clock from, is the small core's dual timer.
const CLOCK: Device = Device {
    physical: 0x1001_1000,
    bytes: 0x1000,
    host: 0x4000_2000,
};
/// `THREAD_SIZE` of an ARM kernel: a thread's stack, a multiple of its size.
const STACK_BYTES: u32 = 0x2000;
/// Differences that are named one by one.
const NAMED_MOST: usize = 20;

/// One function on both cores.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub function: String,
    /// How it ended in the executor; `returned` is the whole of it.
    pub stop: String,
    pub explanation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// r0 to r15 in the executor, at the end.
    pub registers: [u32; 16],
    /// What the function returned: in the executor, on the big core.
    pub results: [u32; 2],
    /// Of the small core, translation included.
    pub instructions: u64,
    pub counters: BTreeMap<String, u64>,
    /// Events that the dummy devices' driver noted so far, in the executor: one a device and call.
    pub device_events: u32,
    /// Words of memory that the big core changed.
    pub changed: usize,
    /// Words that are otherwise than on the big core, without what is below the stack pointer.
    pub different: usize,
    /// The first of them: address, symbol and offset, executor's and big core's value.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Whether all is as on the big core.
    pub fn same(&self) -> bool {
        self.stop == "returned" && self.results[0] == self.results[1] && self.different == 0
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

fn job_of(
    guest: &mut Guest,
    call: &Call,
    function: &str,
    prune: bool,
) -> Result<Job, OffloadError> {
    let registers = &call.registers;
    let mut job = Job::new(
        guest.address(function)?,
        [registers[0], registers[1], registers[2], registers[3]],
    );
    let bottom = registers[13] & !(STACK_BYTES - 1);
    job.stack = Some((registers[13], bottom, bottom));
    job.control = call.status;
    job.thread = call.thread;
    job.cache_bytes = 1 << 20;
    job.physical = PHYSICAL;
    job.page_table = Some(PHYSICAL + (guest.address("swapper_pg_dir")? - guest.base));
    job.devices = vec![CLOCK];
    job.dump = (guest.base, guest.memory.len() as u32);
    if prune {
        // Memory stays the kernel's own affair: the big core frees it later.
        for name in ["__kmalloc_noprof", "kfree"] {
            guest.symbols.remove(name);
        }
        job.natives = natives_of(guest);
    }
    Ok(job)
}

fn compare(
    parts: &Parts,
    kernel: &Kernel,
    call: &Call,
    function: &str,
    prune: bool,
) -> Result<Comparison, OffloadError> {
    let mut guest = kernel.guest(&call.before)?;
    let end = guest.address("_end")?;
    let symbols = guest
        .symbols
        .iter()
        .map(|(name, address)| (*address, name.clone()))
        .collect();
    let job = job_of(&mut guest, call, function, prune)?;
    let (runs, memory) = machine::run(parts, &guest, &job)?;
    let Some(outcome) = runs.into_iter().next() else {
        return Err(OffloadError::Machine("reported no run".into()));
    };
    if memory.len() != call.after.len() {
        return Err(OffloadError::Machine("gave no memory back".into()));
    }
    let sp = call.registers[13];
    let dead = (sp & !(STACK_BYTES - 1))..sp;
    let words = |left: &[u8], right: &[u8]| {
        (0..left.len())
            .step_by(4)
            .filter(|at| word(left, *at) != word(right, *at))
            .map(|at| guest.base + at as u32)
            .filter(|address| !dead.contains(address))
            .collect::<Vec<u32>>()
    };
    let different = words(&memory, &call.after);
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
        stop: outcome.stop,
        explanation: outcome.explanation,
        instruction: outcome.instruction,
        registers: outcome.registers,
        results: [outcome.registers[0], call.result],
        instructions: outcome.instructions,
        counters: outcome.counters,
        changed: words(&call.before, &call.after).len(),
        different: different.len(),
        differences: different.iter().take(NAMED_MOST).map(describe).collect(),
    })
}

/// Runs each function on both.
///
/// # Errors
/// The kernel cannot be built or does not come to the functions; a tool is missing.
pub fn run(prune: bool) -> Result<Vec<Comparison>, OffloadError> {
    let parts = Parts::ready()?;
    let kernel = Kernel::ready()?;
    let calls = kernel.calls(&FUNCTIONS)?;
    FUNCTIONS
        .iter()
        .zip(&calls)
        .map(|(function, call)| compare(&parts, &kernel, call, function, prune))
        .collect()
}
