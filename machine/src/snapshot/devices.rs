//! The two dax devices: which is the head, which is the node, what identifies them, and whether they
//! keep their contents.
//!
//! ```text
//!  /sys/bus/dax/devices/dax0.0 ─► …/ndbus0/region0/dax0.1/dax0.0
//!                                          │        └ uuid of the namespace
//!                                          ├ persistence_domain
//!                                          └ mapping0 = nmem0,… ─► nmem0/nfit/{id,serial,flags,…}
//! ```

use std::fs;
use std::path::Path;

use dormouse_image::ImageKind;
use dormouse_image::check::Header;
use dormouse_image::digest::xxh64;
use dormouse_image::head::Head;

use crate::bytes::human;
use crate::error::SleepError;
use crate::node::{self, DaxDevice};
use crate::persistence::Answer;
use dormouse_system::Root;

const DAX: &str = "sys/bus/dax/devices";
const ND: &str = "sys/bus/nd/devices";

/// All dax devices that have a node.
pub fn all(root: &Root) -> Vec<DaxDevice> {
    node::devices(root)
}

/// For messages.
pub fn describe(devices: &[DaxDevice]) -> String {
    if devices.is_empty() {
        return "there is no dax device".to_owned();
    }
    let each = |one: &DaxDevice| {
        format!(
            "{} of node {} at {:#x} ({})",
            one.name,
            one.node,
            one.base,
            human(one.bytes)
        )
    };
    devices.iter().map(each).collect::<Vec<_>>().join(", ")
}

fn character_device(name: &str) -> String {
    format!("dev/{name}")
}

/// Maps a device as a head.
///
/// # Errors
/// It is not bound to device_dax, or cannot be mapped.
pub fn open_head(root: &Root, device: &DaxDevice, writable: bool) -> Result<Head, SleepError> {
    let path = root.path(&character_device(&device.name));
    Head::open(&path, device.bytes, writable).map_err(|error| SleepError::Head {
        path,
        detail: error.to_string(),
    })
}

/// The device that begins with a header of ours, and that header.
pub fn find_head(root: &Root, devices: &[DaxDevice]) -> Option<(DaxDevice, Box<Header>)> {
    devices.iter().find_map(|device| {
        let header = open_head(root, device, false).ok()?.header().ok()?;
        let is_ours = header.kind == ImageKind::SNAPSHOT.0 && header.cxl_base == device.base;
        is_ours.then(|| (device.clone(), header))
    })
}

/// Waits until the kernel has looked at all persistent memory.
pub fn settle(root: &Root) {
    for bus in root.list(ND) {
        if bus.starts_with("ndbus") {
            // Reading it waits.
            let _ = root.read(&format!("{ND}/{bus}/wait_probe"));
        }
    }
}

