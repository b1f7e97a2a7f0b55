//! `dormouse offload check`: every guest program, in every mode, must give what the big core gives.

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::machine::job::{ALL_OPTIONS, Job, OPTIONS, SCRATCH};
use crate::machine::{self, Native, PROGRAMS};
use crate::parts::Parts;

/// The smallest cache in which everything runs: it is emptied all the time.
const SMALL_CACHE_BYTES: u32 = 2048;

/// A way to run a program.
struct Mode {
    name: String,
    options: u32,
    cache_bytes: u32,
    scratch: u32,
}

fn modes() -> Vec<Mode> {
    let mode = |name: &str, options, cache_bytes, scratch| Mode {
        name: name.to_owned(),
        options,
        cache_bytes,
        scratch,
    };
    let large = 1 << 20;
    let mut modes = vec![
        mode("all optimisations", ALL_OPTIONS, large, SCRATCH),
        mode("a small cache", ALL_OPTIONS, SMALL_CACHE_BYTES, SCRATCH),
        mode("another scratch register", ALL_OPTIONS, large, 7),
        mode("no optimisation", 0, large, SCRATCH),
        mode("none, and a small cache", 0, SMALL_CACHE_BYTES, SCRATCH),
    ];
    modes.extend(OPTIONS.iter().map(|(name, option)| {
        mode(
            &format!("without {name}"),
            ALL_OPTIONS & !option,
            large,
            SCRATCH,
        )
    }));
    modes
}

/// Runs each program on `inputs` random inputs in every mode, as A32 and as T32, linear-mapped at
/// 0xc0000000 and at the small core's own addresses; prints a line for each program.
///
/// # Errors
/// A tool is missing, or a program gives something else than on the big core.
pub fn run(programs: &[String], seed: u32, inputs: u32) -> Result<(), OffloadError> {
    if let Some(unknown) = programs
        .iter()
        .find(|name| !PROGRAMS.contains(&name.as_str()))
    {
        return Err(OffloadError::Usage(format!(
            "there is no program {unknown:?}, but: {}",
            PROGRAMS.join(", ")
        )));
    }
    let parts = Parts::ready()?;
    for program in PROGRAMS {
        if !programs.is_empty() && !programs.iter().any(|name| name == program) {
            continue;
        }
        let (expected, _) = machine::run_native(&parts, Native::A15, program, seed, inputs)?;
        let mut runs = 0;
        for world in ["kernel-a32", "kernel-t32", "identity-a32", "identity-t32"] {
            let guest = Guest::read(&parts.file(&format!("guest-{world}.elf")))?;
            let entry = guest.address(&format!("run_{program}"))?;
            for mode in modes() {
                let mut job = Job::new(entry, [seed, inputs, 0, 0]);
                job.budget = u32::MAX;
                job.options = mode.options;
                job.cache_bytes = mode.cache_bytes;
                job.scratch = mode.scratch;
                let (outcomes, _) = machine::run(&parts, &guest, &job)?;
                for outcome in outcomes {
                    if !outcome.returned() || outcome.registers[0] != expected {
                        return Err(OffloadError::Machine(format!(
                            "ran {program} ({world}, {}, seed {seed}, {inputs} inputs) otherwise \
                             than the big core: {} {:08x}, not {expected:08x}",
                            mode.name, outcome.stop, outcome.registers[0]
                        )));
                    }
                    runs += 1;
                }
            }
        }
        println!("{program}: {inputs} inputs in {runs} modes, as on the big core");
    }
    Ok(())
}
