//! The whole sleep, from preflight to user space running again: the order of operations, and what
//! is put back when one of them fails.

pub mod caches;
mod down;
mod enter;
pub mod kernel_steps;
pub mod power;
pub mod preflight;
mod step;
mod times;

use std::process::{Command, Stdio};

use dormouse_report::{Event, Kind};
use dormouse_system::Root;
use dormouse_system::undo::Undo;

use crate::cut_point::CutPoint;
use crate::error::SleepError;
use crate::migrate_back;
use crate::options::{MigrateBackMode, SleepOptions};
use crate::report::SleepReport;
use crate::sleep::down::save_state;
use crate::sleep::preflight::{Ready, Way};
use crate::sleep::step::Events;
use crate::sleep::times::{DOWN, UP};
use crate::snapshot::save;
use crate::snapshot::seal::Key;
use crate::system::clock::{ResetClock, event, monotonic_ns};
use crate::system::lock;
use crate::system::state;
use crate::target::Machine;

/// See [`crate::sleep()`]. In the lab's machine it may stop at a cut point instead.
///
/// # Errors
/// Every refusal and failure.
pub fn run(
    machine: &Machine<'_>,
    options: &SleepOptions,
    events: Events<'_>,
) -> Result<SleepReport, SleepError> {
    if options.dry_run {
        return run_steps(machine, options, events);
    }
    let point = CutPoint::read(machine.root);
    let pages = point.pages(machine);
    let machine = Machine {
        root: machine.root,
        pages: &pages,
        sampler: machine.sampler,
    };
    run_steps(&machine, options, &mut |event| {
        events(event);
        point.pass(event);
    })
}

fn run_steps(
    machine: &Machine<'_>,
    options: &SleepOptions,
    events: Events<'_>,
) -> Result<SleepReport, SleepError> {
    let root = machine.root;
    let begin_ns = monotonic_ns();
    let mut reset_clock = ResetClock::start();
    events(&event(DOWN, "preflight", Kind::Begin));
    let checked = preflight::run(root, options);
    events(&preflight_end(&checked));
    let ready = checked?;
    let mut report = SleepReport {
        node: ready.cxl.node,
        not_frozen: ready.plan.not_frozen.clone(),
        persistence: ready.plan.persistence.clone(),
        ..SleepReport::default()
    };
    if options.dry_run {
        report.outcome = "dry-run".to_owned();
        report.plan = Some(ready.plan);
        return Ok(report);
    }
    // Asks a person where it must: nothing stands still yet.
    let key = sealing_key(root, &ready.way, options)?;
    // Only now: it stops a `dormouse migrate-back` that is under way, which a sleep that is refused must
    // not do.
    let _lock = lock::take(root, "sleep", true)?;
    machine.sampler.clean_up();

    let mut undo = Undo::new();
    let result =
        down::go_down(machine, options, &ready, &mut undo, &mut report, events).and_then(|()| {
            match &ready.way {
                Way::Firmware(status) => enter::by_firmware(
                    root,
                    &ready,
                    status,
                    &mut reset_clock,
                    begin_ns,
                    &mut report,
                    events,
                ),
                Way::Snapshot(setup, waker) => {
                    let request = save::Request {
                        setup,
                        waker,
                        dram_nodes: &ready.dram_nodes,
                        persistence: ready.persistence.persistence,
                        verify: options.verify_user_pages,
                        reset_clock: &reset_clock,
                        key: key.as_ref(),
                    };
                    enter::by_snapshot(machine, &request, begin_ns, &mut report, events)
                }
            }
        });

    // Whether it slept or not, user space goes on first: it can run on CXL pages.
    events(&event(UP, "thaw", Kind::Begin));
    let mut failures = undo.run();
    events(&event(UP, "thaw", Kind::End));
    let judged = result;
    // A signal on the way down has had its effect; from here on it means "stop migrating pages back".
    options.cancel.clear();
    match judged {
        Ok(()) => {
            save_state(root, &ready, false);
            report.outcome = "resumed".to_owned();
            report.home = start_migrating_back(machine, options, &ready, events)?;
            Ok(report)
        }
        Err(error) => {
            let home = migrate_back_from(machine, options, &ready, options.jobs, events);
            if home.offline {
                state::remove(root);
            } else {
                save_state(root, &ready, false);
                failures.push(format!(
                    "{} bytes are left on the CXL node, run `dormouse migrate-back`",
                    home.left_bytes
                ));
            }
            Err(with_failures(error, failures))
        }
    }
}

/// Whose key seals the kernel's snapshot, where the machine is set up for that.
fn sealing_key(root: &Root, way: &Way, options: &SleepOptions) -> Result<Option<Key>, SleepError> {
    let Way::Snapshot(setup, _) = way else {
        return Ok(None);
    };
    let file = options.passphrase_file.as_deref();
    let settings = setup.seal.as_ref();
    settings
        .map(|settings| Key::for_sleep(root, settings, file))
        .transpose()
}

fn with_failures(error: SleepError, failures: Vec<String>) -> SleepError {
    if failures.is_empty() {
        return error;
    }
    SleepError::NotUndone {
        error: Box::new(error),
        failures: failures.join("; "),
    }
}

fn preflight_end(checked: &Result<Ready, SleepError>) -> Event {
    let end = event(DOWN, "preflight", Kind::End);
    match checked {
        Ok(ready) => end
            .with("needed_bytes", ready.plan.needed_bytes)
            .with("available_bytes", ready.plan.available_bytes)
            .with("user_bytes", ready.plan.user_bytes),
        Err(error) => {
            let end = end.with("refused", error.reason());
            match error.space_bytes() {
                Some((needed, available)) => end
                    .with("needed_bytes", needed)
                    .with("available_bytes", available),
                None => end,
            }
        }
    }
}

fn migrate_back_from(
    machine: &Machine<'_>,
    options: &SleepOptions,
    ready: &Ready,
    jobs: usize,
    events: Events<'_>,
) -> crate::report::MigrateBackReport {
    let migrate_back_options = crate::options::MigrateBackOptions {
        jobs,
        cancel: options.cancel.clone(),
        ..options.migrate_back_options.clone()
    };
    migrate_back::migrate_back_from(
        machine,
        &ready.cxl,
        &ready.order,
        &migrate_back_options,
        events,
    )
}

fn start_migrating_back(
    machine: &Machine<'_>,
    options: &SleepOptions,
    ready: &Ready,
    events: Events<'_>,
) -> Result<Option<crate::report::MigrateBackReport>, SleepError> {
    match options.home {
        MigrateBackMode::Never => Ok(None),
        MigrateBackMode::Wait => {
            let jobs = options.migrate_back_options.jobs;
            let report = migrate_back_from(machine, options, ready, jobs, events);
            if report.offline {
                state::remove(machine.root);
            }
            Ok(Some(report))
        }
        MigrateBackMode::Background => {
            let (program, arguments) = options
                .background_command
                .split_first()
                .expect("the default command has a program");
            // A process group of its own, so that a Ctrl-C for us does not stop it; no output of
            // ours, so that this process need not wait for its end.
            use std::os::unix::process::CommandExt;
            Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .map_err(SleepError::write(
                    "migrate pages back in the background",
                    program.into(),
                    "run `dormouse migrate-back`",
                ))?;
            Ok(None)
        }
    }
}
