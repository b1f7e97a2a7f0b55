//! `dormouse bandwidth doctor`: what this machine has for bandwidth control.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use dormouse_report::output;
use serde::Serialize;
use serde_json::json;

use super::arguments::DoctorArguments;
use super::{CliError, DONE, LACKING};
use crate::daemon::config::{Config, CounterConfig, Means};
use crate::daemon::counters;
use crate::enforce::cgroup::{Hierarchy, Version};
use crate::enforce::ext;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    ok: bool,
    found: String,
    todo: String,
}

impl Check {
    fn new(id: &'static str, result: Result<String, (String, &str)>) -> Self {
        match result {
            Ok(found) => Self {
                id,
                ok: true,
                found,
                todo: String::new(),
            },
            Err((found, todo)) => Self {
                id,
                ok: false,
                found,
                todo: todo.to_owned(),
            },
        }
    }
}

pub fn run(arguments: &DoctorArguments) -> Result<u8, CliError> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let mut checks = vec![
        Check::new("root", root()),
        Check::new("cgroup", cgroup()),
        Check::new("node", node(config.as_ref())),
    ];
    if let Some(config) = &config {
        checks.push(Check::new("counter", counter(config)));
    }
    if config
        .as_ref()
        .is_some_and(|config| config.enforce == Means::SchedExt)
    {
        checks.push(Check::new("sched-ext", sched_ext()));
    }
    checks.push(Check::new("sources", Ok(sources())));
    let ready = checks.iter().all(|check| check.ok);
    if arguments.json {
        output::json(&json!({"ready": ready, "checks": checks}))?;
    } else {
        let mut text = String::new();
        for check in &checks {
            let sign = if check.ok { "ok " } else { "no " };
            let _ = writeln!(text, "{sign} {:8} {}", check.id, check.found);
            if !check.todo.is_empty() {
                let _ = writeln!(text, "             {}", check.todo);
            }
        }
        output::text(&text)?;
    }
    Ok(if ready { DONE } else { LACKING })
}

fn root() -> Result<String, (String, &'static str)> {
    if rustix::process::geteuid().is_root() {
        Ok("limits may be set".to_owned())
    } else {
        Err((
            "this is not root".to_owned(),
            "run it as root, or through the systemd unit",
        ))
    }
}

fn cgroup() -> Result<String, (String, &'static str)> {
    match Hierarchy::find() {
        Ok(Hierarchy { root, version }) => Ok(format!(
            "version {} with the cpu controller in {}",
            if version == Version::V2 { 2 } else { 1 },
            root.display()
        )),
        Err(error) => Err((error.to_string(), "")),
    }
}

/// The configured nodes, or those that have memory and no processors.
fn node(config: Option<&Config>) -> Result<String, (String, &'static str)> {
    let folder = Path::new("/sys/devices/system/node");
    if let Some(config) = config {
        let missing = |node: &&u32| !folder.join(format!("node{node}")).exists();
        return match config.nodes.iter().find(missing) {
            Some(node) => Err((
                format!("there is no node {node}"),
                "bring the device's memory online as a NUMA node (daxctl reconfigure-device)",
            )),
            None => Ok(format!("nodes {:?} are there", config.nodes)),
        };
    }
    let list = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let (memory, cpus) = (numbers(&list("has_memory")), numbers(&list("has_cpu")));
    let without: Vec<u32> = memory.into_iter().filter(|at| !cpus.contains(at)).collect();
    if without.is_empty() {
        Err((
            "no NUMA node has memory and no processors".to_owned(),
            "bring a CXL device's memory online as a node of its own (daxctl reconfigure-device)",
        ))
    } else {
        Ok(format!("nodes with memory and no processors: {without:?}"))
    }
}

/// Numbers of a list as sysfs writes it: `0-2,5`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        Some(first..=last)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// The configured counter, read once.
fn counter(config: &Config) -> Result<String, (String, &'static str)> {
    let (name, todo) = match &config.counter {
        CounterConfig::Assumed { gib_per_cpu_second } => {
            return Ok(format!(
                "none: a CPU second on the device is taken for {gib_per_cpu_second} GiB"
            ));
        }
        CounterConfig::Text { path } => (
            path.display().to_string(),
            "load the device's driver; the file has a line `read write` for each node, below a \
             line of headings",
        ),
        CounterConfig::Bar { path, .. } => (
            path.display().to_string(),
            "it is the `resourceN` of the device in /sys/bus/pci/devices, with 16 bytes for each \
             node from the offset on; write 1 into the device's `enable`",
        ),
        CounterConfig::Resctrl { .. } => (
            "resctrl".to_owned(),
            "mount -t resctrl resctrl /sys/fs/resctrl; domains are folders below its mon_data",
        ),
    };
    let samples = counters::of(&config.counter).read(&config.nodes, &[]);
    match samples.iter().find(|sample| sample.counts.is_none()) {
        None => Ok(format!("{name} counts each node")),
        Some(sample) => Err((format!("{name}: no counts of node {}", sample.group), todo)),
    }
}

/// Asked for by the configuration.
fn sched_ext() -> Result<String, (String, &'static str)> {
    match ext::in_force() {
        Ok(None) => Ok("the kernel has it, and no scheduler is loaded".to_owned()),
        Ok(Some(name)) if name.starts_with("dormouse") => Ok(format!("{name} is in force")),
        Ok(Some(name)) => Err((
            format!("the scheduler {name} is in force"),
            "end it: there can be one only",
        )),
        Err(error) => Err((error.to_string(), "or leave `enforce` at \"quota\"")),
    }
}

/// What this machine has that counts memory traffic, whether or not it is configured.
fn sources() -> String {
    let text = "/sys/kernel/debug/cxl-counter-driver/counter-dump";
    let resctrl = "/sys/fs/resctrl/info/L3_MON/mon_features";
    let features = fs::read_to_string(resctrl).unwrap_or_default();
    let mut found = Vec::new();
    if Path::new(text).exists() {
        found.push(format!("text in {text}"));
    }
    if features.lines().any(|feature| feature == "mbm_total_bytes") {
        found.push("resctrl, for all memory of a processor".to_owned());
    }
    let pmus = fs::read_dir("/sys/bus/event_source/devices");
    let names = pmus.into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|pmu| pmu.file_name().into_string().ok())
        .filter(|name| name.starts_with("cxl_pmu") || name.starts_with("uncore_imc"))
        .collect();
    names.sort();
    if !names.is_empty() {
        let names = names.join(", ");
        found.push(format!("{names}, which this program does not read"));
    }
    if found.is_empty() {
        "none is known of here; a device's BAR has to be named".to_owned()
    } else {
        found.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_sysfs_are_read() {
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers("1\n"), [1]);
        assert!(numbers("\n").is_empty());
    }
}
