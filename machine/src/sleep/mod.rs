//! The whole sleep, from preflight to user space running again: the order of operations, and what
//! is put back when one of them fails.

pub mod caches;
pub mod kernel_steps;
pub mod power;
pub mod preflight;
mod times;

use std::process::{Command, Stdio};

use dormouse_report::{Event, Kind};
use dormouse_system::Root;
use dormouse_system::kernel::boot_id;
use dormouse_system::undo::Undo;

use crate::cut_point::CutPoint;
use crate::error::SleepError;
use crate::hotness::sampler::Pace;
use crate::hotness::watch;
use crate::hotness::{ProcessHotness, saved};
use crate::memory::owners;
use crate::migrate::rate::batch_bytes;
use crate::migrate::{self, Outcome, Settings, Task};
use crate::migrate_back;
use crate::node;
use crate::options::{Cancel, MigrateBackMode, SleepOptions};
use crate::owner::Owner;
use crate::parallel::{cpus, jobs_or};
use crate::processes;
use crate::processes::freezer;
use crate::processes::order;
use crate::report::SleepReport;
use crate::sleep::kernel_steps::{self as steps, KernelSteps};
use crate::sleep::preflight::{Ready, Way};
use crate::sleep::times::{
    DOWN, Instants, UP, devices_s, kernel_step, mark_with_clocks, resume_kernel_s,
};
use crate::snapshot::save;
use crate::snapshot::seal::Key;
use crate::system::clock::{ResetClock, boottime_ns, event, monotonic_ns, seconds};
use crate::system::lock;
use crate::system::module::{self, Status};
use crate::system::state::{self, State};
use crate::target::Machine;

/// Up to this size a process moves by one migrate_pages(2): cheaper than scanning it.
const WHOLE_UP_TO_BYTES: u64 = 16 << 20;

