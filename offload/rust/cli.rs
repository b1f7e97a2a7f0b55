//! `dormouse offload`: runs a guest function, runs the benchmark.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};

use crate::bench;
use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::job::{ALL_OPTIONS, Job, OPTIONS, natives_of};
use crate::machine;
use crate::outcome::Outcome;
use crate::parts::Parts;

/// The virtual executor: kernel code of a big ARM core on a small one
#[derive(Debug, Subcommand)]
pub enum OffloadCommand {
    /// Run a function of an ARM ELF on an emulated Cortex-M3
    #[command(after_help = "\
Examples:
  dormouse offload run --program crc32 0x1234 10
  dormouse offload run vmlinux.elf string_hash 0xc0100000 --json
  dormouse offload run module.o my_function 1 2 3

A relocatable object is linked at 0xc0010000 first. Arguments are decimal or 0x…; at most four.

Exit codes: 0 the function returned; 1 it stopped, the reason is printed; 2 wrong usage; 3 a tool
is missing.")]
    Run(RunArguments),
    /// Count instructions: native on both cores, translated cold and warm; write offload.json
    #[command(after_help = "\
Example:
  dormouse offload bench --out out/bench")]
    Bench(BenchArguments),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// An ARM ELF: linked, or an object
    #[arg(value_name = "ELF", required_unless_present = "program")]
    pub elf: Option<String>,

    /// The function (a symbol, or an address as 0x…), then its arguments
    #[arg(value_name = "FUNCTION [ARGUMENT]", num_args = 0..=5)]
    pub words: Vec<String>,

    /// A guest program from the kernel's lib/ instead: glob, kfifo, sort, list_sort, rbtree,
    /// crc32, string, callback; its arguments are a seed and a number of rounds
    #[arg(long)]
    pub program: Option<String>,

    /// The guest program as T32 code, not A32
    #[arg(long, requires = "program")]
    pub t32: bool,

    /// Translate without an optimisation, or without any: registers, flags, stack, interrupts,
    /// chain, pages, linear, protection, table, regions, all
    #[arg(long, value_name = "OPTIMISATION", value_delimiter = ',')]
    pub without: Vec<String>,

    /// Bytes of code cache (1024 and more)
    #[arg(long, default_value_t = 256 << 10)]
    pub cache: u32,

    /// Stop after so many times 656,000 instructions
    #[arg(long, default_value_t = 1000)]
    pub budget: u32,

    /// Serve the kernel functions of isa/natives.def without running them
    #[arg(long)]
    pub prune: bool,

    /// Call this function at every timer interrupt
    #[arg(long, value_name = "FUNCTION")]
    pub irq_handler: Option<String>,

    /// Instructions between timer interrupts
    #[arg(long, default_value_t = 655_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub irq_period: u32,

    /// Run it so often, the code cache kept
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,

    /// Write guest memory afterwards: address, bytes, file
    #[arg(long, num_args = 3, value_names = ["ADDRESS", "BYTES", "FILE"])]
    pub dump: Option<Vec<String>>,

    /// Number of the register that the translator keeps for itself
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(0..=12))]
    pub scratch: u32,

    /// Print one JSON object a run
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Where offload.json and the plots go
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    pub out: PathBuf,

    /// Put tables and figure into this folder of documentation, too
    #[arg(long, value_name = "DIR")]
    pub publish: Option<PathBuf>,
}

/// Runs a verb; the answer is the exit code.
pub fn run(command: &OffloadCommand) -> u8 {
    let result = match command {
        OffloadCommand::Run(arguments) => run_function(arguments),
        OffloadCommand::Bench(arguments) => {
            bench::run(&arguments.out, arguments.publish.as_deref()).map(|()| 0)
        }
    };
    result.unwrap_or_else(|error| {
        // Nobody may be listening; that must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {error}");
        error.exit_code()
    })
}

fn number(text: &str) -> Result<u32, OffloadError> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text
            .parse::<u32>()
            .ok()
            .or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned)),
    };
    parsed.ok_or_else(|| OffloadError::Usage(format!("{text:?} is no number of 32 bits")))
}

fn option_named(name: &str) -> Result<u32, OffloadError> {
    if name == "all" {
        return Ok(ALL_OPTIONS);
    }
    let known = OPTIONS.iter().find(|(known, _)| *known == name);
    known.map(|(_, option)| *option).ok_or_else(|| {
        let names: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
        OffloadError::Usage(format!(
            "there is no optimisation {name:?}, but: {}, all",
            names.join(", ")
        ))
    })
}

