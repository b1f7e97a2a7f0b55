//! `dormouse lab cycle`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse_guest::protocol::hard_to_move_kinds::HARD_TO_MOVE_KINDS;

use super::machine::{MachineArgs, end, opened, parts};
use crate::build::Flavour;
use crate::cycle::Cycles;
use crate::cycle::hard_to_move;
use crate::cycle::hibernation_options::{Compressor, Hibernation, Mode, SwapOn};
use crate::cycle::line::Summary;
use crate::cycle::options::CycleOptions;
use crate::cycle::seal::Seal;
use crate::emulator::qemu::Firmware;
use crate::error::{Doing, LabError};
use crate::faults::power_cut::{FAULTS, Fault};
use crate::faults::tamper::{TAMPERS, Tamper};
use crate::machine::gpf::Gpf;
use crate::terminal::Terminal;
use dormouse_system::arguments::Size;

/// Arguments of `lab cycle`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    dormouse lab cycle --cycles 5 --dram 1G --cxl 2G --fill 512M --json\n  \
    dormouse lab cycle --firmware ovmf --seal tpm --cycles 2 --tamper replay\n  \
    dormouse lab cycle --mode hibernate --compressor lz4 --dram 2G --image-size 1G\n\n\
    Hibernation needs free DRAM for a copy of the memory in use: give the machine twice as much\n\
    DRAM as workload and system take, and set --image-size to the DRAM size to be modelled.\n\n\
    Exit codes: 0 all cycles as expected; 1 one was not; 2 wrong usage; 3 this machine lacks\n\
    something; 4 the machine woke with other data.")]
pub struct CycleArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Number of cycles
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub cycles: u64,
    /// Memory that the workload fills and compares
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub fill: Size,
    /// How to sleep
    #[arg(long, value_enum, default_value = "cxl")]
    pub mode: Mode,
    /// Compressor of the hibernation image: lzo, lz4 or none [default: lzo]
    #[arg(long, value_name = "NAME")]
    pub compressor: Option<Compressor>,
    /// Hibernation: free memory until the image is no larger [default: all of DRAM; with
    /// hibernate-swap two fifths of it]
    #[arg(long, value_name = "SIZE")]
    pub image_size: Option<Size>,
    /// Hibernation: what the image goes to (pmem: only with --firmware ovmf, seabios)
    #[arg(long, value_enum, value_name = "WHAT", default_value = "disk")]
    pub swap_on: SwapOn,
    /// Keys in the redis server in the machine (0: no server)
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub redis_keys: u64,
    /// Add processes with hard-to-move memory: KIND or KIND=SIZE, or all; `list` prints the kinds
    #[arg(long, alias = "awkward", value_name = "KIND", value_delimiter = ',')]
    pub hard_to_move: Vec<String>,
    /// Seed of the random contents, delays and damaged bits
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Cut the power at this point; `list` prints the points
    #[arg(long, value_name = "WHERE")]
    pub fault: Option<String>,
    /// Damage the image between sleep and wake; `list` prints the kinds of damage (of the --mode)
    #[arg(long, value_name = "WHAT")]
    pub tamper: Option<String>,
    /// Seal the images: the kernel's part is encrypted and authenticated with this key (only with
    /// --firmware ovmf, seabios)
    #[arg(long, value_enum, value_name = "KEY")]
    pub seal: Option<Seal>,
    /// Wake with another of the distribution's kernels (only with --firmware ovmf, seabios)
    #[arg(long, value_name = "FLAVOUR")]
    pub flavour_after: Option<Flavour>,
    /// DRAM of the machine at the next power-on
    #[arg(long, value_name = "SIZE")]
    pub dram_after: Option<Size>,
    /// Further argument for `dormouse sleep` in the machine; can be given several times
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub sleep_argument: Vec<String>,
    /// Run this shell command in the machine before the sleep, when memory is filled
    #[arg(long, value_name = "LINE")]
    pub before: Option<String>,
    /// Run this shell command when pages have migrated back; its output goes to after-N.txt in the
    /// machine's folder, N being the number of the cycle
    #[arg(long, value_name = "LINE")]
    pub after: Option<String>,
}

