//! The benchmark by a rule: the kernel's own tests of `lib/`, each a program, instead of programs that were
//! chosen. Half of them, by a hash of their name, are never looked at while the translator is worked on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::bench::measure::SEED;
use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::machine::emulator::MAX_CPU_TIME;
use crate::machine::job::Job;
use crate::machine::outcome::Outcome;
use crate::machine::{self, Native, NativeRun};
use crate::parts::{self, Parts};

/// A run is of as many rounds of a test as take this many instructions natively.
const MIN_INSTRUCTIONS: u64 = 100_000;
/// A test that takes more in one round is left out.
const MAX_INSTRUCTIONS: u64 = 1_500_000_000;
const RUNS: u32 = 3;
/// Fewer tests than this are no measurement.
const MIN_TESTS: usize = 40;
/// Of the emulator, for one run that may not end.
const NATIVE_LIMIT: Duration = Duration::from_secs(30);
/// Budget of the executor, in timer interrupts.
const BUDGET: u32 = 10_000;

/// A test's program in one instruction set, as multiples of the small core's own instructions.
#[derive(Debug, Clone, Copy)]
pub struct Ratios {
    /// The third run with one code cache.
    pub warm: f64,
    /// The first run, translation included.
    pub cold: f64,
    /// Interpreted guest instructions in 1,000 of the small core's own, warm.
    pub interpreted: f64,
}

/// A test that could be measured.
#[derive(Debug)]
pub struct LibTest {
    /// Its file in `lib/`, without the ending.
    pub name: String,
    /// Whether it is of the half that is not looked at while tuning.
    pub held_out: bool,
    /// Instructions of the third run, natively on the small core.
    pub native: u64,
    /// Its A32 code, in the stock kernel's layout (linear map at 0xc0000000).
    pub a32: Ratios,
    /// Its T32 code, likewise.
    pub t32: Ratios,
    /// Its A32 code where linear addresses are the small core's own.
    pub identity_a32: Ratios,
    /// Its T32 code there.
    pub identity_t32: Ratios,
}

/// All tests, and those that were left out with the reason.
#[derive(Debug, Default)]
pub struct LibTests {
    /// What was measured.
    pub tests: Vec<LibTest>,
    /// Name and reason.
    pub left_out: Vec<(String, String)>,
}

/// Which half a test is of.
pub fn is_held_out(name: &str) -> bool {
    Sha256::digest(name.as_bytes())[0] & 1 == 1
}

/// Builds the programs, unless that was done.
fn ready() -> Result<PathBuf, OffloadError> {
    let sources = parts::source_folder()?;
    let work = parts::cache_folder()?.with_file_name("offload-kernel");
    let folder = work.join("programs");
    let state = parts::state_of(&sources, &["programs", "kernel", "guest"])?;
    let arguments = [work.as_os_str(), folder.as_os_str()];
    let script = sources.join("programs/build.sh");
    eprintln!("bench: building the kernel's tests of lib/ (minutes, once)");
    parts::build(&script, &arguments, &folder, &state)?;
    Ok(folder)
}

/// Names of the programs of an instruction set.
fn names(folder: &Path) -> Result<BTreeSet<String>, OffloadError> {
    let entries = fs::read_dir(folder).map_err(io("read", folder))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("elf")))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect())
}

/// Why a program has no result: see `programs/run.c`.
fn no_result(digest: u32) -> Option<&'static str> {
    match digest {
        0 => Some("calls what is not in lib/"),
        2 => Some("fails natively"),
        4 => Some("skips all of its cases"),
        _ => None,
    }
}

/// The rounds of a run, and the runs; or why it is left out.
fn natively(elf: &Path) -> Result<Result<(u32, Vec<NativeRun>), String>, OffloadError> {
    let run = |rounds, runs, limit| {
        machine::run_native_file(elf, Native::M3, [0, SEED, rounds, runs], limit)
    };
    let one = match run(1, 1, NATIVE_LIMIT) {
        Err(OffloadError::Machine(_)) => {
            let limit = NATIVE_LIMIT.as_secs();
            return Ok(Err(format!("takes more than {limit} s of the emulator")));
        }
        other => other?,
    };
    let Some(&(_, instructions)) = one.first() else {
        return Ok(Err("needs more of the kernel: faults natively".to_owned()));
    };
    if let Some(reason) = one.iter().find_map(|(digest, _)| no_result(*digest)) {
        return Ok(Err(reason.to_owned()));
    }
    if instructions > MAX_INSTRUCTIONS {
        let most = MAX_INSTRUCTIONS / 1_000_000;
        return Ok(Err(format!("takes more than {most} million instructions")));
    }
    // What one more round takes, without what a run begins with.
    let mut rounds = 1;
    if instructions < MIN_INSTRUCTIONS {
        let two = run(2, 1, NATIVE_LIMIT)?;
        let more = two
            .first()
            .map_or(0, |(_, two)| two.saturating_sub(instructions));
        rounds = MIN_INSTRUCTIONS.div_ceil(more.max(1)) as u32;
    }
    let runs = run(rounds, RUNS, MAX_CPU_TIME)?;
    // Rounds may need more memory than there is, or find what an earlier one left.
    if runs.len() != RUNS as usize {
        return Ok(Err(format!("faults natively in {rounds} rounds")));
    }
    if let Some(reason) = runs.iter().find_map(|(digest, _)| no_result(*digest)) {
        return Ok(Err(format!("{reason} in {rounds} rounds")));
    }
    Ok(Ok((rounds, runs)))
}

