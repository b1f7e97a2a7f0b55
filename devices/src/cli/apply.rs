//! `dormouse devices apply`.

use std::fmt::Write;
use std::path::Path;

use dormouse_system::{Root, kernel, output};
use serde_json::json;

use super::arguments::ApplyArguments;
use super::{DONE, Failure};
use crate::apply::{
    Change, Undone, Wanted, apply, load_module, module, plan, tmpfiles, udev_rules, undo,
};
use crate::read;

/// Runs the verb; returns its exit code.
pub fn run(arguments: &ApplyArguments) -> Result<u8, Failure> {
    if arguments.undo {
        return undone(arguments);
    }
    let wanted = wanted(arguments);
    let recording = match &arguments.recording {
        Some(path) => Some(read::read(path, false)?),
        None => None,
    };
    let loads = needs_module(arguments, &wanted);
    if loads && arguments.dry_run {
        return would_load(arguments);
    }
    if loads {
        load_module(
            &arguments.sys,
            &arguments.state,
            &kernel::boot_id(&Root::host()),
            arguments.module.as_deref(),
        )?;
    }
    let (changes, mut notes) = plan(&arguments.sys, &wanted, recording.as_ref())?;
    if loads {
        notes.push(format!("the module {} is loaded", module::NAME));
    }
    if !arguments.dry_run {
        apply(
            &arguments.sys,
            &arguments.state,
            &kernel::boot_id(&Root::host()),
            &changes,
        )?;
    }
    let (rules, files) = if arguments.snippet {
        (udev_rules(&arguments.sys, &changes), tmpfiles(&changes))
    } else {
        Default::default()
    };
    if arguments.json {
        output::json(&json!({
            "changed": !arguments.dry_run && (loads || !changes.is_empty()),
            "changes": changes,
            "notes": notes,
            "udev_rules": rules,
            "tmpfiles": files,
        }))?;
        return Ok(DONE);
    }
    let mut text = shown(&changes, &notes, arguments.dry_run);
    text.push_str(&rules);
    text.push_str(&files);
    output::text(&text)?;
    Ok(DONE)
}

/// What the options ask for.
fn wanted(arguments: &ApplyArguments) -> Wanted {
    Wanted {
        threshold_ns: arguments.async_threshold.map(|time| time.as_nanos() as u64),
        all_async: arguments.all_async.map(|switch| switch.is_on()),
        pm_async: arguments.pm_async.map(|switch| switch.is_on()),
        sync_on_suspend: arguments.sync_on_suspend.map(|switch| switch.is_on()),
        mem_sleep: arguments.mem_sleep.clone(),
        print_times: arguments.print_times.map(|switch| switch.is_on()),
        order: arguments.order.map(value_name),
        order_scope: arguments.order_scope.map(value_name),
        order_threshold_us: arguments
            .order_threshold
            .map(|time| time.as_micros() as u64),
    }
}

/// What was changed, or would be.
fn shown(changes: &[Change], notes: &[String], dry_run: bool) -> String {
    let mut text = String::new();
    for change in changes {
        line(&mut text, change);
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text.push_str(match (changes.is_empty(), dry_run) {
        (true, _) => "nothing to change\n",
        (false, true) => "nothing was changed (--dry-run)\n",
        (false, false) => {
            "changed; a reboot or `dormouse devices apply --undo` puts everything back\n"
        }
    });
    text
}

/// Whether a switch is wanted that only the module of graph order can bring to this kernel.
fn needs_module(arguments: &ApplyArguments, wanted: &Wanted) -> bool {
    let off = wanted.order.as_deref() == Some("off");
    let order = wanted.order.is_some()
        || wanted.order_scope.is_some()
        || wanted.order_threshold_us.is_some();
    // Another sysfs may be a copy: then this machine is not meant.
    let own = arguments.sys == Path::new("/sys");
    order && !off && own && !module::is_there(&arguments.sys)
}

/// `--dry-run`: the switches come with the module, so their values are not known yet.
fn would_load(arguments: &ApplyArguments) -> Result<u8, Failure> {
    if arguments.json {
        output::json(&json!({ "changed": false, "loads": module::NAME }))?;
    } else {
        output::text(&format!(
            "the module {} would be loaded, and its switches set\nnothing was changed (--dry-run)\n",
            module::NAME
        ))?;
    }
    Ok(DONE)
}

/// As the kernel spells it, too.
fn value_name(choice: impl clap::ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn line(text: &mut String, change: &Change) {
    let _ = writeln!(
        text,
        "/sys/{}: {} → {} ({})",
        dormouse_report::format::printable(&change.path),
        change.from,
        change.to,
        change.why
    );
}

fn undone(arguments: &ApplyArguments) -> Result<u8, Failure> {
    let done = undo(
        &arguments.sys,
        &arguments.state,
        &kernel::boot_id(&Root::host()),
        arguments.dry_run,
    )?;
    if arguments.json {
        output::json(&json!({
            "changed": !arguments.dry_run && done.is_some(),
            "undone": done.unwrap_or_default(),
        }))?;
        return Ok(DONE);
    }
    let Some(done) = done else {
        output::text("nothing to undo\n")?;
        return Ok(DONE);
    };
    let mut text = String::new();
    for one in &done {
        match one {
            Undone::Restored(change) => line(&mut text, change),
            Undone::WasBack(path) => {
                let _ = writeln!(text, "/sys/{path}: is as it was");
            }
            Undone::LeftAlone { path, now, set } => {
                let _ = writeln!(
                    text,
                    "/sys/{path}: left at {now}: it was changed by others since it was set to {set}"
                );
            }
            Undone::Unloaded(name) => {
                let _ = writeln!(text, "the module {name}: unloaded");
            }
            Undone::Gone(path) => {
                let _ = writeln!(text, "/sys/{path}: is gone");
            }
        }
    }
    if arguments.dry_run {
        text.push_str("nothing was changed (--dry-run)\n");
    }
    output::text(&text)?;
    Ok(DONE)
}