pub(super) fn verb(args: &CycleArgs, json: bool) -> Result<ExitCode, LabError> {
    if listed(args) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut options = cycle_options(args)?;
    let terminal = Terminal::new();
    if let Some(flavour) = args.flavour_after {
        options.parts_after = Some(parts(flavour, "", &terminal)?);
    }
    let options = options;
    let hibernation = options.hibernation.as_ref();
    let cmdline = hibernation.map_or_else(String::new, Hibernation::cmdline);
    let mut lab = opened(&args.machine, &cmdline, &terminal)?;
    if hibernation.is_some_and(|hibernation| hibernation.swap_on == SwapOn::Disk) {
        let bytes = Hibernation::swap_bytes(lab.machine.config.dram_bytes);
        lab.machine.make_swap_disk(bytes)?;
    }
    let log = lab.machine.folder().join("cycles.jsonl");
    let mut log = std::fs::File::create(&log).doing(format!("create {}", log.display()))?;

    let mut summary = Summary::default();
    let say = |text: &str| terminal.now(text);
    let mut cycles = Cycles::new(&mut lab, &options, &say);
    let result = cycles.run(&mut |line| {
        summary.add(line);
        let text = serde_json::to_string(line).expect("a cycle is plain data");
        let _ = writeln!(log, "{text}");
        terminal.aside(|| {
            let text = if json { text } else { line.describe() };
            let _ = writeln!(std::io::stdout(), "{text}");
        });
    });
    if result.is_ok() {
        terminal.now("switching off");
        cycles.finish();
    }
    drop(cycles);
    terminal.finish();
    // What went wrong can be looked at; what went well need not stay on the disk.
    end(
        &lab,
        args.machine.keep || result.is_err() || summary.exit_code() != 0,
    );
    result?;
    if !json {
        println!(
            "{} of {} cycles as expected; timeline: dormouse report {}",
            summary.ok,
            summary.cycles,
            lab.machine.folder().display()
        );
    }
    Ok(ExitCode::from(summary.exit_code()))
}

/// Prints the lists that were asked for.
fn listed(args: &CycleArgs) -> bool {
    let faults = args.fault.as_deref() == Some("list");
    let tampers = args.tamper.as_deref() == Some("list");
    if faults {
        for fault in FAULTS {
            println!("{:18} {}", fault.name, fault.meaning);
        }
    }
    if tampers {
        let hibernates = args.mode != Mode::Cxl;
        for (tamper, name, meaning) in TAMPERS {
            if tamper.is_for_hibernation() == hibernates {
                println!("{name:15} {meaning}");
            }
        }
    }
    let kinds = args.hard_to_move.iter().any(|word| word == "list");
    if kinds {
        for kind in HARD_TO_MOVE_KINDS {
            println!("{:15} {}", kind.name, kind.meaning);
        }
    }
    faults || tampers || kinds
}

