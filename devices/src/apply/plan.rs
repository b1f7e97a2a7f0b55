//! The switches to change: a pure function of the current and the wanted values.

use std::path::Path;

use serde::Serialize;

use super::{ApplyError, value_of};
use crate::model::{DevicePhase, Edges, Graph, Recording};
use crate::simulate::Problem;
use crate::simulate::flags::{closure, worst_ns};
use crate::sysfs;

/// One switch to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Below /sys.
    pub path: String,
    /// The present value.
    pub from: String,
    /// The new value.
    pub to: String,
    /// In a few words.
    pub why: String,
}

/// What a user wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `power/async` by the threshold rule, with the times of a recording.
    pub threshold_ns: Option<u64>,
    /// `power/async` of all devices.
    pub all_async: Option<bool>,
    /// `/sys/power/pm_async`: the master switch.
    pub pm_async: Option<bool>,
    /// `/sys/power/sync_on_suspend`.
    pub sync_on_suspend: Option<bool>,
    /// `/sys/power/mem_sleep`: `s2idle`, `deep`, `shallow`.
    pub mem_sleep: Option<String>,
    /// `/sys/power/pm_print_times`.
    pub print_times: Option<bool>,
    /// `/sys/power/pm_graph` of our kernel series: `off`, `list`, `threshold`, `graph`.
    pub order: Option<String>,
    /// `/sys/power/pm_graph_scope`: `async`, `declared`, `all`.
    pub order_scope: Option<String>,
    /// `/sys/power/pm_graph_threshold_us`.
    pub order_threshold_us: Option<u64>,
}

/// What has to be changed for that on this machine, and what cannot be, in words.
///
/// # Errors
/// A switch that was asked for is not there, or the threshold rule has no recording.
pub fn plan(
    sys: &Path,
    wanted: &Wanted,
    recording: Option<&Recording>,
) -> Result<(Vec<Change>, Vec<String>), ApplyError> {
    let mut changes = Vec::new();
    for (name, to, why) in switches(wanted) {
        let Some(to) = to else { continue };
        is_offered(&sys.join(name), &to)?;
        push(&mut changes, sys, name, &to, why)?;
    }
    let graph = sysfs::graph(sys).map_err(|error| ApplyError::Lacking(error.to_string()))?;
    if let Some(on) = wanted.all_async {
        for device in 0..graph.devices.len() {
            let why = "all devices alike";
            permission(&mut changes, sys, &graph, device, on, why)?;
        }
    }
    let mut notes = Vec::new();
    if let Some(threshold_ns) = wanted.threshold_ns {
        let Some(recording) = recording else {
            return Err(ApplyError::Lacking(
                "the threshold rule needs the times of a recording; name one".to_owned(),
            ));
        };
        let unknown = by_threshold(&mut changes, sys, &graph, recording, threshold_ns)?;
        if unknown > 0 {
            notes.push(format!(
                "{unknown} devices of the recording that should be async are not on this machine \
                 (or match more than one device); they were left out"
            ));
        }
    }
    Ok((changes, notes))
}

/// The switches below /sys, in the order in which they are set; their values, and what for.
fn switches(wanted: &Wanted) -> [(&'static str, Option<String>, &'static str); 7] {
    let bit = |value: Option<bool>| value.map(|on| if on { "1" } else { "0" }.to_owned());
    [
        (
            "power/sync_on_suspend",
            bit(wanted.sync_on_suspend),
            "write back file systems before each suspend",
        ),
        ("power/pm_async", bit(wanted.pm_async), "async at all"),
        (
            "power/pm_print_times",
            bit(wanted.print_times),
            "print the time of each callback",
        ),
        (
            "power/mem_sleep",
            wanted.mem_sleep.clone(),
            "how `mem` sleeps",
        ),
        // Before the order, which they are for.
        (
            "power/pm_graph_threshold_us",
            wanted.order_threshold_us.map(|us| us.to_string()),
            "from where on a device is slow",
        ),
        (
            "power/pm_graph_scope",
            wanted.order_scope.clone(),
            "which devices may leave list order",
        ),
        (
            "power/pm_graph",
            wanted.order.clone(),
            "the order of devices",
        ),
    ]
}

