//! Possible improvements: each finding has the observation, the reason, the remedy, and
//! the gain where it can be computed.

mod devices;

use serde::Serialize;

use super::{Options, PhaseAnalysis, Totals, title};
use crate::model::{Cycle, Recording};
use crate::simulate::Overheads;

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
    all.extend(devices::permissions(context));
    all.extend(devices::order(context));
    all.extend(devices::slow_alone(context));
    all.extend(idle_cpus(context));
    all.extend(devices::resumed_but_unused(context));
    all.extend(devices::no_op_devices(context));
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
    let step = context.totals.step("sync_filesystems")?;
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
    let step = context.totals.step("freeze_processes")?;
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

fn cpu_hotplug(context: &Context) -> Option<Finding> {
    let of = |name: &str| {
        let step = context.totals.step(name);
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