fn cycle_options(args: &CycleArgs) -> Result<CycleOptions, LabError> {
    let usage = |text: &str| Err(LabError::Usage(text.to_owned()));
    let hibernates = args.mode != Mode::Cxl;
    let fault = args.fault.as_deref().map(Fault::by_name).transpose()?;
    let tamper = args.tamper.as_deref().map(Tamper::by_name).transpose()?;
    if !hibernates && (args.compressor.is_some() || args.image_size.is_some()) {
        return usage("--compressor and --image-size: only with --mode hibernate, hibernate-swap");
    }
    if hibernates && (fault.is_some() || !args.sleep_argument.is_empty()) {
        return usage("--fault and --sleep-argument: only with --mode cxl");
    }
    if args.swap_on == SwapOn::Pmem && !(hibernates && args.machine.firmware.is_stock()) {
        return usage(
            "--swap-on pmem: only with --mode hibernate, hibernate-swap and --firmware ovmf, seabios",
        );
    }
    if args.swap_on == SwapOn::Pmem && tamper.is_some() {
        return usage("--tamper: not with --swap-on pmem; it damages the disk");
    }
    if hibernates && args.machine.gpf != Gpf::default() {
        return usage("--gpf: only with --mode cxl; hibernation does not use the CXL device");
    }
    if tamper.is_some_and(|tamper| tamper.is_for_hibernation() != hibernates) {
        return usage("--tamper: not for this mode; --tamper list prints the ways of the --mode");
    }
    if args.machine.firmware.is_stock() {
        if args.machine.gpf == Gpf::Fails {
            return usage(
                "--gpf fails: only with --firmware coreboot; an NVDIMM counts no loss here",
            );
        }
        if tamper == Some(Tamper::DirtyShutdown) {
            return usage(
                "--tamper dirty-shutdown: only with --firmware coreboot; an NVDIMM counts no loss here",
            );
        }
    }
    let stock = args.machine.firmware.is_stock() && !hibernates;
    if !stock && (args.seal.is_some() || args.flavour_after.is_some()) {
        return usage("--seal and --flavour-after: only with --firmware ovmf or seabios");
    }
    if args.seal.is_some() && args.flavour_after.is_some() {
        return usage("--flavour-after: not with --seal; the initrd is made for one kernel");
    }
    if tamper.is_some_and(Tamper::needs_seal) && args.seal.is_none() {
        return usage("--tamper: this one is about sealed images; add --seal");
    }
    if tamper.is_some_and(Tamper::needs_tpm) && args.seal != Some(Seal::Tpm) {
        return usage("--tamper: this one needs --seal tpm");
    }
    if args.seal == Some(Seal::Tpm) && args.machine.firmware == Firmware::Seabios {
        return usage(
            "--seal tpm: only with --firmware ovmf; SeaBIOS has no room for the ACPI tables of NVDIMMs \
             beside a TPM's log",
        );
    }
    if tamper == Some(Tamper::WrongKey) && args.seal == Some(Seal::Tpm) {
        return usage("--tamper wrong-key: not with --seal tpm; no-tpm takes the TPM away");
    }
    if args.fill.0 < 4096 {
        return usage("--fill: at least one page of 4096 bytes");
    }
    Ok(CycleOptions {
        cycles: args.cycles,
        fill: args.fill,
        seed: args.seed,
        redis_keys: args.redis_keys,
        hard_to_move: hard_to_move::plans(&args.hard_to_move)?,
        fault,
        tamper,
        gpf: args.machine.gpf,
        seal: args.seal,
        parts_after: None,
        dram_after: args.dram_after,
        hibernation: hibernates.then(|| Hibernation {
            swap_on: args.swap_on,
            swap_out: args.mode == Mode::HibernateSwap,
            compressor: args
                .compressor
                .clone()
                .unwrap_or_else(|| Compressor::Named("lzo".into())),
            image_size: args.image_size,
        }),
        sleep_arguments: args.sleep_argument.clone(),
        before: args.before.clone(),
        after: args.after.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        args: CycleArgs,
    }

    fn cycle(words: &str) -> CycleArgs {
        let words = ["cycle"].into_iter().chain(words.split_ascii_whitespace());
        Whole::try_parse_from(words).unwrap().args
    }

    #[test]
    fn the_documented_options_are_understood() {
        let args = cycle("--cycles 5 --dram 1G --cxl 2G --fill 512M --mode cxl --seed 7");
        assert_eq!((args.cycles, args.seed), (5, 7));
        assert_eq!(args.machine.sizes.dram, Size(1 << 30));
        assert_eq!(args.fill, Size::mib(512));
        assert!(cycle_options(&args).is_ok());
    }

    #[test]
    fn what_is_not_available_is_a_usage_error() {
        for words in [
            "--compressor lz4",
            "--image-size 1G",
            "--mode hibernate --fault saving",
            "--mode hibernate --tamper page",
            "--tamper swap-signature",
            "--fault nowhere",
            "--tamper nothing",
            "--firmware seabios --gpf fails",
            "--firmware ovmf --tamper dirty-shutdown",
            "--seal tpm",
            "--firmware ovmf --tamper tag",
            "--firmware ovmf --seal key-file --tamper replay",
            "--firmware ovmf --seal tpm --tamper wrong-key",
            "--flavour-after generic",
            "--firmware seabios --seal tpm",
            "--mode hibernate --swap-on pmem",
            "--firmware seabios --swap-on pmem",
            "--firmware seabios --mode hibernate --swap-on pmem --tamper swap-signature",
        ] {
            assert_eq!(
                cycle_options(&cycle(words)).unwrap_err().exit_code(),
                2,
                "{words}"
            );
        }
    }

    #[test]
    fn hibernation_is_lzo_with_all_pages_unless_something_else_is_asked_for() {
        let plain = cycle_options(&cycle("--mode hibernate")).unwrap();
        let plain = plain.hibernation.unwrap();
        assert!(!plain.swap_out && plain.image_size.is_none());
        assert_eq!(plain.swap_on, SwapOn::Disk);
        assert_eq!(plain.compressor.to_string(), "lzo");
        let words = "--mode hibernate-swap --compressor none --image-size 600M";
        let other = cycle_options(&cycle(words)).unwrap().hibernation.unwrap();
        assert!(other.swap_out);
        assert_eq!(other.compressor, Compressor::None);
        assert_eq!(other.image_size, Some(Size::mib(600)));
        assert_eq!(other.cmdline(), "hibernate=nocompress");
        let words = "--firmware ovmf --mode hibernate --compressor none --swap-on pmem";
        let pmem = cycle_options(&cycle(words)).unwrap().hibernation.unwrap();
        assert_eq!(pmem.cmdline(), "hibernate=nocompress dormouse.swap=pmem");
    }

    #[test]
    fn the_alias_of_hard_to_move_is_accepted() {
        let now = cycle("--hard-to-move mlock,hugetlb=8M");
        assert_eq!(
            now.hard_to_move,
            cycle("--awkward mlock,hugetlb=8M").hard_to_move // until 0.3
        );
    }
}
