//! `dormouse bandwidth doctor`: checks this machine for bandwidth control.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use dormouse_report::output;
use serde_json::json;

use super::arguments::DoctorArguments;
use super::check::Check;
use super::{CliError, DIFFERS, DONE, LACKING, calibrate};
use crate::daemon::config::{Config, CounterConfig, DeviceConfig, Enforcement};
use crate::daemon::counter::Reading;
use crate::daemon::counters;
use crate::daemon::{Probe, sampling};
use crate::enforce::bulk::Bulk;
use crate::enforce::cgroup::{Hierarchy, Version, cpu_hierarchy};
use crate::enforce::ext;
use crate::line_samples::uncharged;
use crate::perf::{numbers, usable};
use crate::resctrl;

/// What to do when cgroups with processes have no memory controller.
const LACKS_MEMORY: &str = "write +memory into cgroup.subtree_control of the cgroups above; while one \
                            of them uses a node, CPU time and resident memory attribute its \
                            traffic";

pub fn run(arguments: &DoctorArguments) -> Result<u8, CliError> {
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let mut checks = vec![
        Check::new("root", root()),
        Check::new("cgroup", cgroup()),
        Check::new("node", node(config.as_ref())),
        Check::new("cpu times", cpu_times()).optional(),
    ];
    if let Some(config) = &config {
        for device in &config.devices {
            let name = |what: &str| of_device(config, device, what);
            checks.push(Check::new(
                name("counter"),
                counter(device, &device.counter),
            ));
            let fallbacks = device.fallback.iter();
            let fallback = |one| Check::new(name("fallback"), counter(device, one)).optional();
            checks.extend(fallbacks.map(fallback));
            checks.extend(latency(config, device));
        }
        if config.samples.is_some() {
            checks.push(Check::new("samples", samples(config)).optional());
        }
        if let Some(tiering) = &config.tiering {
            checks.push(Check::new("tiering", tiering_knobs(&tiering.root)).optional());
        }
    }
    let calibration = config.as_ref().filter(|_| arguments.calibrate);
    let calibration = calibration.map(calibrate::run);
    let is_off = calibration.as_ref().is_some_and(|one| one.is_off);
    checks.extend(calibration.into_iter().flat_map(|one| one.checks));
    if config
        .as_ref()
        .is_some_and(|config| config.enforce == Enforcement::SchedExt)
    {
        checks.push(Check::new("sched-ext", sched_ext()));
    }
    checks.extend(sources());
    let ready = checks.iter().all(|check| check.ok || !check.needed);
    if arguments.json {
        output::json(&json!({"ready": ready, "checks": checks}))?;
    } else {
        let mut text = String::new();
        let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        for check in &checks {
            let sign = match (check.ok, check.needed) {
                (true, _) => "ok",
                (false, true) => "no",
                (false, false) => "--",
            };
            let _ = writeln!(text, "{sign} {:width$} {}", check.id, check.found);
            if !check.todo.is_empty() {
                let _ = writeln!(text, "   {:width$} {}", "", check.todo);
            }
        }
        output::text(&text)?;
    }
    Ok(match (is_off, ready) {
        (true, _) => DIFFERS,
        (false, true) => DONE,
        (false, false) => LACKING,
    })
}

fn root() -> Result<String, (String, &'static str)> {
    if rustix::process::geteuid().is_root() {
        Ok("limits can be set".to_owned())
    } else {
        Err((
            "not running as root".to_owned(),
            "run it as root, or through the systemd unit",
        ))
    }
}

fn cgroup() -> Result<String, (String, &'static str)> {
    match cpu_hierarchy() {
        Ok(Hierarchy { root, version }) => Ok(format!(
            "version {} with the cpu controller in {}",
            if version == Version::V2 { 2 } else { 1 },
            root.display()
        )),
        Err(error) => Err((error.to_string(), "")),
    }
}

/// How users' CPU times would be read.
fn cpu_times() -> Result<String, (String, &'static str)> {
    let hierarchy = cpu_hierarchy().map_err(|error| (error.to_string(), ""))?;
    match Bulk::load(&hierarchy) {
        Ok(_) => Ok("a BPF program reads many users at once".to_owned()),
        Err(why) => Err((
            format!("read file by file: {why}"),
            "with a thousand users this takes a third more CPU time; BPF needs Linux 6.1 or newer with BTF, \
             CAP_BPF and CAP_PERFMON",
        )),
    }
}

/// The configured nodes, or those with memory and without processors.
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

/// The name of a check; with several devices it contains that of the device.
fn of_device(config: &Config, device: &DeviceConfig, what: &str) -> String {
    match config.devices.len() {
        1 => what.to_owned(),
        _ => format!("{what}, {}", device.name),
    }
}

/// What the kernel shows of memory tiering.
fn tiering_knobs(root: &Path) -> Result<String, (String, &'static str)> {
    let vmstat = fs::read_to_string(root.join("proc/vmstat")).unwrap_or_default();
    if !vmstat
        .lines()
        .any(|line| line.starts_with("pgpromote_success "))
    {
        let todo = "it needs Linux 6.1 or newer with NUMA balancing (CONFIG_NUMA_BALANCING)";
        return Err(("the kernel does not count promotions".to_owned(), todo));
    }
    let knob = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
    match fs::read_to_string(root.join(knob)) {
        Ok(limit) => Ok(format!(
            "promotions are counted; their limit is {} MiB/s",
            limit.trim()
        )),
        Err(error) => Err((
            format!("{knob}: {error}"),
            "promotions are accounted and cannot be limited",
        )),
    }
}

