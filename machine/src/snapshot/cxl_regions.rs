//! `/etc/dormouse/cxl-regions.toml`: the CXL regions in which head and node lie. A power loss takes
//! the decoders' programming along, and Linux does not program them anew for persistent memory, so
//! without this the initramfs of the next boot finds no image. `dormouse setup-device` records the
//! regions, the initramfs holds a copy, and `dormouse wake` makes them again before it looks for the
//! head.
//!
//! ```text
//!  root0 ─▶ decoder0.0 (a window of physical addresses) ─▶ region0: uuid, ways, granularity, size
//!  endpoint2 (uport: mem0, serial) ─▶ decoder2.0 (addresses on the device) ─▶ its target
//! ```
//!
//! A region that came out at another place, physical or on a device, would show other contents: it is
//! taken back. The attributes are those of the kernel's `Documentation/ABI/testing/sysfs-bus-cxl`.

use std::fs;
use std::io;

use dormouse_system::Root;
use dormouse_system::file::{Durability, replace};
use serde::{Deserialize, Serialize};

use crate::node::DaxDevice;
use crate::snapshot::devices::set_cookie;

/// The record.
pub(crate) const FILE: &str = "etc/dormouse/cxl-regions.toml";
const CXL: &str = "sys/bus/cxl/devices";
const DRIVER: &str = "sys/bus/cxl/drivers/cxl_region";
const MEMORY_DRIVER: &str = "sys/bus/cxl/drivers/cxl_mem";
const FLUSH: &str = "sys/bus/cxl/flush";

/// A region as it must be again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Region {
    pub uuid: String,
    /// Physical address and size.
    #[serde(with = "hexadecimal")]
    pub base: u64,
    #[serde(with = "hexadecimal")]
    pub bytes: u64,
    /// Bytes on one device before the next.
    granularity: u64,
    /// In the order in which addresses go around.
    target: Vec<Target>,
}

/// A part of a device that a region consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Target {
    serial: String,
    /// Its PCI function, which tells devices of one serial number apart.
    host: String,
    /// Where the part begins on the device.
    #[serde(with = "hexadecimal")]
    dpa: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    region: Vec<Region>,
}