type Events<'a> = &'a mut dyn FnMut(&Event);

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
        go_down(machine, options, &ready, &mut undo, &mut report, events).and_then(
            |()| match &ready.way {
                Way::Firmware(status) => enter(
                    root,
                    &ready,
                    status,
                    &mut reset_clock,
                    begin_ns,
                    &mut report,
                    events,
                ),
                Way::Snapshot(setup) => {
                    let request = save::Request {
                        setup,
                        dram_nodes: &ready.dram_nodes,
                        persistence: ready.persistence.persistence,
                        verify: options.verify_user_pages,
                        reset_clock: &reset_clock,
                        key: key.as_ref(),
                    };
                    enter_snapshot(machine, &request, begin_ns, &mut report, events)
                }
            },
        );

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
    let Way::Snapshot(setup) = way else {
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

fn save_state(root: &Root, ready: &Ready, frozen: bool) {
    let state = State {
        boot_id: boot_id(root),
        node: ready.cxl.node,
        order: ready.order.clone(),
        frozen: if frozen {
            ready.freeze.clone()
        } else {
            Vec::new()
        },
    };
    state::save(root, &state);
}

fn check(cancel: &Cancel, step: &'static str) -> Result<(), SleepError> {
    if cancel.is_set() {
        Err(SleepError::Interrupted { step })
    } else {
        Ok(())
    }
}

/// Begin and end events around a step, and how long it took.
fn timed<T>(
    name: &str,
    events: Events<'_>,
    step: impl FnOnce(&mut dyn FnMut(&Event)) -> Result<(T, Event), SleepError>,
) -> Result<(T, f64), SleepError> {
    let begin = event(DOWN, name, Kind::Begin);
    events(&begin);
    let result = step(&mut *events);
    let end = event(DOWN, name, Kind::End);
    let took_s = seconds(begin.t_ns, end.t_ns);
    match result {
        Ok((value, detail)) => {
            events(&Event {
                detail: detail.detail,
                ..end
            });
            Ok((value, took_s))
        }
        Err(error) => {
            events(&end.with("failed", error.reason()));
            Err(error)
        }
    }
}

fn no_detail() -> Event {
    event(DOWN, "", Kind::Mark)
}

/// Everything before S3. Pushes onto `undo` what has to be put back in any case.
fn go_down<'a>(
    machine: &Machine<'a>,
    options: &SleepOptions,
    ready: &'a Ready,
    undo: &mut Undo<'a>,
    report: &mut SleepReport,
    events: Events<'_>,
) -> Result<(), SleepError> {
    let root = machine.root;
    let cancel = &options.cancel;

    if let Way::Firmware(status) = &ready.way {
        tell_module(root, options, ready, status, undo)?;
    }
    // Hot pages are looked for while user space runs and there is something else to do.
    let watching = watch::begin(
        root,
        machine.sampler,
        options.migrate_back_options.policy,
        &ready.order,
        Pace::Hurried,
    );
    let watching = watching.unwrap_or_else(|why| {
        events(&watch::warning(DOWN, &why));
        None
    });
    let memmap = match ready.way {
        Way::Firmware(_) => node::Memmap::OnNode,
        Way::Snapshot(_) => node::Memmap::InDram,
    };
    ((), report.node_online_s) = timed("node-online", events, |_| {
        node::bring_online(root, &ready.cxl, memmap)?;
        Ok(((), no_detail().with("node", ready.cxl.node)))
    })?;
    check(cancel, "putting CXL memory online")?;
    // The long part of writing out happens while user space still runs.
    let ((), first_sync_s) = timed("sync", events, |_| {
        caches::sync();
        Ok(((), no_detail()))
    })?;
    check(cancel, "writing out dirty pages")?;
    if let Some(watch) = watching {
        timed("sample", events, |_| {
            let hotness = watch.finish(cancel);
            saved::save(root, &hotness);
            let hot_bytes: u64 = hotness.iter().map(ProcessHotness::bytes).sum();
            let detail = no_detail()
                .with("processes", hotness.len() as u64)
                .with("hot_bytes", hot_bytes);
            Ok(((), detail))
        })?;
        check(cancel, "looking for hot pages")?;
    }

    save_state(root, ready, true);
    let mount = ready.cgroup_mount;
    undo.push("let user space run again", move || {
        freezer::thaw(root, mount, &ready.freeze)
    });
    ((), report.freeze_s) = timed("freeze", events, |_| {
        freezer::freeze(root, mount, &ready.freeze, options.freeze_timeout, cancel)?;
        let detail = no_detail()
            .with("cgroups", ready.freeze.len() as u64)
            .with("not_frozen", ready.plan.not_frozen.len() as u64);
        Ok(((), detail))
    })?;

    let drop_caches = |_: &mut dyn FnMut(&Event)| {
        caches::sync();
        caches::drop_clean(root)?;
        Ok(((), no_detail()))
    };
    let ((), first_drop_s) = timed("drop-caches", events, drop_caches)?;
    check(cancel, "dropping caches")?;

    let (outcome, migrate_s) = timed("migrate", events, |events| {
        let (outcome, bytes, left) = migrate_down(machine, options, ready, events);
        report.user_bytes_migrated = bytes;
        report.pages_failed = outcome.failed_pages;
        report.not_moved = left;
        let detail = no_detail()
            .with("bytes", bytes)
            .with("processes", outcome.processes)
            .with("failed_pages", outcome.failed_pages);
        Ok((outcome, detail))
    })?;
    report.migrate_s = migrate_s;
    if outcome.canceled {
        return Err(SleepError::Interrupted {
            step: "migrating pages",
        });
    }
    // What migration released (page tables, per-CPU lists, file pages that were mapped) need not
    // be saved either.
    let ((), second_drop_s) = timed("drop-caches", events, drop_caches)?;
    report.caches_s = first_sync_s + first_drop_s + second_drop_s;

    if matches!(ready.way, Way::Snapshot(_)) {
        // The kernel counts by itself when it makes the snapshot, before anything is final.
        return check(cancel, "about to sleep");
    }
    timed("space-check", events, |_| {
        let estimate = preflight::check_after_migration(root)
            .map_err(|error| error.with_owners(|| report.not_moved.clone()))?
            .unwrap_or_default();
        let detail = no_detail()
            .with("save_bytes", estimate.save_bytes)
            .with("free_bytes", estimate.free_bytes);
        Ok(((), detail))
    })?;
    if let Some(kind) = power::select_deep(root)? {
        undo.push("choose the earlier kind of sleep", move || {
            power::write_mem_sleep(root, &kind).map_err(|error| error.to_string())
        });
    }
    check(cancel, "about to sleep")
}

/// What the image is to say; the module's own settings come back afterwards.
fn tell_module<'a>(
    root: &'a Root,
    options: &SleepOptions,
    ready: &'a Ready,
    status: &'a Status,
    undo: &mut Undo<'a>,
) -> Result<(), SleepError> {
    let settings = [
        (
            "persistence",
            ready.persistence.persistence.name(),
            &status.persistence,
        ),
        (
            "verify_user_pages",
            options.verify_user_pages.name(),
            &status.verify_user_pages,
        ),
    ];
    for (name, value, before) in settings {
        if value == before {
            continue;
        }
        module::set(root, name, value)?;
        undo.push("give the module its own settings back", move || {
            module::set(root, name, before).map_err(|error| error.to_string())
        });
    }
    Ok(())
}