/// The configured counter, read once.
fn counter(config: &DeviceConfig, one: &CounterConfig) -> Result<String, (String, &'static str)> {
    let (name, todo) = match one {
        CounterConfig::Assumed { gib_per_cpu_second } => {
            return Ok(format!(
                "none: assumes {gib_per_cpu_second} GiB for each CPU second on the device"
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
            "mount -t resctrl resctrl /sys/fs/resctrl; without `domains` it needs an AMD processor \
             that counts slow memory apart (BMEC)",
        ),
        CounterConfig::Perf { pmus, .. } => (
            pmus.concat().join(", "),
            "it needs a PMU that counts the device's traffic, or events named in `reads` and \
             `writes`; below is what this machine has",
        ),
    };
    let mut counter = counters::one(one);
    let samples = counter.read(Reading {
        now_ns: 1,
        nodes: &config.nodes,
        moved: &[],
    });
    match samples.iter().find(|sample| sample.counts.is_none()) {
        None => Ok(format!("{name} counts each node")),
        Some(sample) => {
            let why = counter.why().map(|why| format!(": {why}"));
            let why = why.unwrap_or_default();
            Err((
                format!("{name}: no counts of node {}{why}", sample.group),
                todo,
            ))
        }
    }
}

/// The configured samples, opened for a moment.
fn samples(config: &Config) -> Result<String, (String, &'static str)> {
    let hierarchy = cpu_hierarchy().map_err(|error| (error.to_string(), ""))?;
    if let Some(device) = sampling::device(config, &hierarchy) {
        let todo = "set it to the `resourceN` of a device with a ring of cache-line samples; \
                    without samples, CPU time and resident memory attribute traffic";
        let samples = device.map_err(|why| (why, todo))?.samples();
        if let Some(lacking) = uncharged::describe(&uncharged::below(&hierarchy, &config.cgroups)) {
            return Err((lacking, LACKS_MEMORY));
        }
        return Ok(format!("the device has sampled {samples} lines"));
    }
    match sampling::sampler(config, &hierarchy) {
        Ok(_) => Ok("accesses are sampled".to_owned()),
        Err(why) => Err((
            why,
            "without samples, CPU time and resident memory attribute traffic",
        )),
    }
}

/// Whether latency can be measured, where it determines the threshold.
fn latency(config: &Config, device: &DeviceConfig) -> Option<Check> {
    if !device.measures_latency() && config.classes.is_empty() {
        return None;
    }
    let todo = "it needs 8 MiB of each node, another 64 MiB left free, and Linux 5.14 or newer; without \
                that, set threshold_gib_s or curve";
    let found = match Probe::room(&device.nodes) {
        Ok(()) => Ok("each node has memory for the measurement".to_owned()),
        Err(error) => Err((error.to_string(), todo)),
    };
    let check = Check::new(of_device(config, device, "latency"), found);
    Some(match device.has_threshold() {
        true => check.optional(),
        false => check,
    })
}

/// Only if the configuration uses it.
fn sched_ext() -> Result<String, (String, &'static str)> {
    match ext::in_force() {
        Ok(None) => Ok("the kernel has it, and no scheduler is loaded".to_owned()),
        Ok(Some(name)) if name.starts_with("dormouse") => Ok(format!("{name} is in force")),
        Ok(Some(name)) => Err((
            format!("the scheduler {name} is in force"),
            "stop it: only one can be active",
        )),
        Err(error) => Err((error.to_string(), "or leave `enforce` at \"quota\"")),
    }
}

/// Which kinds of counters this machine has, configured or not.
fn sources() -> Vec<Check> {
    let text = "/sys/kernel/debug/cxl-counter-driver/counter-dump";
    let features = "/sys/fs/resctrl/info/L3_MON/mon_features";
    let features = fs::read_to_string(features).unwrap_or_default();
    let has = |ok: bool, found: &str, none: &str| match ok {
        true => Ok(found.to_owned()),
        false => Err((none.to_owned(), "")),
    };
    let counts = features.lines().any(|feature| feature == "mbm_total_bytes");
    let none = "no resctrl that counts memory traffic is mounted";
    let mut checks = vec![
        Check::new(
            "text",
            has(
                Path::new(text).exists(),
                text,
                "no driver shows counters as text",
            ),
        ),
        Check::new(
            "resctrl",
            has(counts, "for all memory of a processor", none),
        ),
        Check::new(
            "resctrl, of slow memory",
            resctrl::describe(Path::new(resctrl::ROOT)).map_err(|why| (why, "")),
        ),
    ];
    let perf = usable::kinds().into_iter();
    checks.extend(perf.map(|one| Check::new(one.kind, one.found.map_err(|why| (why, "")))));
    checks.into_iter().map(Check::optional).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_to_measure_latency_with_is_needed_where_nothing_else_is_the_threshold() {
        let folder = tempfile::tempdir().unwrap();
        let check = |node: u32, thresholds: &str| {
            let file = folder.path().join("bandwidth.toml");
            let text = format!(
                "nodes = [{node}]\n{thresholds}\ncgroups = [\"a\"]\n\
                 [counter]\nkind = \"text\"\npath = \"/nowhere\"\n"
            );
            fs::write(&file, text).unwrap();
            let config = Config::read(&file).unwrap();
            latency(&config, &config.devices[0]).map(|check| (check.ok, check.needed))
        };
        assert_eq!(check(999, "threshold_gib_s = 1.0"), None);
        assert_eq!(check(0, "max_latency_ns = 600"), Some((true, true)));
        assert_eq!(check(999, "max_latency_ns = 600"), Some((false, true)));
        let watched = "curve = \"linear-knee\"";
        assert_eq!(
            check(0, watched),
            Some((true, false)),
            "its latency is watched"
        );
        let both = "max_latency_ns = 600\ncurve = \"linear-knee\"";
        assert_eq!(check(999, both), Some((false, false)));
    }
}
