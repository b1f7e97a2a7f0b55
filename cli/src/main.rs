//! The `dormouse` command: reads the command line and hands over to the part that does the work.

mod arguments;
mod doctor;
mod exit;
mod image;
mod logging;
mod manual;
mod output;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Command, ImageCommand};
use dormouse_machine::snapshot::boot_entry;
use dormouse_machine::snapshot::wake::{self, Place};

fn main() -> ExitCode {
    output::end_quietly_when_nobody_reads();
    let arguments = Arguments::parse();
    logging::start(arguments.verbose);
    exit::code_of(run(arguments.command))
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Lab(arguments) => Ok(dormouse_lab::cli::run(&arguments.command, arguments.json)?),
        Command::Sleep(arguments) => {
            Ok(ExitCode::from(dormouse_machine::cli::run_sleep(&arguments)))
        }
        Command::MigrateBack(arguments) => Ok(ExitCode::from(
            dormouse_machine::cli::run_migrate_back(&arguments),
        )),
        Command::SetupDevice(arguments) => Ok(ExitCode::from(
            dormouse_machine::snapshot::setup::run(&arguments),
        )),
        Command::SetupBootEntry(arguments) => {
            Ok(ExitCode::from(boot_entry::setup::run(&arguments)))
        }
        Command::Wake { before_udev } => {
            let place = match before_udev {
                true => Place::BeforeUdev,
                false => Place::AfterUdev,
            };
            Ok(ExitCode::from(wake::main(place)))
        }
        Command::Image(ImageCommand::Inspect(arguments)) => image::inspect(&arguments),
        Command::Image(ImageCommand::Verify(arguments)) => image::verify(&arguments),
        Command::Process(command) => Ok(ExitCode::from(dormouse_process::cli::run(&command))),
        Command::Devices(command) => Ok(ExitCode::from(dormouse_devices::cli::run(&command))),
        Command::Bandwidth(command) => Ok(ExitCode::from(dormouse_bandwidth::cli::run(&command))),
        Command::Offload(command) => Ok(ExitCode::from(dormouse_offload::cli::run(&command))),
        Command::Report(arguments) => report::run(&arguments),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { markdown: true, .. } => manual::markdown_page(),
        Command::Man { directory, .. } => {
            manual::man_pages(directory.as_deref().expect("clap requires it"))
        }
    }
}
