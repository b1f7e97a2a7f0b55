//! The device graph of this machine, from /sys: devices, parents, device links, switches.
//!
//! Any directory below /sys/devices with a `uevent` file is a device of the driver core. Their
//! inode numbers ascend in the order in which they were made, which is the order of the kernel's
//! list but for devices that were moved later; a trace of `dpm_prepare` has the list itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dormouse_system::topology::parse_list;

use crate::model::{Device, Graph, Link, LinkStatus, RuntimePm};

/// A sysfs that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; is sysfs mounted?", path.display())]
pub struct SysfsError {
    path: PathBuf,
    source: std::io::Error,
}

/// Settings below /sys that matter to suspend, recorded where they exist.
pub const SETTINGS: [&str; 8] = [
    "power/pm_async",
    "power/mem_sleep",
    "power/pm_test",
    "power/pm_print_times",
    "power/pm_debug_messages",
    "power/sync_on_suspend",
    "power/pm_freeze_timeout",
    "module/printk/parameters/console_suspend",
];

/// Subsystems of buses that carry one transfer at a time, and slowly.
const SERIAL: [&str; 4] = ["i2c", "i3c", "spi", "mdio_bus"];

/// The kernel has no deeper trees.
const MAX_DEPTH: usize = 64;

/// The graph below a sysfs (`/sys`, or a copy of it).
///
/// # Errors
/// `devices` cannot be read. Single devices that vanish meanwhile are left out.
pub fn graph(sys: &Path) -> Result<Graph, SysfsError> {
    let root = sys.join("devices");
    fs::read_dir(&root).map_err(|source| SysfsError {
        path: root.clone(),
        source,
    })?;
    let mut graph = Graph::default();
    let mut by_path = BTreeMap::new();
    walk(&root, &root, None, 0, &mut graph, &mut by_path);
    links(sys, &by_path, &mut graph);
    slow_buses(&mut graph);
    Ok(graph)
}

fn walk(
    root: &Path,
    folder: &Path,
    parent: Option<usize>,
    depth: usize,
    graph: &mut Graph,
    by_path: &mut BTreeMap<PathBuf, usize>,
) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut folders: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    for path in folders {
        let own = if path.join("uevent").is_file() {
            let index = graph.devices.len();
            let parent = parent.filter(|_| !is_below_a_root(root, &path));
            graph.devices.push(device(root, &path, parent));
            by_path.insert(path.clone(), index);
            Some(index)
        } else {
            parent
        };
        if depth < MAX_DEPTH {
            walk(root, &path, own, depth + 1, graph, by_path);
        }
    }
}

/// `system/cpu/cpu0`, `virtual/workqueue/writeback`: the directory above is where the subsystem
/// puts devices without a parent, and none to the driver core, though it may have an `uevent`.
fn is_below_a_root(root: &Path, path: &Path) -> bool {
    let Ok(path) = path.strip_prefix(root) else {
        return false;
    };
    let first = path.components().next();
    let first = first.and_then(|first| first.as_os_str().to_str());
    matches!(first, Some("system" | "virtual")) && path.components().count() == 3
}

fn device(root: &Path, path: &Path, parent: Option<usize>) -> Device {
    let text = |name: &str| read(&path.join(name));
    let target = |name: &str| -> Option<String> {
        let link = fs::read_link(path.join(name)).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    };
    let status = text("power/runtime_status");
    Device {
        name: path
            .file_name()
            .map(|name| name.to_string_lossy().replace('!', "/"))
            .unwrap_or_default(),
        path: path
            .strip_prefix(root)
            .ok()
            .map(|path| path.to_string_lossy().into_owned()),
        parent,
        driver: target("driver"),
        subsystem: target("subsystem"),
        is_async: text("power/async").map(|value| value == "enabled"),
        runtime: status.map(|status| RuntimePm {
            status,
            control: text("power/control").unwrap_or_default(),
        }),
        wakeup: text("power/wakeup").and_then(|value| match value.as_str() {
            "enabled" => Some(true),
            "disabled" => Some(false),
            _ => None,
        }),
        bus: None,
        registered: fs::metadata(path).ok().map(|metadata| metadata.ino()),
    }
}

/// Devices of a serial bus share its controller, which carries one transfer at a time. It is their
/// parent, and its number stands for the bus.
fn slow_buses(graph: &mut Graph) {
    for device in &mut graph.devices {
        let is_serial = device
            .subsystem
            .as_deref()
            .is_some_and(|name| SERIAL.contains(&name));
        if is_serial {
            device.bus = device.parent.and_then(|parent| u32::try_from(parent).ok());
        }
    }
}

