//! Possible improvements: each finding has the observation, the reason, the remedy, and
//! the gain where it can be computed.

use serde::Serialize;

use super::gain::{Simulated, schedule_of};
use super::{Options, PhaseAnalysis, Totals, title};
use crate::model::{Cycle, DevicePhase, Direction, Recording};
use crate::simulate::flags::closure;
use crate::simulate::{Overheads, Schedule, Setting};

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name, for programs.
    pub id: &'static str,
    /// What was seen, in one sentence.
    pub seen: String,
    /// Why it is so.
    pub why: &'static str,
    /// What to do about it.
    pub todo: String,
    /// Time that doing so would gain, where it can be reckoned.
    pub gain_ns: Option<u64>,
    /// The devices or threads concerned, the most important first.
    pub about: Vec<String>,
}

/// What findings are made from.
pub struct Context<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The cycle that is analysed.
    pub cycle: &'a Cycle,
    /// Number of CPUs.
    pub cpus: usize,
    /// Thresholds and limits.
    pub options: &'a Options,
    /// The overheads of scheduling.
    pub overheads: Overheads,
    /// The totals.
    pub totals: &'a Totals,
    /// The analysis of each pass.
    pub phases: &'a [PhaseAnalysis],
}

/// Shorter steps are not reported.
const NOTABLE_NS: u64 = 1_000_000;
/// A step that takes more than this part of its direction is reported.
const NOTABLE_SHARE: f64 = 0.05;
/// How many names a finding lists.
const MAX_NAMES: usize = 12;

/// All findings; the largest gain first, unknown gains last. Failures
/// come before everything.
pub fn of(context: &Context) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(sync_cost(context));
    all.extend(freeze_stragglers(context));
    all.extend(permissions(context));
    all.extend(order(context));
    all.extend(slow_alone(context));
    all.extend(idle_cpus(context));
    all.extend(resumed_but_unused(context));
    all.extend(no_op_devices(context));
    all.extend(cpu_hotplug(context));
    all.extend(tracing_distorts(context));
    all.sort_by_key(|finding| std::cmp::Reverse(finding.gain_ns.unwrap_or(0)));
    let mut first: Vec<Finding> = failures(context).into_iter().collect();
    first.append(&mut all);
    first
}

fn ms(ns: u64) -> String {
    dormouse_report::format::duration(ns)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn setting_of<'a>(context: &'a Context, path: &str) -> Option<&'a str> {
    let value = context.recording.machine.settings.get(path)?;
    Some(value.trim())
}

fn names(context: &Context, devices: impl Iterator<Item = usize>) -> Vec<String> {
    devices
        .take(MAX_NAMES)
        .map(|device| title(context.recording, device))
        .collect()
}

fn failures(context: &Context) -> Option<Finding> {
    let failed: Vec<String> = context
        .phases
        .iter()
        .flat_map(|phase| {
            let failed = phase.failed.iter();
            failed.map(|(device, error)| format!("{device}: {} returned {error}", phase.phase))
        })
        .collect();
    let first = failed.first()?.clone();
    Some(Finding {
        id: "failed",
        seen: format!("{} callbacks failed, the first of {first}", failed.len()),
        why: "A callback that fails on the way down ends the suspend: everything that was \
              suspended by then is resumed.",
        todo:
            "Look for the device's driver in the kernel's log. The times of an aborted suspend are \
               not those of a complete one."
                .to_owned(),
        gain_ns: None,
        about: failed,
    })
}

fn sync_cost(context: &Context) -> Option<Finding> {
    let step = context
        .totals
        .steps
        .iter()
        .find(|step| step.name == "sync_filesystems")?;
    if step.duration_ns < NOTABLE_NS || step.share < NOTABLE_SHARE {
        return None;
    }
    Some(Finding {
        id: "sync-cost",
        seen: format!(
            "writing back file systems takes {}, {} of the way down",
            ms(step.duration_ns),
            percent(step.share)
        ),
        why: "The kernel calls sync before each suspend. A machine that sleeps often pays each \
              time, although the kernel writes dirty pages back by itself while it is awake.",
        todo: "`dormouse devices apply --sync-on-suspend off`. Consider the risk: data \
               written since the last write-back is lost if power fails during sleep, and the time \
               asleep does not count for vm.dirty_expire_centisecs (30 s by default), so on a \
               machine that is awake for a second at a time, data can stay unwritten for many \
               sleeps."
            .to_owned(),
        gain_ns: Some(step.duration_ns),
        about: Vec::new(),
    })
}

