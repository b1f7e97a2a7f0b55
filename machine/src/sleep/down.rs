//! The way down, up to the point where the kernel takes over: CXL memory is brought online, user
//! space stops, its pages move.

use dormouse_report::{Event, Kind};
use dormouse_system::Root;
use dormouse_system::kernel::boot_id;
use dormouse_system::undo::Undo;

use super::preflight::{self, Ready, Way};
use super::step::{Events, check, no_detail, timed};
use super::times::DOWN;
use super::{caches, power};
use crate::error::SleepError;
use crate::hotness::sampler::Pace;
use crate::hotness::watch;
use crate::hotness::{ProcessHotness, saved};
use crate::memory::owners;
use crate::migrate::rate::batch_bytes;
use crate::migrate::{self, Outcome, Settings, Task};
use crate::node;
use crate::options::SleepOptions;
use crate::owner::Owner;
use crate::parallel::{cpus, jobs_or};
use crate::processes::freezer;
use crate::processes::{self, order};
use crate::report::SleepReport;
use crate::system::clock::event;
use crate::system::module::{self, Status};
use crate::system::state::{self, State};
use crate::target::Machine;

/// Up to this size a process moves by one migrate_pages(2): cheaper than scanning it.
const WHOLE_UP_TO_BYTES: u64 = 16 << 20;

/// Everything before S3. Pushes onto `undo` what has to be put back in any case.
pub fn go_down<'a>(
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
        Way::Snapshot(..) => node::Memmap::InDram,
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

    if matches!(ready.way, Way::Snapshot(..)) {
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
    let stays = matches!(ready.way, Way::Snapshot(..)).then_some(own);
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

/// Leaves behind what `dormouse migrate-back` needs when this process cannot finish.
pub fn save_state(root: &Root, ready: &Ready, frozen: bool) {
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