/// A relocatable object becomes an executable with the project's linker script.
fn linked(parts: &Parts, path: &Path, folder: &Path) -> Result<PathBuf, OffloadError> {
    let head = std::fs::read(path).map_err(io("read", path))?;
    // e_type 1 is ET_REL.
    if head.get(..4) != Some(b"\x7fELF") || head.get(16..18) != Some(&[1, 0]) {
        return Ok(path.to_owned());
    }
    let output = folder.join("linked.elf");
    let said = Command::new("arm-none-eabi-ld")
        .args([
            "--no-warn-rwx-segments",
            "--defsym",
            "BASE=0xc0000000",
            "-T",
        ])
        .arg(parts.file("guest.ld"))
        .arg(path)
        .arg("-o")
        .arg(&output)
        .output()
        .map_err(|source| OffloadError::MissingTool {
            program: "arm-none-eabi-ld".into(),
            source,
        })?;
    if said.status.success() {
        return Ok(output);
    }
    Err(OffloadError::BadElf {
        path: path.to_owned(),
        reason: String::from_utf8_lossy(&said.stderr).trim().to_owned(),
    })
}

fn run_function(arguments: &RunArguments) -> Result<u8, OffloadError> {
    let parts = Parts::ready()?;
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let mut words: Vec<String> = Vec::new();
    let elf = match (&arguments.program, &arguments.elf) {
        (Some(program), first) => {
            if !machine::PROGRAMS.contains(&program.as_str()) {
                return Err(OffloadError::Usage(format!(
                    "there is no program {program:?}, but: {}",
                    machine::PROGRAMS.join(", ")
                )));
            }
            words.push(format!("run_{program}"));
            words.extend(first.clone());
            let state = if arguments.t32 { "t32" } else { "a32" };
            parts.file(&format!("guest-kernel-{state}.elf"))
        }
        (None, Some(elf)) => linked(&parts, Path::new(elf), folder.path())?,
        (None, None) => return Err(OffloadError::Usage("which ELF?".into())),
    };
    words.extend(arguments.words.iter().cloned());
    let guest = Guest::read(&elf)?;
    let (function, values) = words
        .split_first()
        .ok_or_else(|| OffloadError::Usage("which function?".into()))?;
    if values.len() > 4 {
        return Err(OffloadError::Usage("at most four arguments".into()));
    }
    let mut job = Job::new(guest.address(function)?, [0; 4]);
    for (slot, value) in job.arguments.iter_mut().zip(values) {
        *slot = number(value)?;
    }
    job.cache_bytes = arguments.cache;
    job.budget = arguments.budget;
    job.runs = arguments.runs;
    job.scratch = arguments.scratch;
    for name in &arguments.without {
        job.options &= !option_named(name)?;
    }
    if arguments.prune {
        job.natives = natives_of(&guest);
    }
    if let Some(handler) = &arguments.irq_handler {
        job.irq_handler = guest.address(handler)?;
        // 1.6 ticks an instruction.
        job.tick = (arguments.irq_period / 5 * 8).clamp(64, 0xff_ffff);
        job.budget = job
            .budget
            .saturating_mul(655_000 / arguments.irq_period.min(655_000));
    }
    if let Some([address, bytes, _]) = arguments.dump.as_deref() {
        job.dump = (guest.address(address)?, number(bytes)?);
        let offset = job.dump.0.wrapping_sub(guest.base);
        if u64::from(offset) + u64::from(job.dump.1) > guest.memory.len() as u64 {
            return Err(OffloadError::Usage(format!(
                "{bytes} bytes at {address} are not in the guest's memory"
            )));
        }
    }
    let (runs, memory) = machine::run(&parts, &guest, &job)?;
    if let Some([_, _, file]) = arguments.dump.as_deref() {
        std::fs::write(file, &memory).map_err(io("write", file))?;
    }
    for outcome in &runs {
        print(outcome, arguments.json);
    }
    Ok(u8::from(!runs.iter().all(Outcome::returned)))
}

fn print(outcome: &Outcome, json: bool) {
    let text = if json {
        serde_json::to_string(outcome).unwrap_or_default()
    } else {
        describe(outcome)
    };
    // A reader who has gone away is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn describe(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n", outcome.stop, outcome.explanation);
    if let Some(instruction) = &outcome.instruction {
        text.push_str(&format!(
            "at {:08x}  {:08x}  {instruction}\n",
            outcome.registers[15],
            outcome.encoding.unwrap_or_default()
        ));
        text.push_str(&format!(
            "address    {:08x}\n",
            outcome.accessed.unwrap_or_default()
        ));
    }
    for (number, value) in outcome.registers.iter().enumerate() {
        let end = if number % 4 == 3 { '\n' } else { ' ' };
        text.push_str(&format!("r{number:<2} {value:08x}{end}"));
    }
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or_default();
    text.push_str(&format!(
        "{} instructions on the small core; {} guest instructions translated into {} bytes",
        outcome.instructions,
        counter("translated"),
        counter("emitted"),
    ));
    text
}
