//! Runs ELFs on QEMU: the executor on a Cortex-M3, guest programs natively on that or a
//! Cortex-A15. Counting is exact and repeatable (`-icount shift=6`).

pub mod board;
pub mod emulator;
pub mod forward;
pub mod job;
pub mod kept;
pub mod outcome;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::energy::count::{self, Cycles};
use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::machine::forward::{Bus, Link};
use crate::machine::job::Job;
use crate::machine::kept::Kept;
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

/// A path in QEMU's options: a comma is written twice.
pub(crate) fn comma(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn loader(file: &Path, address: u32) -> [String; 2] {
    let path = comma(file);
    [
        "-device".into(),
        format!("loader,file={path},addr={address:#x},force-raw=on"),
    ]
}

/// The words of an executor's machine, with its job.
fn words_of(parts: &Parts, executor: &str, job: &Job, request: &Path) -> Vec<String> {
    let mut words = vec!["-kernel".into(), parts.file(executor).display().to_string()];
    words.extend(loader(request, job.board.job()));
    words
}

fn runs_of(report: &str) -> Result<Vec<Outcome>, OffloadError> {
    parse(report).ok_or_else(|| {
        OffloadError::Machine(format!(
            "reported nothing that is understood:\n{}",
            report.trim()
        ))
    })
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
    run_with(parts, guest, job, None)
}

/// The same, in memory in which the last job has left its code cache.
///
/// # Errors
/// As above, or what is kept cannot be written.
pub fn run_with(
    parts: &Parts,
    guest: &Guest,
    job: &Job,
    kept: Option<&Kept>,
) -> Result<(Vec<Outcome>, Vec<u8>), OffloadError> {
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let (memory, request) = (
        folder.path().join("guest.bin"),
        folder.path().join("job.bin"),
    );
    fs::write(&memory, &guest.memory).map_err(io("write", &memory))?;
    fs::write(&request, job.bytes(guest)).map_err(io("write", &request))?;
    let mut words = words_of(parts, job.board.executor(), job, &request);
    words.extend(["-M".into(), job.board.machine().into()]);
    words.extend(loader(&memory, job.board.memory()));
    words.extend(kept.map(Kept::words).unwrap_or_default());
    let runs = runs_of(&emulator::run(folder.path(), &words)?)?;
    if let Some(kept) = kept {
        kept.take(folder.path())?;
    }
    let dump = folder.path().join("memory.bin");
    let memory = if dump.exists() {
        fs::read(&dump).map_err(io("read", dump))?
    } else {
        Vec::new()
    };
    Ok((runs, memory))
}

/// Runs a job beside a big core that stands still: on its memory, which is a file of 16 MiB that both have
/// mapped, with the devices that are on its bus. With `counts` what the small core executes is counted in cycles,
/// its start and its report included.
///
/// # Errors
/// The emulator is missing, has no plugins or does not report, or the bus fails.
pub fn run_on_board(
    parts: &Parts,
    guest: &Guest,
    job: &Job,
    memory: &Path,
    bus: &mut dyn Bus,
    (kept, counts): (Option<&Kept>, bool),
) -> Result<(Outcome, Option<Cycles>), OffloadError> {
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let request = folder.path().join("job.bin");
    fs::write(&request, job.bytes(guest)).map_err(io("write", &request))?;
    let mut words = words_of(parts, "offload-forward.elf", job, &request);
    words.extend(["-M".into(), "mps2-an385,memory-backend=ram".into()]);
    words.push("-object".into());
    words.push(format!(
        "memory-backend-file,id=ram,size=16M,mem-path={},share=on",
        comma(memory)
    ));
    words.extend(kept.map(Kept::words).unwrap_or_default());
    let blocks = folder.path().join("blocks");
    if counts {
        words.push("-plugin".into());
        words.push(format!(
            "{},blocks={}",
            comma(&parts.file("count.so")),
            comma(&blocks)
        ));
    }
    let mut link = Link::new(folder.path())?;
    let report = emulator::run_beside(
        folder.path(),
        &words,
        emulator::MAX_CPU_TIME,
        &mut |quiet| link.serve(bus, quiet),
    )?;
    if let Some(kept) = kept {
        kept.take(folder.path())?;
    }
    let outcome = runs_of(&report)?
        .pop()
        .ok_or_else(|| OffloadError::Machine("reported no run".into()))?;
    let cycles = counts.then(|| count::read(&blocks)).transpose()?;
    Ok((outcome, cycles))
}

/// Of a program that runs natively: the digest of a run, and its instructions.
pub type NativeRun = (u32, u64);

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
) -> Result<NativeRun, OffloadError> {
    let index = PROGRAMS
        .iter()
        .position(|known| *known == program)
        .ok_or_else(|| OffloadError::Usage(format!("there is no program {program:?}")))?;
    let elf = parts.file(match on {
        Native::A15 => "native-a15.elf",
        Native::A15Thumb => "native-a15-t32.elf",
        Native::M3 => "native-m3.elf",
    });
    let words = [index as u32, seed, rounds, 2];
    // The second run has no first touches in it.
    run_native_file(&elf, on, words, emulator::MAX_CPU_TIME)?
        .pop()
        .ok_or_else(|| OffloadError::Machine(format!("did not run {program} natively")))
}

/// All runs of a native program: `words` are its index, seed, rounds and number of runs.
///
/// # Errors
/// The emulator is missing, or the program does not end in this CPU time.
pub fn run_native_file(
    elf: &Path,
    on: Native,
    words: [u32; 4],
    limit: Duration,
) -> Result<Vec<NativeRun>, OffloadError> {
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let request = folder.path().join("job.bin");
    let job: Vec<u8> = std::iter::once(0x314a_4e44)
        .chain(words)
        .flat_map(u32::to_le_bytes)
        .collect();
    fs::write(&request, job).map_err(io("write", &request))?;
    let (machine, address): (&[&str], _) = match on {
        Native::A15 | Native::A15Thumb => (
            &["-M", "virt", "-cpu", "cortex-a15", "-m", "256"],
            0x4800_0000,
        ),
        Native::M3 => (&["-M", "mps2-an385"], 0x2030_0000),
    };
    let mut words: Vec<String> = machine.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["-kernel".into(), elf.display().to_string()]);
    words.extend(loader(&request, address));
    let report = emulator::run_within(folder.path(), &words, limit)?;
    Ok(report
        .lines()
        .filter_map(|line| native_run(line, on))
        .collect())
}

/// `result HEX ticks HEX`.
fn native_run(line: &str, on: Native) -> Option<NativeRun> {
    let fields: Vec<&str> = line.strip_prefix("result ")?.split_whitespace().collect();
    let ticks = u64::from_str_radix(fields.get(2)?, 16).ok()?;
    let instructions = match on {
        // The generic timer counts 16 ns.
        Native::A15 | Native::A15Thumb => ticks / 4,
        Native::M3 => instructions_of(ticks),
    };
    Some((u32::from_str_radix(fields.first()?, 16).ok()?, instructions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_runs_are_counted_beyond_32_bits() {
        let line = "result cd7f0ffb ticks 0000000100000008";
        assert_eq!(
            native_run(line, Native::M3),
            Some((0xcd7f_0ffb, 2_684_354_565))
        );
        assert_eq!(native_run("result cd7f0ffb", Native::M3), None);
        assert_eq!(native_run("something else", Native::M3), None);
    }
}
