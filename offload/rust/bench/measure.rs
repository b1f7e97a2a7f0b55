//! Instruction counts of guest programs: natively on both cores, translated cold and warm, with and
//! without each optimisation. Counts are exact and repeatable, so each is taken once.

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::machine::job::{ALL_OPTIONS, Job, OPTIONS};
use crate::machine::outcome::Outcome;
use crate::machine::{self, Native, PROGRAMS};
use crate::parts::Parts;

/// Seed of the programs' input.
pub const SEED: u32 = 5;
/// Rounds of each program.
pub const ROUNDS: u32 = 10;

/// A program translated: its first run, and one that translates nothing any more.
#[derive(Debug, Clone)]
pub struct Translated {
    /// Instructions of the first run, with translation.
    pub cold: u64,
    /// Instructions of the second run.
    pub warm: u64,
    /// Guest words or halfwords that the first run translated.
    pub translated: u64,
    /// Bytes of code cache that they take.
    pub cached: u64,
}

/// One program's counts, in instructions.
#[derive(Debug)]
pub struct Counts {
    /// Name of the program.
    pub program: &'static str,
    /// Natively on the big core, as A32 and T32.
    pub a15: u64,
    /// Natively on the big core, as T32.
    pub a15_t32: u64,
    /// Natively on the small core.
    pub m3: u64,
    /// Without any optimisation, in the stock kernel's layout (linear map at 0xc0000000).
    pub baseline: Translated,
    /// With all optimisations, in the same layout.
    pub ours: Translated,
    /// Where linear addresses are the small core's own.
    pub identity: Translated,
    /// The program as T32 code.
    pub ours_t32: Translated,
    /// T32 code where linear addresses are the small core's own.
    pub identity_t32: Translated,
    /// Warm, with the first n of [`OPTIONS`]; from the baseline on.
    pub added: Vec<u64>,
    /// Warm, without one of [`OPTIONS`] each.
    pub without: Vec<u64>,
}

/// Runs a program three times; the result must be the big core's.
fn translated(
    parts: &Parts,
    world: &str,
    program: &str,
    expected: u32,
    options: u32,
) -> Result<Translated, OffloadError> {
    let guest = Guest::read(&parts.file(&format!("guest-{world}.elf")))?;
    let mut job = Job::new(
        guest.address(&format!("run_{program}"))?,
        [SEED, ROUNDS, 0, 0],
    );
    job.runs = 3;
    job.options = options;
    job.cache_bytes = 1 << 20;
    let (runs, _) = machine::run(parts, &guest, &job)?;
    let failed = |run: &Outcome| !run.returned() || run.registers[0] != expected;
    if let Some(run) = runs.iter().find(|run| failed(run)) {
        return Err(OffloadError::Machine(format!(
            "ran {program} ({world}, options {options:#x}) otherwise than the big core: {} {:08x}, \
             not {expected:08x}",
            run.stop, run.registers[0]
        )));
    }
    let [cold, _, warm] = runs.as_slice() else {
        return Err(OffloadError::Machine(format!(
            "ran {program} {} times",
            runs.len()
        )));
    };
    let counter = |name: &str| warm.counters.get(name).copied().unwrap_or_default();
    Ok(Translated {
        cold: cold.instructions,
        warm: warm.instructions,
        translated: counter("translated"),
        cached: counter("cached"),
    })
}

/// All of one program.
///
/// # Errors
/// A tool is missing, or the program gives another result than on the big core.
pub fn measure(parts: &Parts, program: &'static str) -> Result<Counts, OffloadError> {
    let native = |on| machine::run_native(parts, on, program, SEED, ROUNDS);
    let (expected, a15) = native(Native::A15)?;
    let (other, a15_t32) = native(Native::A15Thumb)?;
    let (small, m3) = native(Native::M3)?;
    if small != expected || other != expected {
        return Err(OffloadError::Machine(format!(
            "computes {program} otherwise than the big core"
        )));
    }
    let run = |world, options| translated(parts, world, program, expected, options);
    let mut added = Vec::new();
    let mut without = Vec::new();
    let mut options = 0;
    for (_, option) in OPTIONS {
        options |= option;
        added.push(run("kernel-a32", options)?.warm);
        without.push(run("kernel-a32", ALL_OPTIONS & !option)?.warm);
    }
    Ok(Counts {
        program,
        a15,
        a15_t32,
        m3,
        baseline: run("kernel-a32", 0)?,
        ours: run("kernel-a32", ALL_OPTIONS)?,
        identity: run("identity-a32", ALL_OPTIONS)?,
        ours_t32: run("kernel-t32", ALL_OPTIONS)?,
        identity_t32: run("identity-t32", ALL_OPTIONS)?,
        added,
        without,
    })
}

/// Every program.
///
/// # Errors
/// As [`measure`].
pub fn measure_all(parts: &Parts) -> Result<Vec<Counts>, OffloadError> {
    PROGRAMS
        .iter()
        .map(|program| {
            eprintln!("bench: {program}");
            measure(parts, program)
        })
        .collect()
}

/// The geometric mean of a ratio over all programs.
pub fn mean(all: &[Counts], ratio: impl Fn(&Counts) -> f64) -> f64 {
    let sum: f64 = all.iter().map(|counts| ratio(counts).ln()).sum();
    (sum / all.len().max(1) as f64).exp()
}

/// `a` over `b`.
pub fn over(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}
