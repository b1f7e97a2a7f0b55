//! `dormouse lab boot` and `dormouse lab console`: a machine to work in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dormouse_guest::protocol::Call;
use dormouse_guest::protocol::stress::StressCall;
use dormouse_system::arguments::positive_duration;
use serde_json::{Value, json};

use super::machine::{MachineArgs, end, opened, opened_with};
use crate::build::{BuildOptions, build_stock};
use crate::emulator::attach;
use crate::emulator::lab::{BOOT_TIMEOUT, POWER_OFF_TIMEOUT};
use crate::emulator::power::{Signal, What};
use crate::emulator::qemu::Parts;
use crate::error::{Doing, LabError};
use crate::kernels;
use crate::machine::machine_folder;
use crate::terminal::{Terminal, print_json};

/// Room for what is written to a copied folder, beside what is in it.
const SHARE_FREE_BYTES: u64 = 4 << 30;
/// Nothing but mounting.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// A machine that one works in stays on for a day at most.
const SESSION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Arguments of `lab boot`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dormouse lab boot --command 'uname -a; numactl --hardware'\n  \
    dormouse lab boot --kernel 7.3.4+deb13-cloud --share ./tests --command 'cd /mnt/scratch && ./run'")]
pub struct BootArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Run this shell command in the machine, then switch the machine off
    #[arg(long, value_name = "LINE")]
    pub command: Option<String>,
    /// End the command after this time, with exit code 137
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = positive_duration, requires = "command")]
    pub time_limit: Duration,
    /// Boot the one of the archive's kernels with this in its release, distribution or flavour
    /// (`lab kernels --list --all`)
    #[arg(long, value_name = "PATTERN", conflicts_with = "flavour")]
    pub kernel: Option<String>,
    /// Add these parameters to the kernel's command line
    #[arg(
        long,
        value_name = "PARAMETERS",
        default_value = "",
        hide_default_value = true
    )]
    pub cmdline: String,
    /// Copy this folder to a disk of its own, /mnt/scratch in the machine; with --keep, only if
    /// the machine has none yet
    #[arg(long, value_name = "DIR")]
    pub share: Option<PathBuf>,
}

/// Arguments of `lab console`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab console --machine demo")]
pub struct ConsoleArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
}

pub(super) fn boot(args: &BootArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut lab = match &args.kernel {
        None => opened(&args.machine, &args.cmdline, &terminal)?,
        Some(pattern) => {
            let options = BuildOptions {
                cmdline: args.cmdline.clone(),
                ..BuildOptions::default()
            };
            let stock = kernels::named(pattern, &options, &terminal)?;
            let built = build_stock(&options, &stock, &terminal)?;
            opened_with(&args.machine, Parts::from(&built))?
        }
    };
    if let Some(folder) = &args.share
        && !lab.machine.scratch_disk().exists()
    {
        terminal.now(&format!("copying {}", folder.display()));
        let bytes = bytes_in(folder)? + SHARE_FREE_BYTES;
        lab.machine.make_scratch_disk(bytes, Some(folder))?;
    }
    terminal.now("booting");
    let mut power = lab.power_on(None)?;
    power.serve_console(&lab.machine.attach_socket())?;
    let hello = power.wait_ready(BOOT_TIMEOUT)?;
    if args.share.is_some() {
        power.query::<Value>(Call::Stress(StressCall::Mount), MOUNT_TIMEOUT)?;
    }
    let boot_s = (lab.setting.clock.now_ns() - power.started_ns) as f64 / 1e9;

    if let Some(line) = &args.command {
        terminal.now("running the command");
        // Nobody is there to wake it if the command puts it to sleep.
        power.keep_awake();
        let result = power.shell(line, args.time_limit)?;
        terminal.now("switching off");
        power.power_off(POWER_OFF_TIMEOUT)?;
        end(&lab, args.machine.keep);
        terminal.finish();
        if json {
            print_json(
                &json!({"kernel": hello.kernel, "boot_s": boot_s, "status": result.status,
                "stdout": result.stdout, "stderr": result.stderr}),
            )?;
        } else {
            print!("{}", result.stdout);
            eprint!("{}", result.stderr);
        }
        // The command prints its own reason; the exit code says that it failed.
        return Ok(ExitCode::from(u8::from(result.status != 0)));
    }

    power.start_shell()?;
    terminal.finish();
    let folder = lab.machine.folder().display().to_string();
    if json {
        print_json(
            &json!({"kernel": hello.kernel, "boot_s": boot_s, "machine": folder,
            "emulator_pid": power.pid()}),
        )?;
    } else {
        println!("{} is up after {boot_s:.1} s, in {folder}", hello.kernel);
        println!(
            "attach:  dormouse lab console --machine {}",
            args.machine.machine.display()
        );
        println!(
            "console log: {}",
            lab.machine.console_log(power.number()).display()
        );
        println!("Ctrl-C (or `dormouse-guest poweroff` in the machine) switches it off.");
    }
    let stopped = |signal: &Signal| matches!(signal.what, What::Stopped).then_some(());
    let result = power.wait("the machine to be switched off", SESSION_TIMEOUT, stopped);
    drop(power);
    end(&lab, args.machine.keep);
    match result {
        Ok(()) | Err(LabError::Interrupted) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// What the files of a folder take on a disk.
fn bytes_in(folder: &Path) -> Result<u64, LabError> {
    const BLOCK_BYTES: u64 = 4096;
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).doing(format!("read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.doing(format!("read {}", folder.display()))?;
            // Of a link itself.
            let about = entry
                .metadata()
                .doing(format!("look at {}", entry.path().display()))?;
            if about.is_dir() {
                folders.push(entry.path());
            }
            bytes += about.len().next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        }
    }
    Ok(bytes)
}

pub(super) fn console(args: &ConsoleArgs) -> Result<ExitCode, LabError> {
    let folder = machine_folder(&args.machine.machine);
    if let Some(console) = attach::connect(&folder.join("console.sock")) {
        eprintln!("attached to {}; Ctrl-] leaves", folder.display());
        attach::interact(console)?;
        eprintln!();
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = Terminal::new();
    let mut lab = opened(&args.machine, "", &terminal)?;
    terminal.now("booting");
    let mut power = lab.boot(None)?;
    let socket = lab.machine.attach_socket();
    power.serve_console(&socket)?;
    power.start_shell()?;
    terminal.finish();
    eprintln!(
        "booted {}; Ctrl-] leaves and switches it off",
        folder.display()
    );
    let console = attach::connect(&socket)
        .ok_or_else(|| LabError::Unexpected("the console cannot be reached".into()))?;
    attach::interact(console)?;
    eprintln!();
    // The machine may have been switched off from inside.
    let _ = power.power_off(POWER_OFF_TIMEOUT);
    end(&lab, args.machine.keep);
    Ok(ExitCode::SUCCESS)
}
