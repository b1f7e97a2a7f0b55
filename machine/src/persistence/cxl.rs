//! What Linux knows of the CXL devices behind the window, from sysfs:
//!
//! ```text
//!  window ─► /sys/bus/cxl/devices/regionN/{resource,size,mode,interleave_ways,targetI}
//!              targetI ─► decoderE.D, a child of endpointE ─► uport ─► memM
//!                memM/{serial,security/state}
//!                /sys/bus/nd/devices/nmemK/cxl/{provider = pmemM, dirty_shutdown}
//! ```
//!
//! By physical address and not by the dax device, because a soft-reserved window's dax device has
//! no CXL parent. `dirty_shutdown` is there (Linux 6.16 on) only if the driver could set the
//! device's shutdown state to dirty, the device has the GPF capability, and its count can be read:
//! just what a sleep needs. Documentation/ABI/testing/sysfs-bus-cxl and sysfs-bus-nvdimm.

use dormouse_image::Persistence;
use dormouse_image::digest::xxh64;
use dormouse_system::Root;
use dormouse_system::kernel::{self, version_in};

use super::{Answer, Source};
use crate::system::module::Status;

const CXL: &str = "sys/bus/cxl/devices";
const NVDIMM: &str = "sys/bus/nd/devices";
/// The first kernel that shows the count of a CXL device.
const COUNTING_KERNEL: (u32, u32) = (6, 16);
/// More than the specification's 16 ways.
const MAX_WAYS: u64 = 64;

/// The devices themselves, asked through Linux.
pub struct CxlDevices;

/// One memory device, as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memdev {
    /// `mem0`.
    pub name: String,
    /// Serial number, where the device has one.
    pub serial: Option<u64>,
    /// `disabled`, `unlocked`, `locked`, `frozen`; empty where the kernel shows none.
    pub security: String,
    /// Whether it has an nvdimm, which arms it.
    pub has_nvdimm: bool,
    /// Count of failed flushes, where the kernel shows it.
    pub dirty_shutdowns: Option<u64>,
}

/// The regions that overlap the window, and the devices in the order of interleaving.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Begin and bytes of each region inside the window.
    pub covered: Vec<(u64, u64)>,
    /// Regions whose memory is not persistent as the device states.
    pub volatile_regions: Vec<String>,
    /// The devices behind the window.
    pub devices: Vec<Memdev>,
    /// Targets that could not be followed to a device.
    pub lost_targets: Vec<String>,
}

impl Source for CxlDevices {
    fn persistence(&self) -> Persistence {
        Persistence::DEVICE
    }

    fn ask(&self, root: &Root, status: &Status) -> Answer {
        let window = read_window(root, status.cxl_base, status.cxl_bytes);
        judge_devices(&window, status, &kernel::release(root))
    }
}

/// The serial number that firmware gives for these devices: its own for one, for several XXH64
/// (seed 0) over their numbers in the order of interleaving, little-endian.
pub fn combined_serial(serials: &[u64]) -> u64 {
    match serials {
        [only] => *only,
        several => {
            let bytes: Vec<u8> = several.iter().flat_map(|one| one.to_le_bytes()).collect();
            xxh64(&bytes)
        }
    }
}

/// The count that firmware gives for these devices: the sum, so that each failure changes it.
pub fn combined_count(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, one| sum.wrapping_add(*one))
}

/// Judges what was found; `release` is the kernel's.
pub fn judge_devices(window: &Window, status: &Status, release: &str) -> Answer {
    if window.covered.is_empty() {
        return Answer::CannotTell(vec![
            "Linux knows no CXL region in firmware's window".to_owned(),
        ]);
    }
    let mut bad = Vec::new();
    let mut unknown: Vec<String> = window
        .lost_targets
        .iter()
        .map(|target| format!("{target} belongs to no memory device"))
        .collect();
    for region in &window.volatile_regions {
        bad.push(format!("{region} is volatile memory of its device"));
    }
    let uncovered = uncovered_bytes(&window.covered, status.cxl_base, status.cxl_bytes);
    if uncovered > 0 {
        unknown.push(format!(
            "{uncovered} bytes of firmware's window lie in no CXL region"
        ));
    }
    for device in &window.devices {
        judge_device(device, release, &mut bad, &mut unknown);
    }
    if bad.is_empty() && unknown.is_empty() {
        compare_with_firmware(&window.devices, status, &mut bad);
    }
    match (bad.is_empty(), unknown.is_empty()) {
        (false, _) => Answer::Bad(bad),
        (true, false) => Answer::CannotTell(unknown),
        (true, true) => {
            let names: Vec<&str> = window.devices.iter().map(|one| one.name.as_str()).collect();
            Answer::Good(format!(
                "Global Persistent Flush of {} is armed and its failures are counted",
                names.join(", ")
            ))
        }
    }
}