/// Refuses a switch that this kernel does not have, or that does not offer the value.
fn is_offered(path: &Path, to: &str) -> Result<(), ApplyError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(offered) = sysfs::read(path) else {
        let series = if name.starts_with("pm_graph") {
            "; it comes with the module dormouse_dpm, or with the kernel series"
        } else {
            ""
        };
        return Err(ApplyError::Lacking(format!(
            "{}: this kernel has no such switch{series}",
            path.display()
        )));
    };
    let is_choice = offered.contains('[');
    let offers = |word: &str| word.trim_matches(['[', ']']) == to;
    if is_choice && !offered.split_whitespace().any(offers) {
        return Err(ApplyError::Lacking(format!(
            "{}: offers {offered}, and not {to}",
            path.display()
        )));
    }
    Ok(())
}

/// `power/async` by the threshold rule; the number of devices that should be async and are not on
/// this machine.
fn by_threshold(
    changes: &mut Vec<Change>,
    sys: &Path,
    graph: &Graph,
    recording: &Recording,
    threshold_ns: u64,
) -> Result<usize, ApplyError> {
    let worst = worst_of(recording);
    let edges = Edges::of(&recording.graph);
    let wanted = closure(&edges, &worst, threshold_ns);
    let mut unknown = 0;
    for (device, target) in by_path(recording, graph).iter().enumerate() {
        let Some(target) = target else {
            unknown += usize::from(wanted[device]);
            continue;
        };
        let why = if worst[device] > threshold_ns {
            "slow"
        } else if wanted[device] {
            "tied to a slow one"
        } else {
            "quick, and tied to no slow one"
        };
        permission(changes, sys, graph, *target, wanted[device], why)?;
    }
    Ok(unknown)
}

/// Each device's worst time over all cycles and passes.
fn worst_of(recording: &Recording) -> Vec<u64> {
    let problems: Vec<Problem> = recording
        .cycles
        .iter()
        .flat_map(|cycle| {
            DevicePhase::SCHEDULED
                .into_iter()
                .map(move |phase| Problem::of(recording, cycle, phase))
        })
        .collect();
    let mut worst = worst_ns(&problems);
    worst.resize(recording.graph.devices.len(), 0);
    worst
}

/// The device of this machine that is meant by each of a recording's: by path; where the
/// recording has none, by name and parent's name, if these are unique here.
fn by_path(recording: &Recording, graph: &Graph) -> Vec<Option<usize>> {
    use std::collections::HashMap;
    let mut paths: HashMap<&str, usize> = HashMap::new();
    let mut names: HashMap<(&str, Option<&str>), Option<usize>> = HashMap::new();
    let parent_of =
        |graph: &'_ Graph, device: usize| -> Option<usize> { graph.devices[device].parent };
    for (index, device) in graph.devices.iter().enumerate() {
        if let Some(path) = &device.path {
            paths.insert(path, index);
        }
        let parent = parent_of(graph, index).map(|parent| graph.devices[parent].name.as_str());
        names
            .entry((&device.name, parent))
            // Two of the same: neither can be meant.
            .and_modify(|known| *known = None)
            .or_insert(Some(index));
    }
    let recorded = &recording.graph;
    (0..recorded.devices.len())
        .map(|index| {
            let device = &recorded.devices[index];
            match &device.path {
                Some(path) => paths.get(path.as_str()).copied(),
                None => {
                    let parent = parent_of(recorded, index);
                    let parent = parent.map(|parent| recorded.devices[parent].name.as_str());
                    names
                        .get(&(device.name.as_str(), parent))
                        .copied()
                        .flatten()
                }
            }
        })
        .collect()
}

fn permission(
    changes: &mut Vec<Change>,
    sys: &Path,
    graph: &Graph,
    device: usize,
    on: bool,
    why: &str,
) -> Result<(), ApplyError> {
    let device = &graph.devices[device];
    // Without power/async the kernel has no power management for it.
    let (Some(path), Some(_)) = (&device.path, device.is_async) else {
        return Ok(());
    };
    let to = if on { "enabled" } else { "disabled" };
    push(
        changes,
        sys,
        &format!("devices/{path}/power/async"),
        to,
        why,
    )
}

fn push(
    changes: &mut Vec<Change>,
    sys: &Path,
    path: &str,
    to: &str,
    why: &str,
) -> Result<(), ApplyError> {
    let from = value_of(sys, path)?;
    if from != to {
        changes.push(Change {
            path: path.to_owned(),
            from,
            to: to.to_owned(),
            why: why.to_owned(),
        });
    }
    Ok(())
}