/// Where the kernel knows of persistent memory, as base and bytes: regions, which are there also where
/// nothing has made a dax device of them yet, and dax devices, which other memory has without a region.
pub fn seen(root: &Root) -> Vec<(u64, u64)> {
    let number = |path: String| {
        let text = root.read(&path).ok()?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let region = |name: &String| {
        let base = number(format!("{ND}/{name}/resource"))?;
        Some((base, number(format!("{ND}/{name}/size"))?))
    };
    let names = root.list(ND);
    let regions = names.iter().filter(|name| name.starts_with("region"));
    let devices = all(root).into_iter().map(|one| (one.base, one.bytes));
    let mut seen: Vec<(u64, u64)> = regions.filter_map(region).chain(devices).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

/// What ties the labels of a device's namespace to the region that it is in.
pub(super) fn set_cookie(root: &Root, device: &str) -> Option<String> {
    let region = component(root, device, "region")?;
    root.read(&format!("{ND}/{region}/set_cookie")).ok()
}

/// A component of the device's place in sysfs with this prefix and a number: `region0`.
fn component(root: &Root, device: &str, prefix: &str) -> Option<String> {
    let link = fs::read_link(root.path(&format!("{DAX}/{device}"))).ok()?;
    component_of(&link, prefix)
}

fn component_of(link: &Path, prefix: &str) -> Option<String> {
    link.iter().find_map(|part| {
        let part = part.to_str()?;
        let rest = part.strip_prefix(prefix)?;
        let is_numbered = rest.starts_with(|c: char| c.is_ascii_digit())
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_numbered.then(|| part.to_owned())
    })
}

/// The memory modules behind a region: `nmem0`.
fn modules(root: &Root, region: &str) -> Vec<String> {
    let count = root
        .read(&format!("{ND}/{region}/mappings"))
        .ok()
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(0);
    (0..count.min(64))
        .filter_map(|number| {
            let mapping = root.read(&format!("{ND}/{region}/mapping{number}")).ok()?;
            mapping.split(',').next().map(str::to_owned)
        })
        .collect()
}

/// What identifies these devices: their modules' and namespaces' identities, and how often the
/// modules lost writes.
pub fn identity(root: &Root, devices: [&DaxDevice; 2]) -> (u64, u64) {
    let mut text = String::new();
    let mut lost = 0u64;
    for device in devices {
        let namespace = component(root, &device.name, "dax");
        let region = component(root, &device.name, "region");
        let uuid = namespace.and_then(|name| root.read(&format!("{ND}/{name}/uuid")).ok());
        text += &format!("{};", uuid.unwrap_or_default());
        for module in region.map(|one| modules(root, &one)).unwrap_or_default() {
            for attribute in ["nfit/id", "nfit/serial", "cxl/id"] {
                let value = root.read(&format!("{ND}/{module}/{attribute}"));
                text += &format!("{},", value.unwrap_or_default());
            }
            for attribute in ["nfit/dirty_shutdown", "cxl/dirty_shutdown"] {
                let count = root.read(&format!("{ND}/{module}/{attribute}"));
                let count = count.ok().and_then(|text| text.parse::<u64>().ok());
                lost = lost.wrapping_add(count.unwrap_or(0));
            }
        }
    }
    (xxh64(text.as_bytes()), lost)
}

/// States of a module in which it may lose what was written.
const BAD_FLAGS: [&str; 5] = [
    "save_fail",
    "restore_fail",
    "flush_fail",
    "not_armed",
    "map_fail",
];

/// Whether the devices keep their contents, as the platform states it through ACPI.
pub fn persistence(root: &Root, devices: [&DaxDevice; 2]) -> Answer {
    let mut bad = Vec::new();
    let mut unknown = Vec::new();
    let mut domains = Vec::new();
    for device in devices {
        let Some(region) = component(root, &device.name, "region") else {
            unknown.push(format!(
                "{} is no persistent memory that Linux knows as such",
                device.name
            ));
            continue;
        };
        let domain = root
            .read(&format!("{ND}/{region}/persistence_domain"))
            .unwrap_or_default();
        match domain.as_str() {
            "cpu_cache" | "memory_controller" => domains.push(format!("{region}: {domain}")),
            _ => unknown.push(format!(
                "the platform does not state what of {region} is flushed when power goes"
            )),
        }
        for module in modules(root, &region) {
            let flags = root
                .read(&format!("{ND}/{module}/nfit/flags"))
                .unwrap_or_default();
            let found: Vec<&str> = flags
                .split_ascii_whitespace()
                .filter(|flag| BAD_FLAGS.contains(flag))
                .collect();
            if !found.is_empty() {
                bad.push(format!("{module} reports {}", found.join(" ")));
            }
        }
    }
    match (bad.is_empty(), unknown.is_empty()) {
        (false, _) => Answer::Bad(bad),
        (true, false) => Answer::CannotTell(unknown),
        (true, true) => {
            domains.dedup();
            Answer::Good(format!("persistence domain of {}", domains.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn device(name: &str) -> DaxDevice {
        DaxDevice::for_tests(name, 0)
    }

    /// dax0.0 of region0 and nmem0, dax1.0 of region1 and nmem1.
    fn machine(domain: &str, flags: &str) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for number in [0, 1] {
            write(format!("{ND}/region{number}/persistence_domain"), domain);
            write(format!("{ND}/region{number}/mappings"), "1\n");
            write(
                format!("{ND}/region{number}/mapping0"),
                &format!("nmem{number},0,1073741824,0\n"),
            );
            write(format!("{ND}/nmem{number}/nfit/flags"), flags);
            write(format!("{ND}/nmem{number}/nfit/serial"), "0x123456\n");
            write(format!("{ND}/dax{number}.1/uuid"), "d0d0\n");
            fs::create_dir_all(directory.path().join(DAX)).unwrap();
            symlink(
                format!("../../../devices/ndbus0/region{number}/dax{number}.1/dax{number}.0"),
                directory.path().join(format!("{DAX}/dax{number}.0")),
            )
            .unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn another_module_or_namespace_is_another_device() {
        let (directory, root) = machine("memory_controller", "");
        let devices = [device("dax0.0"), device("dax1.0")];
        let identity = |root: &Root| super::identity(root, [&devices[0], &devices[1]]);
        let before = identity(&root);
        assert_eq!(before, identity(&root));
        for (path, text) in [
            (format!("{ND}/nmem1/nfit/serial"), "0x123457"),
            (format!("{ND}/dax0.1/uuid"), "d0d1"),
        ] {
            let path = directory.path().join(path);
            let old = fs::read(&path).unwrap();
            fs::write(&path, text).unwrap();
            assert_ne!(before.0, identity(&root).0);
            fs::write(&path, old).unwrap();
        }
        let count = directory
            .path()
            .join(format!("{ND}/nmem0/nfit/dirty_shutdown"));
        fs::write(count, "3\n").unwrap();
        assert_eq!(identity(&root), (before.0, 3));
    }

    #[test]
    fn only_a_stated_domain_without_a_failed_module_keeps_its_contents() {
        let answer = |domain: &str, flags: &str| {
            let (_directory, root) = machine(domain, flags);
            persistence(&root, [&device("dax0.0"), &device("dax1.0")])
        };
        assert!(matches!(answer("cpu_cache", ""), Answer::Good(_)));
        assert!(matches!(
            answer("memory_controller", "smart_notify"),
            Answer::Good(_)
        ));
        assert!(matches!(answer("", ""), Answer::CannotTell(_)));
        assert!(matches!(
            answer("memory_controller", "not_armed"),
            Answer::Bad(_)
        ));
    }

    #[test]
    fn a_device_without_a_region_is_not_known_to_keep_anything() {
        let (_directory, root) = machine("cpu_cache", "");
        let answer = persistence(&root, [&device("dax0.0"), &device("dax7.0")]);
        assert!(matches!(answer, Answer::CannotTell(_)));
    }

    #[test]
    fn a_component_of_a_place_is_a_name_with_a_number() {
        let link = Path::new("../../devices/region/ndbus0/region12/dax12.1/dax12.0");
        assert_eq!(component_of(link, "region").as_deref(), Some("region12"));
        assert_eq!(component_of(link, "dax").as_deref(), Some("dax12.1"));
        assert_eq!(component_of(link, "nmem"), None);
    }
}