/// Moves every user process to the CXL node, ourselves last; returns the bytes that arrived, and
/// the owners of what stayed.
fn migrate_down(
    machine: &Machine<'_>,
    options: &SleepOptions,
    ready: &Ready,
    events: Events<'_>,
) -> (Outcome, u64, Vec<Owner>) {
    let root = machine.root;
    node::refresh_counters(root);
    let before_bytes = node::user_bytes(root, ready.cxl.node);
    let mut found = processes::list(root);
    order::for_sleep(&mut found);
    let own = std::process::id() as i32;
    found.sort_by_key(|process| process.pid == own);
    // What this process writes after a snapshot must be in the snapshot: it stays in DRAM.
    let stays = matches!(ready.way, Way::Snapshot(_)).then_some(own);
    let tasks = found
        .iter()
        .filter(|process| Some(process.pid) != stays)
        .map(|process| Task {
            pid: process.pid,
            bytes: process.rss_bytes,
            to_node: ready.cxl.node,
        })
        .collect();
    let jobs = jobs_or(options.jobs, cpus());
    let settings = Settings {
        jobs,
        from_nodes: &ready.dram_nodes,
        is_full: &|node| node::is_full(root, node),
        whole_up_to_bytes: WHOLE_UP_TO_BYTES,
        batch_bytes: batch_bytes(ready.plan.user_bytes, jobs),
        ask_first: false,
        bucket: None,
        cancel: &options.cancel,
    };
    let total_bytes = ready.plan.user_bytes;
    let outcome = migrate::run(machine.pages, tasks, &settings, &mut |bytes| {
        let mark = event(DOWN, "migrate", Kind::Mark);
        events(&mark.with("bytes", bytes).with("total_bytes", total_bytes));
    });
    node::refresh_counters(root);
    let bytes = node::user_bytes(root, ready.cxl.node).saturating_sub(before_bytes);
    let left = owners::left(
        root,
        &found,
        &outcome.failed_pids,
        &ready.dram_nodes,
        outcome.full,
    );
    (outcome, bytes, left)
}

/// Sleeps by firmware.
fn enter(
    root: &Root,
    ready: &Ready,
    status: &Status,
    reset_clock: &mut ResetClock,
    begin_ns: u64,
    report: &mut SleepReport,
    events: Events<'_>,
) -> Result<(), SleepError> {
    let prepare_before = module::phases(root).get("prepare").copied();
    reset_clock.calibrate();
    let mark = mark_with_clocks(DOWN, "enter", reset_clock);
    report.suspend_s = seconds(begin_ns, mark.t_ns);
    events(&mark.with("saved_state", "S3").with("node", ready.cxl.node));
    let kernel_steps = KernelSteps::watch(root);
    let entered_at = Instants::now(reset_clock);
    let entered = power::enter(root);
    let resumed_at = Instants::now(reset_clock);
    let resumed = mark_with_clocks(UP, "resumed", reset_clock);
    for mark in kernel_steps.map(KernelSteps::finish).unwrap_or_default() {
        let at = match mark.way {
            steps::Way::Down => entered_at,
            steps::Way::Up => resumed_at,
        };
        if let Some(event) = at.and_then(|at| kernel_step(&mark, at)) {
            events(&event);
        }
    }
    events(&resumed);
    entered?;
    let phases = module::phases(root);
    let enter_ns = entered_at.map(|at| at.since_reset_ns);
    report.devices_s = devices_s(&phases, prepare_before, enter_ns);
    let after = module::status(root)?;
    power::judge(status, &after)?;
    report.saved_bytes = after.saved_bytes;
    report.restored_bytes = after.restored_bytes;
    let resumed_ns = resumed_at.map(|at| at.since_reset_ns);
    report.resume_kernel_s = resume_kernel_s(&module::phases(root), resumed_ns);
    Ok(())
}

/// Sleeps by the kernel's snapshot.
fn enter_snapshot(
    machine: &Machine<'_>,
    request: &save::Request<'_>,
    begin_ns: u64,
    report: &mut SleepReport,
    events: Events<'_>,
) -> Result<(), SleepError> {
    let mark = event(DOWN, "enter", Kind::Mark);
    report.suspend_s = seconds(begin_ns, mark.t_ns);
    let node = request.setup.node.node;
    events(&mark.with("saved_state", "snapshot").with("node", node));
    let slept = save::enter(machine, request);
    events(&event(UP, "resumed", Kind::Mark).with("boottime_ns", boottime_ns()));
    let slept = slept?;
    report.saved_bytes = slept.saved_bytes;
    report.restored_bytes = slept.restored_bytes;
    Ok(())
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
