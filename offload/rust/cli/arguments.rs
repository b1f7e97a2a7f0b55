//! What `dormouse offload` understands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::firmware::Chip;
use crate::machine::board::Board;
use crate::machine::job::SCRATCH;
use crate::suspend::phase::Scheduler;

/// The virtual executor: kernel code of a big ARM core on a small one
#[derive(Debug, Subcommand)]
pub enum OffloadCommand {
    /// Run a function of an ARM ELF on an emulated Cortex-M3
    #[command(after_help = "\
Examples:
  dormouse offload run --program crc32 0x1234 10
  dormouse offload run vmlinux.elf string_hash 0xc0100000 --json
  dormouse offload run module.ko my_function 1 2 3 --prune
  dormouse offload run --board netduinoplus2 --program crc32 0x1234 10
  dormouse offload run driver.o probe --map 0xf0000000:0x48000000:4096 \\
      --device 0x48000000:0x100:0x40028000

A relocatable object is linked at 0xc0010000 first. Arguments are decimal or 0x…; at most four.

Linear-mapped are the guest's memory and nothing else: 1 to 16 MiB from a multiple of 16 MiB on.
Other addresses are found in page tables: --map makes some, --page-table names the guest's own.

Exit codes: 0 the function returned; 1 it stopped, the reason is printed; 2 wrong usage; 3 a tool
is missing.")]
    Run(Box<RunArguments>),
    /// Count instructions: native on both cores, translated cold and warm; write offload.json
    #[command(after_help = "\
Example:
  dormouse offload bench --out out/bench")]
    Bench(BenchArguments),
    /// Write the executor as firmware for the small core of a chip with both, for Linux' remoteproc
    #[command(after_help = "\
Example:
  dormouse offload firmware stm32mp1 --out dormouse-stm32mp1.elf

It is examined as remoteproc examines it before it is written. No silicon has run it. The module for the big
core that hands over at suspend is offload/linux.

Exit codes: 0 it is written; 1 it is not as it must be; 3 a tool is missing.")]
    Firmware(FirmwareArguments),
    /// Run the guest programs in every mode and compare with the big core
    #[command(after_help = "\
Examples:
  dormouse offload check
  dormouse offload check glob sort --inputs 5 --seed 3

A mode is an instruction set, a place of linear memory, and one variation: an optimisation switched
off, a small code cache, or another scratch register.

Exit codes: 0 all are equal; 1 one is not.")]
    Check(CheckArguments),
    /// Run a whole kernel's device suspend and resume; the big core goes on from what they leave
    #[command(after_help = "\
Examples:
  dormouse offload suspend
  dormouse offload suspend --cycles 10 --t32 --prune
  dormouse offload suspend --devices real --prune
  dormouse offload suspend --devices real --prune --energy --cycles 3
  dormouse offload suspend --compare --json

Builds an ARMv7-A Linux from the distribution's source (once for each instruction
set: some minutes), boots it on an emulated Cortex-A9 and lets it suspend its
devices. At the call of each of the eight phases, from dpm_prepare to
dpm_complete, the big core stops; the executor runs the phase on the kernel's
memory, and the big core goes on from what the executor left, or from the middle
of the phase where the executor handed back. What the executor translated is kept
for the next phase and the next suspend, as in memory that the small core retains;
each phase first compares all of that with the kernel's code (--cold: nothing is
kept). After each cycle the kernel's first program compares a file and asks a
process that was there before.

With --devices real the kernel has the drivers of the board's clock, serial lines, SD
card, network and virtio disk. The executor forwards each access to a register to
the board; an access outside the known registers is refused with its address, and
the big core goes on there. Where the thread must wait, the big core goes on until
it has waited, and the executor goes on behind that. Each device is used after each
cycle.

--compare runs each phase on both cores from the same memory instead, and
compares all of it. Words that differ when the big core itself makes a call twice
depend on the time; they are counted, not compared.

Exit codes: 0 every cycle came through, or all is equal to the big core's; 1 not, or
an access was refused; 2 wrong usage; 3 a tool is missing.")]
    Suspend(SuspendArguments),
}