/// The contents of a small file, without its line end.
pub fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Device links: /sys/class/devlink has a device for each, with links to both ends.
fn links(sys: &Path, by_path: &BTreeMap<PathBuf, usize>, graph: &mut Graph) {
    let Ok(entries) = fs::read_dir(sys.join("class/devlink")) else {
        return;
    };
    let mut found: Vec<(u64, Link)> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let end = |name: &str| -> Option<usize> {
                let real = fs::canonicalize(path.join(name)).ok()?;
                let root = fs::canonicalize(sys.join("devices")).ok()?;
                let below = real.strip_prefix(root).ok()?;
                by_path.get(&sys.join("devices").join(below)).copied()
            };
            let is = |name: &str| read(&path.join(name)).as_deref() == Some("1");
            let made = fs::metadata(&path).map_or(0, |metadata| metadata.ino());
            let link = Link {
                supplier: end("supplier")?,
                consumer: end("consumer")?,
                status: status(&read(&path.join("status")).unwrap_or_default()),
                sync_state_only: is("sync_state_only"),
                runtime_pm: is("runtime_pm"),
            };
            Some((made, link))
        })
        .collect();
    found.sort_by_key(|&(made, _)| made);
    graph.links = found.into_iter().map(|(_, link)| link).collect();
}

fn status(text: &str) -> LinkStatus {
    match text {
        "dormant" => LinkStatus::Dormant,
        "available" => LinkStatus::Available,
        "consumer probing" => LinkStatus::ConsumerProbe,
        "active" => LinkStatus::Active,
        "supplier unbinding" => LinkStatus::SupplierUnbind,
        _ => LinkStatus::Untracked,
    }
}

/// The settings that are there, by their path below /sys.
pub fn settings(sys: &Path) -> BTreeMap<String, String> {
    SETTINGS
        .iter()
        .filter_map(|&name| Some((name.to_owned(), read(&sys.join(name))?)))
        .collect()
}

/// How many CPUs are online, of `0-3,5`.
pub fn online_cpus(sys: &Path) -> Option<u32> {
    let text = read(&sys.join("devices/system/cpu/online"))?;
    let cpus = parse_list(&text).len();
    u32::try_from(cpus).ok().filter(|&cpus| cpus > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn make(path: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(path.join("power")).unwrap();
        fs::write(path.join("uevent"), "").unwrap();
        for (name, text) in files {
            fs::write(path.join(name), text).unwrap();
        }
    }

    #[test]
    fn devices_parents_links_and_permissions_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let bus = sys.join("devices/pci0000:00");
        make(&bus, &[("power/async", "enabled\n")]);
        let disk = bus.join("0000:00:01.0");
        make(
            &disk,
            &[
                ("power/async", "disabled\n"),
                ("power/runtime_status", "suspended\n"),
                ("power/control", "auto\n"),
                ("power/wakeup", "enabled\n"),
            ],
        );
        // A directory that is no device stands between a device and its parent.
        let block = disk.join("block/cciss!c0d0");
        make(&block, &[]);
        let drivers = sys.join("bus/pci/drivers/ahci");
        fs::create_dir_all(&drivers).unwrap();
        symlink(&drivers, disk.join("driver")).unwrap();
        let link = sys.join("class/devlink/pci:a--pci:b");
        make(&link, &[("status", "active\n"), ("runtime_pm", "1\n")]);
        symlink(&bus, link.join("supplier")).unwrap();
        symlink(&block, link.join("consumer")).unwrap();
        make(&sys.join("devices/system/cpu"), &[]);
        make(&sys.join("devices/system/cpu/cpu0"), &[]);
        fs::write(sys.join("devices/system/cpu/online"), "0-3,5\n").unwrap();

        let graph = graph(sys).unwrap();
        let names: Vec<_> = graph.devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(
            names,
            ["pci0000:00", "0000:00:01.0", "cciss/c0d0", "cpu", "cpu0"]
        );
        assert_eq!(graph.devices[4].parent, None);
        assert_eq!(graph.devices[2].parent, Some(1));
        assert_eq!(graph.devices[1].parent, Some(0));
        let disk = &graph.devices[1];
        assert_eq!((disk.is_async, disk.wakeup), (Some(false), Some(true)));
        assert_eq!(disk.driver.as_deref(), Some("ahci"));
        assert_eq!(disk.runtime.as_ref().unwrap().status, "suspended");
        assert_eq!(disk.path.as_deref(), Some("pci0000:00/0000:00:01.0"));
        assert_eq!(graph.links.len(), 1);
        let link = &graph.links[0];
        assert_eq!((link.supplier, link.consumer), (0, 2));
        assert!(link.runtime_pm && link.orders());
        assert_eq!(online_cpus(sys), Some(5));
        assert!(super::graph(&sys.join("nothing")).is_err());
    }
}