/// TOML's integers have a sign, and addresses are read in hexadecimal.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{value:#x}"))
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        super::number(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no number")))
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn attribute(root: &Root, device: &str, name: &str) -> Option<u64> {
    number(&root.read(&format!("{CXL}/{device}/{name}")).ok()?)
}

/// Names with this prefix and a number, by that number.
fn named(root: &Root, prefix: &str) -> Vec<String> {
    let order = |name: &String| name[prefix.len()..].parse::<f64>().ok();
    let all = root.list(CXL).into_iter();
    let mut names: Vec<String> = all
        .filter(|name| name.starts_with(prefix) && order(name).is_some())
        .collect();
    names.sort_by(|a, b| order(a).partial_cmp(&order(b)).expect("numbers"));
    names
}

/// The device before this one in its place in sysfs: the endpoint of a decoder.
fn parent(root: &Root, device: &str) -> Option<String> {
    let place = fs::read_link(root.path(&format!("{CXL}/{device}"))).ok()?;
    let parent = place.parent()?.file_name()?;
    Some(parent.to_string_lossy().into_owned())
}

/// Regions of persistent memory with the parts that they consist of.
fn existing(root: &Root) -> Vec<Region> {
    let names = named(root, "region").into_iter();
    names.filter_map(|name| region(root, &name)).collect()
}

fn region(root: &Root, name: &str) -> Option<Region> {
    let uuid = root.read(&format!("{CXL}/{name}/uuid")).ok()?;
    let ways = attribute(root, name, "interleave_ways")?;
    let target = |position: u64| {
        let decoder = root.read(&format!("{CXL}/{name}/target{position}")).ok()?;
        let endpoint = parent(root, &decoder)?;
        let memory = root.link_name(&format!("{CXL}/{endpoint}/uport"))?;
        Some(Target {
            serial: root.read(&format!("{CXL}/{memory}/serial")).ok()?,
            host: parent(root, &memory)?,
            dpa: attribute(root, &decoder, "dpa_resource")?,
        })
    };
    Some(Region {
        // Volatile regions have none.
        uuid: (!uuid.is_empty()).then_some(uuid)?,
        base: attribute(root, name, "resource")?,
        bytes: attribute(root, name, "size")?,
        granularity: attribute(root, name, "interleave_granularity")?,
        target: (0..ways).map(target).collect::<Option<_>>()?,
    })
}

/// CXL memory devices that the kernel's driver has: while there is one, the kernel offers neither S3 nor
/// hibernation.
pub fn bound_memory(root: &Root) -> Vec<String> {
    let mut names = root.list(MEMORY_DRIVER);
    names.retain(|name| name.starts_with("mem"));
    names.sort_unstable();
    names
}

/// A region that is not recorded: nobody makes it again after a power loss.
///
/// # Errors
/// The record cannot be read, in words.
pub(crate) fn unrecorded(root: &Root) -> Result<Option<String>, String> {
    let recorded = recorded(root)?;
    let is_recorded = |name: &String| {
        let uuid = root.read(&format!("{CXL}/{name}/uuid")).unwrap_or_default();
        recorded.iter().any(|region| region.uuid == uuid)
    };
    let mut names = named(root, "region").into_iter();
    Ok(names.find(|name| !is_recorded(name)))
}

/// Records the regions of these devices; says so where there is one.
///
/// # Errors
/// The record cannot be written, in words.
pub(crate) fn record(root: &Root, devices: &[&DaxDevice]) -> Result<String, String> {
    let holds = |region: &Region, one: &DaxDevice| {
        region.base <= one.base && one.base - region.base < region.bytes
    };
    let mut regions = existing(root);
    regions.retain(|region| devices.iter().any(|one| holds(region, one)));
    if regions.is_empty() {
        return forget(root);
    }
    let mut inside = devices
        .iter()
        .filter(|one| regions.iter().any(|region| holds(region, one)));
    // Linux makes it of the serial numbers, and ignores labels where it is 0.
    if let Some(one) = inside.find(|one| set_cookie(root, &one.name).as_deref() == Some("0x0")) {
        return Err(format!(
            "{} lies on a CXL device without a serial number: Linux would not find its namespace \
             again when power was lost",
            one.name
        ));
    }
    regions.sort_by_key(|region| region.base);
    let count = regions.len();
    let text = toml::to_string(&Record { region: regions }).map_err(|error| error.to_string())?;
    let text = format!(
        "# Written by `dormouse setup-device`; the initramfs holds a copy, so make it anew after \
         each change.\n{text}"
    );
    let path = root.path(FILE);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    replace(&path, text.as_bytes(), Durability::Disk).map_err(|error| error.to_string())?;
    let regions = if count == 1 { "region" } else { "regions" };
    Ok(format!(
        "{count} CXL {regions} in {}: the initramfs makes them again when power was lost.\n",
        path.display()
    ))
}

/// Takes the record back.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn forget(root: &Root) -> Result<String, String> {
    let path = root.path(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(String::new()),
    }
}

/// What is recorded; nothing where nothing is.
fn recorded(root: &Root) -> Result<Vec<Region>, String> {
    let path = root.path(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let record: Record =
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(record.region)
}

/// Makes the recorded regions that are not there; what could not be made, in words.
pub(crate) fn restore(root: &Root) -> Vec<String> {
    let regions = match recorded(root) {
        Ok(regions) => regions,
        Err(why) => return vec![why],
    };
    if regions.is_empty() {
        return Vec::new();
    }
    // Returns when the kernel has looked at what hangs below each port.
    let _ = root.write(FLUSH, "1");
    let there = existing(root);
    let missing = regions
        .iter()
        .filter(|region| there.iter().all(|one| one.uuid != region.uuid));
    missing
        .filter_map(|region| {
            let made = make(root, region);
            made.err()
                .map(|why| format!("CXL region {}: {why}", region.uuid))
        })
        .collect()
}

/// The decoder of the platform whose window holds the region.
fn window(root: &Root, region: &Region) -> Result<String, String> {
    let holds = |name: &&String| {
        let at = attribute(root, name, "start").zip(attribute(root, name, "size"));
        at.is_some_and(|(start, bytes)| start <= region.base && region.base - start < bytes)
            && root.exists(&format!("{CXL}/{name}/create_pmem_region"))
    };
    let decoders = named(root, "decoder");
    let found = decoders.iter().find(holds).cloned();
    found.ok_or_else(|| format!("no window of the platform holds {:#x}", region.base))
}

/// The memory device of a target.
fn memory(root: &Root, target: &Target) -> Result<String, String> {
    let is_it = |name: &String| {
        root.read(&format!("{CXL}/{name}/serial"))
            .is_ok_and(|serial| serial == target.serial)
    };
    let found: Vec<String> = named(root, "mem").into_iter().filter(is_it).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!("no device has the serial number {}", target.serial)),
        several => several
            .iter()
            .find(|name| parent(root, name).as_ref() == Some(&target.host))
            .cloned()
            .ok_or_else(|| {
                format!(
                    "several devices have the serial number {}, none is at {}",
                    target.serial, target.host
                )
            }),
    }
}