fn judge_device(device: &Memdev, release: &str, bad: &mut Vec<String>, unknown: &mut Vec<String>) {
    let name = &device.name;
    // After a power loss the device is locked, and firmware has no passphrase.
    if !matches!(device.security.as_str(), "" | "disabled") {
        bad.push(format!(
            "{name} asks for a passphrase after a power loss (security {})",
            device.security
        ));
    }
    if device.serial.unwrap_or(0) == 0 {
        bad.push(format!("{name} has no serial number"));
    }
    if device.dirty_shutdowns.is_some() {
        return;
    }
    if !device.has_nvdimm {
        unknown.push(format!(
            "{name} has no nvdimm, whose driver arms Global Persistent Flush (modprobe cxl_pmem)"
        ));
    } else if version_in(release).is_none_or(|version| version < COUNTING_KERNEL) {
        unknown.push(format!(
            "Linux {release} cannot ask {name} for Global Persistent Flush and its count of dirty \
             shutdowns (6.16 and newer can)"
        ));
    } else {
        bad.push(format!(
            "{name} cannot arm Global Persistent Flush or does not count dirty shutdowns (dmesg | \
             grep GPF)"
        ));
    }
}

/// Firmware compares its own numbers before it restores: they must be those of these devices.
fn compare_with_firmware(devices: &[Memdev], status: &Status, bad: &mut Vec<String>) {
    let serials: Vec<u64> = devices.iter().filter_map(|one| one.serial).collect();
    let counts: Vec<u64> = devices
        .iter()
        .filter_map(|one| one.dirty_shutdowns)
        .collect();
    let (serial, count) = (combined_serial(&serials), combined_count(&counts));
    if serial != status.device_serial {
        bad.push(format!(
            "firmware knows the device as {:#x}, Linux as {serial:#x}: a swapped device would not \
             be noticed",
            status.device_serial
        ));
    }
    if count != status.dirty_shutdown_count {
        bad.push(format!(
            "firmware counts {} dirty shutdowns, Linux {count}: lost writes would not be noticed",
            status.dirty_shutdown_count
        ));
    }
}

fn uncovered_bytes(covered: &[(u64, u64)], base: u64, bytes: u64) -> u64 {
    let end = base.saturating_add(bytes);
    let mut parts = covered.to_vec();
    parts.sort_unstable();
    let mut at = base;
    let mut missing = 0;
    for (begin, bytes) in parts {
        missing += begin.min(end).saturating_sub(at);
        at = at.max(begin.saturating_add(bytes)).min(end);
    }
    missing + (end - at)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Follows the window to its devices.
fn read_window(root: &Root, base: u64, bytes: u64) -> Window {
    let mut window = Window::default();
    let end = base.saturating_add(bytes);
    for region in root.list(CXL) {
        let is_region = region.strip_prefix("region");
        if !is_region.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        let text = |name: &str| {
            root.read(&format!("{CXL}/{region}/{name}"))
                .unwrap_or_default()
        };
        let (Some(begin), Some(size)) = (number(&text("resource")), number(&text("size"))) else {
            continue;
        };
        if size == 0 || begin >= end || begin.saturating_add(size) <= base {
            continue;
        }
        window.covered.push((begin, size));
        if text("mode") == "ram" {
            window.volatile_regions.push(region.clone());
        }
        for way in 0..number(&text("interleave_ways")).unwrap_or(1).min(MAX_WAYS) {
            match memdev_of(root, &text(&format!("target{way}"))) {
                Some(name) if window.devices.iter().any(|one| one.name == name) => {}
                Some(name) => window.devices.push(read_memdev(root, name)),
                None => window.lost_targets.push(format!("{region}/target{way}")),
            }
        }
    }
    window
}

/// The memory device of an endpoint decoder, `decoder5.0`.
fn memdev_of(root: &Root, decoder: &str) -> Option<String> {
    let (port, _) = decoder.strip_prefix("decoder")?.split_once('.')?;
    root.link_name(&format!("{CXL}/endpoint{port}/uport"))
        .filter(|name| name.starts_with("mem"))
}

fn read_memdev(root: &Root, name: String) -> Memdev {
    let text = |attribute: &str| {
        root.read(&format!("{CXL}/{name}/{attribute}"))
            .unwrap_or_default()
    };
    // The nvdimm's provider is the bridge device pmemM of memM.
    let provider = format!("pmem{}", name.trim_start_matches("mem"));
    let nvdimm = root.list(NVDIMM).into_iter().find(|nvdimm| {
        root.read(&format!("{NVDIMM}/{nvdimm}/cxl/provider"))
            .is_ok_and(|found| found == provider)
    });
    let count = nvdimm.as_ref().and_then(|nvdimm| {
        root.read(&format!("{NVDIMM}/{nvdimm}/cxl/dirty_shutdown"))
            .ok()
    });
    Memdev {
        serial: number(&text("serial")),
        security: text("security/state"),
        has_nvdimm: nvdimm.is_some(),
        dirty_shutdowns: count.as_deref().and_then(number),
        name,
    }
}

#[cfg(test)]
mod tests;