fn freeze_stragglers(context: &Context) -> Option<Finding> {
    let step = context
        .totals
        .steps
        .iter()
        .find(|step| step.name == "freeze_processes")?;
    if step.duration_ns < 5 * NOTABLE_NS && step.share < 2.0 * NOTABLE_SHARE {
        return None;
    }
    // Those that ran in the last third are what freezing waited for.
    let late_ns = step.duration_ns * 2 / 3;
    let late: Vec<String> = context
        .cycle
        .freezing
        .iter()
        .filter(|one| one.last_ns >= late_ns)
        .map(|one| format!("{} ({}) at {}", one.name, one.thread, ms(one.last_ns)))
        .collect();
    let todo = if context.cycle.freezing.is_empty() {
        "Record with scheduling events (`dormouse devices record` does), which name the threads \
         that were last."
    } else {
        "Look at the threads that ran last: each had to come to a point where it can stop. Long \
         system calls on slow devices and FUSE requests are the usual reasons."
    };
    Some(Finding {
        id: "freeze-stragglers",
        seen: format!(
            "freezing processes takes {}, {} of the way down",
            ms(step.duration_ns),
            percent(step.share)
        ),
        why: "The kernel wakes every thread so that it freezes itself, and looks again, after \
              1, 2, 4 and at most 8 ms, until none is left: one late thread adds a whole round.",
        todo: todo.to_owned(),
        gain_ns: None,
        about: late,
    })
}

/// Findings about `power/async`: too many, too few.
fn permissions(context: &Context) -> Vec<Finding> {
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
fn order(context: &Context) -> Option<Finding> {
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

fn slow_alone(context: &Context) -> Option<Finding> {
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

fn idle_cpus(context: &Context) -> Option<Finding> {
    let idle: Vec<String> = context
        .phases
        .iter()
        .filter(|phase| phase.duration_ns > 5 * NOTABLE_NS)
        .filter_map(|phase| {
            let share = phase.idle_share.filter(|&share| share > 0.5)?;
            Some(format!(
                "{}: {} idle, {:.1} callbacks at a time",
                phase.phase,
                percent(share),
                phase.parallelism
            ))
        })
        .collect();
    let first = idle.first()?.clone();
    Some(Finding {
        id: "idle-cpus",
        seen: format!("the CPUs are idle for most of the time ({first})"),
        why: "Devices wait for their hardware, one after the other, and nothing uses the CPU \
              meanwhile: more of them could wait at the same time.",
        todo: "See the findings about async, and `dormouse devices simulate`.".to_owned(),
        gain_ns: None,
        about: idle,
    })
}

fn resumed_but_unused(context: &Context) -> Option<Finding> {
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

fn no_op_devices(context: &Context) -> Option<Finding> {
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
    if between_ns < NOTABLE_NS || between_ns * 20 < whole_ns {
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

fn cpu_hotplug(context: &Context) -> Option<Finding> {
    let of = |name: &str| {
        let step = context.totals.steps.iter().find(|step| step.name == name);
        step.map_or(0, |step| step.duration_ns)
    };
    let sum_ns = of("CPU_OFF") + of("CPU_ON");
    let whole_ns = context.totals.suspend_ns + context.totals.resume_ns;
    if sum_ns < 5 * NOTABLE_NS || (sum_ns as f64) < NOTABLE_SHARE * whole_ns as f64 {
        return None;
    }
    let todo = match setting_of(context, "power/mem_sleep") {
        Some(states) if states.contains("s2idle") => format!(
            "`echo s2idle > /sys/power/mem_sleep` keeps them on (now: {states}), if the firmware's \
             idle states are good enough: compare the power that the machine draws asleep."
        ),
        _ => "Suspend to idle (s2idle) keeps them on, where the machine has it.".to_owned(),
    };
    Some(Finding {
        id: "cpu-hotplug",
        seen: format!(
            "switching CPUs off and on takes {} ({} down, {} up)",
            ms(sum_ns),
            ms(of("CPU_OFF")),
            ms(of("CPU_ON"))
        ),
        why: "Suspend to RAM takes all CPUs but one offline, one after the other; the time grows \
              with their number.",
        todo,
        gain_ns: Some(sum_ns),
        about: Vec::new(),
    })
}

fn tracing_distorts(context: &Context) -> Option<Finding> {
    if setting_of(context, "power/pm_print_times") != Some("1") {
        return None;
    }
    Some(Finding {
        id: "pm-print-times",
        seen: "the machine prints each callback's time (pm_print_times is on)".to_owned(),
        why: "Printing to a slow console takes longer than most callbacks; all times are too \
              long.",
        todo: "`echo 0 > /sys/power/pm_print_times`, and record again.".to_owned(),
        gain_ns: None,
        about: Vec::new(),
    })
}
