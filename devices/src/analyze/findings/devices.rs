//! Findings about devices: which ones may be asynchronous, in which order they run, and which ones
//! need not be touched.

use super::{Context, Finding, MAX_NAMES, NOTABLE_NS, ms, names};
use crate::analyze::gain::{Simulated, schedule_of};
use crate::model::{DevicePhase, Direction};
use crate::simulate::flags::closure;
use crate::simulate::{Schedule, Setting};

/// Findings about `power/async`: too many, too few.
pub(super) fn permissions(context: &Context) -> Vec<Finding> {
    let devices = &context.recording.graph.devices;
    if devices.iter().all(|device| device.is_async.is_none()) {
        return Vec::new();
    }
    let now: Vec<bool> = devices
        .iter()
        .map(|device| device.is_async == Some(true))
        .collect();
    let setting = Setting {
        overheads: context.overheads,
        ..Setting::new(
            schedule_of(context.recording.machine.kernel.as_deref()),
            context.cpus,
        )
    };
    let simulated = Simulated::new(context.recording, context.cycle, setting);
    let edges = &simulated.problems[0].edges;
    let worst_ns = simulated.worst_ns();
    let wanted = closure(edges, &worst_ns, context.options.threshold_ns);
    let now_ns = simulated.total_ns(&now);
    let mut found = Vec::new();

    let needless: Vec<usize> = (0..now.len()).filter(|&d| now[d] && !wanted[d]).collect();
    let fewer: Vec<bool> = now.iter().zip(&wanted).map(|(&a, &b)| a && b).collect();
    let fewer_ns = simulated.total_ns(&fewer);
    let item_ns = context.overheads.queue_ns + context.overheads.wake_ns;
    if !needless.is_empty() && fewer_ns < now_ns {
        found.push(Finding {
            id: "needless-async",
            seen: format!(
                "{} devices may be async although they and all that is tied to them take less \
                 than {}",
                needless.len(),
                ms(context.options.threshold_ns)
            ),
            why: "Each async device needs a work item, a wake-up and a switch, and its neighbours \
                  wait for it: for a quick callback that is more than the callback itself.",
            todo: format!(
                "`dormouse devices apply --async-threshold {}` takes the permission from them (an \
                 item takes about {} here).",
                ms(context.options.threshold_ns).replace(' ', ""),
                ms(item_ns)
            ),
            gain_ns: Some(now_ns - fewer_ns),
            about: names(context, needless.into_iter()),
        });
    }

    let mut missing: Vec<usize> = (0..now.len())
        .filter(|&d| !now[d] && worst_ns[d] > context.options.threshold_ns)
        .collect();
    missing.sort_by_key(|&device| std::cmp::Reverse(worst_ns[device]));
    let more: Vec<bool> = now.iter().zip(&wanted).map(|(&a, &b)| a || b).collect();
    let more_ns = simulated.total_ns(&more);
    if !missing.is_empty() && more_ns < now_ns {
        found.push(Finding {
            id: "missing-async",
            seen: format!(
                "{} devices take more than {} and may not be async",
                missing.len(),
                ms(context.options.threshold_ns)
            ),
            why: "A device without the permission runs in list order, one after the other, and \
                  everything behind it in the list waits.",
            todo: format!(
                "`dormouse devices apply --async-threshold {}` gives it to them, to what depends \
                 on them and to what they depend on. Drivers without the permission may rely on \
                 an order that is not declared: try it, and `--undo` it if a device misbehaves.",
                ms(context.options.threshold_ns).replace(' ', "")
            ),
            gain_ns: Some(now_ns - more_ns),
            about: names(context, missing.into_iter()),
        });
    }
    found
}

/// What the graph order would gain over the machine's own schedule, both simulated: what the
/// kernel does between callbacks is in neither.
pub(super) fn order(context: &Context) -> Option<Finding> {
    let devices = &context.recording.graph.devices;
    if devices.iter().all(|device| device.is_async.is_none()) {
        // How they are scheduled now is not known.
        return None;
    }
    let setting = Setting {
        overheads: context.overheads,
        ..Setting::new(Schedule::Graph, context.cpus)
    };
    let simulated = Simulated::new(context.recording, context.cycle, setting);
    let now: Vec<bool> = devices
        .iter()
        .map(|device| device.is_async == Some(true))
        .collect();
    let schedule = schedule_of(context.recording.machine.kernel.as_deref());
    let now_ns = simulated.total_under(schedule, &now);
    let graph_ns = simulated.total_ns(&vec![true; devices.len()]);
    let gain_ns = now_ns.saturating_sub(graph_ns);
    if gain_ns < NOTABLE_NS || gain_ns * 10 < now_ns {
        return None;
    }
    Some(Finding {
        id: "order",
        seen: format!(
            "in the order of the graph the devices would take about {}, as they are scheduled now \
             about {} (both simulated)",
            ms(graph_ns),
            ms(now_ns)
        ),
        why: "Walking the list, or waiting for neighbours in one work item a device, leaves \
              devices waiting that could run.",
        todo: "`dormouse devices simulate` shows all schedules side by side. On a stock kernel \
               the permissions above are what can be changed; the graph order needs a kernel that \
               has it."
            .to_owned(),
        gain_ns: Some(gain_ns),
        about: Vec::new(),
    })
}