/// The first decoder of a memory device that is not in use: the kernel takes them in that order.
fn free_decoder(root: &Root, memory: &str) -> Result<String, String> {
    let endpoint = named(root, "endpoint")
        .into_iter()
        .find(|name| root.link_name(&format!("{CXL}/{name}/uport")).as_deref() == Some(memory));
    let endpoint = endpoint.ok_or_else(|| format!("{memory} is behind no port"))?;
    let free = named(root, "decoder").into_iter().find(|name| {
        parent(root, name).as_ref() == Some(&endpoint)
            && attribute(root, name, "dpa_size") == Some(0)
    });
    free.ok_or_else(|| format!("{memory} has no decoder left"))
}

/// Makes a region; what was begun is taken back where that fails.
fn make(root: &Root, wanted: &Region) -> Result<(), String> {
    let window = window(root, wanted)?;
    let memories: Vec<String> = wanted
        .target
        .iter()
        .map(|target| memory(root, target))
        .collect::<Result<_, _>>()?;
    let name = root
        .read(&format!("{CXL}/{window}/create_pmem_region"))
        .map_err(|error| format!("{window}: {error}"))?;
    write(root, &window, "create_pmem_region", &name)?;
    let mut decoders = Vec::new();
    let made = assemble(root, wanted, &name, &memories, &mut decoders)
        .and_then(|()| compare(root, wanted, &name))
        .and_then(|()| {
            let bind = root.write(&format!("{DRIVER}/bind"), &name);
            bind.map_err(|error| format!("{DRIVER}/bind: {error}"))
        });
    if made.is_err() {
        take_back(root, &window, &name, &decoders);
    }
    made
}

fn write(root: &Root, device: &str, name: &str, text: &str) -> Result<(), String> {
    root.write(&format!("{CXL}/{device}/{name}"), text)
        .map_err(|error| format!("{device}/{name} = {}: {error}", text.trim_end()))
}

fn assemble(
    root: &Root,
    wanted: &Region,
    name: &str,
    memories: &[String],
    decoders: &mut Vec<String>,
) -> Result<(), String> {
    let ways = memories.len();
    for (attribute, text) in [
        // The kernel takes it with the end of its line only.
        ("uuid", format!("{}\n", wanted.uuid)),
        ("interleave_ways", ways.to_string()),
        ("interleave_granularity", wanted.granularity.to_string()),
        ("size", format!("{:#x}", wanted.bytes)),
    ] {
        write(root, name, attribute, &text)?;
    }
    let share = format!("{:#x}", wanted.bytes / ways.max(1) as u64);
    for (position, memory) in memories.iter().enumerate() {
        let decoder = free_decoder(root, memory)?;
        write(root, &decoder, "mode", "pmem")?;
        write(root, &decoder, "dpa_size", &share)?;
        decoders.push(decoder.clone());
        write(root, name, &format!("target{position}"), &decoder)?;
    }
    write(root, name, "commit", "1")
}

/// Whether the kernel has put it where it was.
fn compare(root: &Root, wanted: &Region, name: &str) -> Result<(), String> {
    let made = region(root, name).ok_or_else(|| format!("{name} cannot be read"))?;
    if made.base != wanted.base {
        return Err(format!(
            "it came out at {:#x} and was at {:#x}: other regions are in the way",
            made.base, wanted.base
        ));
    }
    let pairs = made.target.iter().zip(&wanted.target);
    for (made, wanted) in pairs {
        if made.dpa != wanted.dpa {
            return Err(format!(
                "on the device {} it came out at {:#x} and was at {:#x}",
                wanted.serial, made.dpa, wanted.dpa
            ));
        }
    }
    Ok(())
}

fn take_back(root: &Root, window: &str, name: &str, decoders: &[String]) {
    // The order in which the kernel gives them up. What fails is in the way of nothing else.
    let _ = write(root, name, "commit", "0");
    let _ = write(root, window, "delete_region", name);
    for decoder in decoders.iter().rev() {
        let _ = write(root, decoder, "dpa_size", "0");
    }
}

#[cfg(test)]
#[path = "cxl_regions_tests.rs"]
mod tests;
