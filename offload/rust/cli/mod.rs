//! `dormouse offload`: from the command line to a run, a check, a comparison or the benchmark.

pub mod arguments;
mod print;
mod run;

use std::io::Write;

use crate::error::OffloadError;
use crate::machine::outcome::Outcome;
use crate::suspend::phase::Settings;
use crate::suspend::{self, Comparison, cycle};
use crate::{bench, check, firmware};

pub use arguments::OffloadCommand;
use arguments::{Devices, SuspendArguments};

/// Runs a verb; the answer is the exit code.
pub fn run(command: &OffloadCommand) -> u8 {
    let result = match command {
        OffloadCommand::Run(arguments) => run::run(arguments).map(|runs| {
            for outcome in &runs {
                print::outcome(outcome, arguments.json);
            }
            u8::from(!runs.iter().all(Outcome::returned))
        }),
        OffloadCommand::Check(arguments) => {
            check::run(&arguments.programs, arguments.seed, arguments.inputs).map(|()| 0)
        }
        OffloadCommand::Suspend(arguments) => suspend_command(arguments),
        OffloadCommand::Bench(arguments) => {
            bench::run(&arguments.out, arguments.publish.as_deref()).map(|()| 0)
        }
        OffloadCommand::Firmware(arguments) => {
            firmware::write(arguments.chip, &arguments.out).map(|firmware| {
                print::firmware(&arguments.out, &firmware);
                0
            })
        }
    };
    result.unwrap_or_else(|error| {
        // Standard error may be closed; that must not hide the exit code.
        let _ = writeln!(std::io::stderr(), "dormouse: {error}");
        error.exit_code()
    })
}

fn suspend_command(arguments: &SuspendArguments) -> Result<u8, OffloadError> {
    if arguments.compare {
        let comparisons = suspend::compare_all(arguments.t32, arguments.prune, !arguments.cold)?;
        for comparison in &comparisons {
            print::comparison(comparison, arguments.json);
        }
        return Ok(u8::from(!comparisons.iter().all(Comparison::same)));
    }
    if arguments.energy && arguments.devices != Devices::Real {
        return Err(OffloadError::Usage(
            "--energy needs --devices real: dummies do not make a kernel wait".into(),
        ));
    }
    let settings = Settings {
        t32: arguments.t32,
        prune: arguments.prune,
        cycles: arguments.cycles,
        hand_back: arguments.hand_back.as_deref(),
        cuts: arguments.hand_back_at_random,
        real: (arguments.devices == Devices::Real).then_some(&arguments.without_device[..]),
        scheduler: arguments.scheduler,
        energy: arguments.energy,
        keep: !arguments.cold,
    };
    let summary = cycle::run(&settings, |phase| print::phase(phase, arguments.json))?;
    print::summary(&summary, arguments.json);
    Ok(u8::from(!summary.good()))
}