fn translated(
    parts: &Parts,
    elf: &Path,
    name: &str,
    rounds: u32,
    native: &[NativeRun],
) -> Result<Ratios, OffloadError> {
    let guest = Guest::read(elf)?;
    let mut job = Job::new(guest.address("run_program")?, [SEED, rounds, 0, 0]);
    job.runs = RUNS;
    job.budget = BUDGET;
    job.cache_bytes = 1 << 20;
    let (runs, _) = machine::run(parts, &guest, &job)?;
    let same =
        |(run, native): (&Outcome, &NativeRun)| run.returned() && run.registers[0] == native.0;
    if runs.len() != native.len() || !runs.iter().zip(native).all(same) {
        let results: Vec<String> = runs
            .iter()
            .map(|run| format!("{} {:08x}", run.stop, run.registers[0]))
            .collect();
        return Err(OffloadError::Machine(format!(
            "ran {name} otherwise than natively: {}",
            results.join(", ")
        )));
    }
    // The executor's timer has 32 bits, which are 2,684 million instructions.
    if runs
        .iter()
        .zip(native)
        .any(|(run, native)| run.instructions < native.1 / 10 * 9)
    {
        return Err(OffloadError::Machine(format!(
            "ran {name} for longer than its timer counts"
        )));
    }
    let last = runs.len() - 1;
    let interpreted = |run: &Outcome| run.counters.get("interpreted").copied().unwrap_or_default();
    Ok(Ratios {
        warm: runs[last].instructions as f64 / native[last].1 as f64,
        cold: runs[0].instructions as f64 / native[0].1 as f64,
        // The counter goes on from run to run.
        interpreted: (interpreted(&runs[last]) - interpreted(&runs[last - 1])) as f64 * 1000.0
            / native[last].1 as f64,
    })
}

/// Measures every test.
///
/// # Errors
/// A tool is missing, or a test gives something else than natively.
pub fn measure(parts: &Parts) -> Result<LibTests, OffloadError> {
    let folder = ready()?;
    let file = |set: &str, name: &str| folder.join(set).join(format!("{name}.elf"));
    let (a32, t32, m3) = (
        names(&folder.join("a32"))?,
        names(&folder.join("t32"))?,
        names(&folder.join("m3"))?,
    );
    let mut all = LibTests::default();
    for name in a32.union(&t32) {
        if !(a32.contains(name) && t32.contains(name) && m3.contains(name)) {
            let reason = "does not compile for a Cortex-M3".to_owned();
            all.left_out.push((name.clone(), reason));
            continue;
        }
        eprintln!("bench: {name}");
        match natively(&file("m3", name))? {
            Err(reason) => all.left_out.push((name.clone(), reason)),
            Ok((rounds, native)) => {
                let run = |set| translated(parts, &file(set, name), name, rounds, &native);
                all.tests.push(LibTest {
                    name: name.clone(),
                    held_out: is_held_out(name),
                    native: native[native.len() - 1].1,
                    a32: run("a32")?,
                    t32: run("t32")?,
                    identity_a32: run("a32-identity")?,
                    identity_t32: run("t32-identity")?,
                });
            }
        }
    }
    // A mean over a few would look like a result.
    if all.tests.len() < MIN_TESTS {
        return Err(OffloadError::Machine(format!(
            "runs only {} of {} tests of lib/ natively",
            all.tests.len(),
            all.tests.len() + all.left_out.len()
        )));
    }
    Ok(all)
}

/// Geometric mean and maximum of a figure over one half.
pub fn mean_and_worst(
    tests: &[LibTest],
    held_out: bool,
    of: impl Fn(&LibTest) -> f64,
) -> (f64, f64) {
    let half: Vec<f64> = tests
        .iter()
        .filter(|test| test.held_out == held_out)
        .map(of)
        .collect();
    let sum: f64 = half.iter().map(|value| value.ln()).sum();
    let mean = (sum / half.len().max(1) as f64).exp();
    (mean, half.iter().copied().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_depend_on_the_name_alone() {
        assert!(!is_held_out("test_list_sort"));
        let names = [
            "list-test",
            "test_sort",
            "test_xarray",
            "cmdline_kunit",
            "test_uuid",
        ];
        assert!(names.iter().any(|name| is_held_out(name)));
        assert!(!names.iter().all(|name| is_held_out(name)));
    }

    #[test]
    fn only_a_digest_of_results_is_measured() {
        for reason in [0, 2, 4] {
            assert!(no_result(reason).is_some());
        }
        assert_eq!(no_result(0xcd7f_0ffb), None);
    }

    #[test]
    fn means_are_of_one_half() {
        let ratios = |warm| Ratios {
            warm,
            cold: 1.0,
            interpreted: 0.0,
        };
        let test = |warm, held_out| LibTest {
            name: String::new(),
            held_out,
            native: 1,
            a32: ratios(warm),
            t32: ratios(warm),
            identity_a32: ratios(warm),
            identity_t32: ratios(warm),
        };
        let tests = [test(1.0, false), test(4.0, false), test(9.0, true)];
        let (mean, worst) = mean_and_worst(&tests, false, |test| test.a32.warm);
        assert!((mean - 2.0).abs() < 1e-9 && (worst - 4.0).abs() < 1e-9);
    }
}