/// Arguments of `run`.
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
    /// chain, pages, linear, protection, table, regions, carry, loops, inline, all
    #[arg(long, value_name = "OPTIMISATION", value_delimiter = ',')]
    pub without: Vec<String>,

    /// The board with the small core: a Cortex-M3 with 16 MiB for guests, or a Cortex-M4 with 128 KiB of SRAM for
    /// guest (64 KiB), code cache (24 KiB) and the executor's data
    #[arg(long, value_enum, default_value_t = Board::Mps2An385)]
    pub board: Board,

    /// Bytes of code cache (1024 and more); default: 256 KiB, or what the board has
    #[arg(long)]
    pub cache: Option<u32>,

    /// Stop after this many times 656,000 instructions
    #[arg(long, default_value_t = 1000)]
    pub budget: u32,

    /// Serve the kernel functions of isa/natives.def without running them; what the guest has itself
    /// and what outlives the call (locks, memory, work items, threads, the clock) runs translated
    #[arg(long)]
    pub prune: bool,

    /// The time that a served ktime_get goes on from, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0, requires = "prune")]
    pub time: u64,

    /// Call this function at every timer interrupt
    #[arg(long, value_name = "FUNCTION")]
    pub irq_handler: Option<String>,

    /// Instructions between timer interrupts
    #[arg(long, default_value_t = 655_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub irq_period: u32,

    /// Number of runs with the same code cache
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,

    /// Write guest memory afterwards: address, bytes, file
    #[arg(long, num_args = 3, value_names = ["ADDRESS", "BYTES", "FILE"])]
    pub dump: Option<Vec<String>>,

    /// Number of the register that the translator keeps for itself
    #[arg(long, default_value_t = SCRATCH, value_parser = clap::value_parser!(u32).range(0..=12))]
    pub scratch: u32,

    /// Map guest addresses to physical ones, in page tables behind the guest's own memory; all
    /// three are multiples of 4096
    #[arg(
        long,
        value_name = "ADDRESS:PHYSICAL:BYTES",
        conflicts_with = "page_table"
    )]
    pub map: Vec<String>,

    /// The guest's own first-level page table (a symbol, or its address as 0x…)
    #[arg(long, value_name = "TABLE")]
    pub page_table: Option<String>,

    /// A device of the big core: where page tables lead to, and which of the small core's
    /// peripherals (0x40001000 to 0x5fffffff) it is; at most eight
    #[arg(long, value_name = "PHYSICAL:BYTES:HOST")]
    pub device: Vec<String>,

    /// Physical address of the guest's memory
    #[arg(long, value_name = "ADDRESS", default_value = "0x80000000")]
    pub physical: String,

    /// Print one JSON object a run
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Directory of offload.json and the plots
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    pub out: PathBuf,

    /// Also put tables and figure into this folder of documentation
    #[arg(long, value_name = "DIR")]
    pub publish: Option<PathBuf>,
}

/// Arguments of `firmware`.
#[derive(Debug, Args)]
pub struct FirmwareArguments {
    /// The chip
    #[arg(value_enum)]
    pub chip: Chip,

    /// The file that is written
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Only these programs
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<String>,

    /// Random inputs for each
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub inputs: u32,

    /// Seed of the random inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
}

/// Which devices a kernel suspends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Devices {
    /// Dummy platform devices of `kernel/dormouse_dummy.c`.
    Dummy,
    /// These, and the board's clock, serial lines, SD card, network and virtio disk.
    Real,
}

/// Arguments of `suspend`.
#[derive(Debug, Args)]
pub struct SuspendArguments {
    /// A kernel in T32 code, not A32
    #[arg(long)]
    pub t32: bool,

    /// Serve the kernel functions of isa/natives.def without running them, except what outlives the
    /// call: locks, memory, work items, threads, the clock
    #[arg(long)]
    pub prune: bool,

    /// How often the machine suspends and resumes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub cycles: u32,

    /// Hand back to the big core at the first call of this kernel function in each phase
    #[arg(long, value_name = "FUNCTION")]
    pub hand_back: Option<String>,

    /// Hand back to the big core at a random instruction of each phase, by a seed, from the second cycle on
    #[arg(long, value_name = "SEED", conflicts_with_all = ["hand_back", "energy"])]
    pub hand_back_at_random: Option<u64>,

    /// Which devices suspend and resume: dummies; or the board's own, with their unmodified drivers
    #[arg(long, value_enum, default_value_t = Devices::Dummy)]
    pub devices: Devices,

    /// With real devices: do not forward accesses to this one (rtc, uart1, card …); they are refused, and the
    /// big core makes them
    #[arg(long, value_name = "NAME")]
    pub without_device: Vec<String>,

    /// With real devices: which core waits where a thread must
    #[arg(long, value_enum, default_value_t = Scheduler::Small)]
    pub scheduler: Scheduler,

    /// With real devices: count the cycles of each phase on both cores, and compute energy by the formula
    /// of Zhai et al. 2017, as ranges; first the big core suspends once alone
    #[arg(long)]
    pub energy: bool,

    /// Begin each phase with an empty code cache; otherwise with what the phase before it left, and the last suspend
    #[arg(long)]
    pub cold: bool,

    /// Compare each phase with the big core's, and go on from the big core's
    #[arg(long, conflicts_with_all = ["cycles", "hand_back", "hand_back_at_random", "devices", "scheduler", "energy"])]
    pub compare: bool,

    /// Print one JSON object a phase, and without --compare one for the whole
    #[arg(long)]
    pub json: bool,
}
