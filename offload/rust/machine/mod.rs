//! Runs ELFs on QEMU: the executor on a Cortex-M3, guest programs natively on that or a
//! Cortex-A15. Counting is exact and repeatable (`-icount shift=6`).

pub mod emulator;
pub mod job;
pub mod outcome;

use std::fs;
use std::path::Path;

use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::machine::job::Job;
use crate::machine::outcome::{Outcome, instructions_of, parse};
use crate::parts::Parts;

/// A guest program that also runs natively.
pub const PROGRAMS: [&str; 8] = [
    "glob",
    "kfifo",
    "sort",
    "list_sort",
    "rbtree",
    "crc32",
    "string",
    "callback",
];

/// Where a program runs natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// The big core, A32 code.
    A15,
    /// The big core, T32 code.
    A15Thumb,
    /// The small core.
    M3,
}

fn loader(file: &Path, address: u32) -> [String; 2] {
    // A comma in a path is written twice.
    let path = file.display().to_string().replace(',', ",,");
    [
        "-device".into(),
        format!("loader,file={path},addr={address:#x},force-raw=on"),
    ]
}

/// Runs a job in the executor. The second part of the answer is the memory that was wanted back.
///
/// # Errors
/// The emulator is missing or does not report.
pub fn run(
    parts: &Parts,
    guest: &Guest,
    job: &Job,
) -> Result<(Vec<Outcome>, Vec<u8>), OffloadError> {
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let (memory, request) = (
        folder.path().join("guest.bin"),
        folder.path().join("job.bin"),
    );
    fs::write(&memory, &guest.memory).map_err(io("write", &memory))?;
    fs::write(&request, job.bytes(guest)).map_err(io("write", &request))?;
    let mut words = vec!["-M".into(), "mps2-an385".into(), "-kernel".into()];
    words.push(parts.file("offload.elf").display().to_string());
    words.extend(loader(&memory, 0x2100_0000));
    words.extend(loader(&request, 0x2038_0000));
    let report = emulator::run(folder.path(), &words)?;
    let runs = parse(&report).ok_or_else(|| {
        OffloadError::Machine(format!(
            "reported nothing that is understood:\n{}",
            report.trim()
        ))
    })?;
    let dump = folder.path().join("memory.bin");
    let memory = if dump.exists() {
        fs::read(&dump).map_err(io("read", dump))?
    } else {
        Vec::new()
    };
    Ok((runs, memory))
}

/// What a program gives natively, and the instructions it takes.
///
/// # Errors
/// The emulator is missing or does not report.
pub fn run_native(
    parts: &Parts,
    on: Native,
    program: &str,
    seed: u32,
    rounds: u32,
) -> Result<(u32, u64), OffloadError> {
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let index = PROGRAMS
        .iter()
        .position(|known| *known == program)
        .ok_or_else(|| OffloadError::Usage(format!("there is no program {program:?}")))?;
    let request = folder.path().join("job.bin");
    let job: Vec<u8> = [0x314a_4e44, index as u32, seed, rounds, 2]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    fs::write(&request, job).map_err(io("write", &request))?;
    let (machine, elf, address): (&[&str], _, _) = match on {
        Native::A15 | Native::A15Thumb => (
            &["-M", "virt", "-cpu", "cortex-a15", "-m", "256"],
            if on == Native::A15 {
                "native-a15.elf"
            } else {
                "native-a15-t32.elf"
            },
            0x4800_0000,
        ),
        Native::M3 => (&["-M", "mps2-an385"], "native-m3.elf", 0x2030_0000),
    };
    let mut words: Vec<String> = machine.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["-kernel".into(), parts.file(elf).display().to_string()]);
    words.extend(loader(&request, address));
    let report = emulator::run(folder.path(), &words)?;
    // `result HEX ticks HEX`; the second run has no first touches in it.
    let fields: Vec<&str> = report
        .lines()
        .rev()
        .find(|line| line.starts_with("result "))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let number = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
    let (Some(result), Some(ticks)) = (number(1), number(3)) else {
        return Err(OffloadError::Machine(format!(
            "did not run {program} natively:\n{}",
            report.trim()
        )));
    };
    let instructions = match on {
        // The generic timer counts 16 ns.
        Native::A15 | Native::A15Thumb => u64::from(ticks) / 4,
        Native::M3 => instructions_of(u64::from(ticks)),
    };
    Ok((result, instructions))
}