pub(super) fn slow_alone(context: &Context) -> Option<Finding> {
    let mut slow: Vec<(String, u64)> = Vec::new();
    for phase in context.phases {
        for link in &phase.critical_path {
            if link.duration_ns * 4 > phase.duration_ns && link.duration_ns > 5 * NOTABLE_NS {
                slow.push((
                    format!("{}: {} in {}", link.name, ms(link.duration_ns), phase.phase),
                    link.duration_ns,
                ));
            }
        }
    }
    slow.sort_by_key(|one| std::cmp::Reverse(one.1));
    let first = slow.first()?;
    Some(Finding {
        id: "slow-device",
        seen: format!(
            "{} devices take more than a quarter of their pass each; the slowest is {}",
            slow.len(),
            first.0
        ),
        why: "They stand on the critical path: no order of devices makes the pass faster than \
              they are.",
        todo: "Look at what the driver waits for (`trace-cmd record -p function_graph -g \
               FUNCTION`), and whether runtime power management could have suspended the device \
               before."
            .to_owned(),
        gain_ns: None,
        about: slow.into_iter().take(MAX_NAMES).map(|one| one.0).collect(),
    })
}

pub(super) fn resumed_but_unused(context: &Context) -> Option<Finding> {
    let mut times: std::collections::BTreeMap<usize, u64> = std::collections::BTreeMap::new();
    for callback in &context.cycle.callbacks {
        let device = &context.recording.graph.devices[callback.device];
        let slept = device
            .runtime
            .as_ref()
            .is_some_and(|runtime| runtime.status == "suspended");
        let up = matches!(callback.phase, DevicePhase::Complete)
            || callback.phase.direction() == Direction::Resume
                && callback.phase != DevicePhase::Prepare;
        if slept && up {
            *times.entry(callback.device).or_default() += callback.duration_ns();
        }
    }
    let sum_ns: u64 = times.values().sum();
    let mut devices: Vec<(usize, u64)> = times
        .into_iter()
        .filter(|&(_, ns)| ns > NOTABLE_NS / 10)
        .collect();
    devices.sort_by_key(|one| std::cmp::Reverse(one.1));
    if devices.is_empty() || sum_ns < NOTABLE_NS {
        return None;
    }
    Some(Finding {
        id: "resumed-unused",
        seen: format!(
            "{} devices were suspended at run time before the suspend, and are resumed all the \
             same, for {} together",
            devices.len(),
            ms(sum_ns)
        ),
        why: "Unless a driver allows it (DPM_FLAG_MAY_SKIP_RESUME, or the direct-complete path), \
              system resume brings a device to full power even if it is unused.",
        todo: "The drivers have to allow it; no switch in /sys does. A newer kernel may, as may \
               a kernel with lazy resume."
            .to_owned(),
        gain_ns: None,
        about: names(context, devices.into_iter().map(|one| one.0)),
    })
}

pub(super) fn no_op_devices(context: &Context) -> Option<Finding> {
    let between_ns: u64 = context.phases.iter().map(|phase| phase.between_ns).sum();
    let handled: usize = context
        .phases
        .iter()
        .map(|phase| phase.callbacks + phase.without_callback)
        .sum();
    let empty: usize = context
        .phases
        .iter()
        .map(|phase| phase.without_callback)
        .sum();
    let whole_ns = context.totals.suspend_ns + context.totals.resume_ns;
    if empty == 0 || between_ns < NOTABLE_NS || between_ns * 20 < whole_ns {
        return None;
    }
    Some(Finding {
        id: "no-op-devices",
        seen: format!(
            "for {} of the passes no callback runs: {empty} of {handled} visits are to devices \
             that have nothing to do",
            ms(between_ns)
        ),
        why: "The kernel takes locks, moves list entries and, for devices that may be async, \
              queues work for every device in every pass, whether it has a callback or not.",
        todo: "Take the permission to be async from devices that have nothing to do (see \
               needless-async); drivers for absent hardware can be left out of the kernel."
            .to_owned(),
        gain_ns: None,
        about: Vec::new(),
    })
}
