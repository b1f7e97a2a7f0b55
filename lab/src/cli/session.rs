//! `dormouse lab boot` and `dormouse lab console`: a machine to work in.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::machine::{MachineArgs, end, opened};
use crate::emulator::attach;
use crate::emulator::lab::{BOOT_TIMEOUT, POWER_OFF_TIMEOUT};
use crate::emulator::power::{Signal, What};
use crate::error::LabError;
use crate::machine::machine_folder;
use crate::terminal::{Terminal, print_json};

/// A command in the machine may take this long.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
/// A machine that one works in stays on for a day at most.
const SESSION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Arguments of `lab boot`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dormouse lab boot --command 'uname -a; numactl --hardware'")]
pub struct BootArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Run this shell command in the machine, then switch the machine off
    #[arg(long, value_name = "LINE")]
    pub command: Option<String>,
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
    let mut lab = opened(&args.machine, "", &terminal)?;
    terminal.now("booting");
    let mut power = lab.power_on(None)?;
    power.serve_console(&lab.machine.attach_socket())?;
    let hello = power.wait_ready(BOOT_TIMEOUT)?;
    let boot_s = (lab.setting.clock.now_ns() - power.started_ns) as f64 / 1e9;

    if let Some(line) = &args.command {
        terminal.now("running the command");
        // Nobody is there to wake it if the command puts it to sleep.
        power.keep_awake();
        let result = power.shell(line, COMMAND_TIMEOUT)?;
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
