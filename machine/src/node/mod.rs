//! The CXL memory as Linux sees it: finds the dax device, gives it to the driver kmem, and puts
//! its memory blocks online as movable memory of their own NUMA node.
//!
//! ```text
//!  dax0.0 ── unbound or device_dax ──▶ kmem ──▶ memory32 … memory47 (offline) ──▶ online_movable
//! ```

pub(crate) mod offline;

use dormouse_system::Root;
use dormouse_system::memory::of_node;
use dormouse_system::topology::nodes_with;

use crate::error::SleepError;
use crate::options::NodeChoice;
use crate::system::module::Status;

const DEVICES: &str = "sys/bus/dax/devices";
const DRIVERS: &str = "sys/bus/dax/drivers";
const MEMORY: &str = "sys/devices/system/memory";
const NODES: &str = "sys/devices/system/node";
const AUTO_ONLINE: &str = "sys/devices/system/memory/auto_online_blocks";
/// A struct page of 64 bytes for each page of 4096.
const MEMMAP_SHARE: u64 = 64;

/// A dax device with memory of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaxDevice {
    /// `dax0.0`.
    pub name: String,
    /// NUMA node.
    pub node: u32,
    /// Physical address.
    pub base: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl DaxDevice {
    /// A device of 1 GiB, for tests of what is said about it.
    #[doc(hidden)]
    pub fn for_tests(name: &str, base: u64) -> DaxDevice {
        DaxDevice {
            name: name.to_owned(),
            node: 1,
            base,
            bytes: 1 << 30,
        }
    }
}

/// The memory that user pages go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CxlNode {
    /// NUMA node.
    pub node: u32,
    /// None: the node's blocks exist without a dax device.
    pub device: Option<DaxDevice>,
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The dax devices that have a node.
pub fn devices(root: &Root) -> Vec<DaxDevice> {
    root.list(DEVICES)
        .into_iter()
        .filter_map(|name| {
            let read = |attribute: &str| root.read(&format!("{DEVICES}/{name}/{attribute}")).ok();
            Some(DaxDevice {
                // -1: no node of its own.
                node: read("target_node")?.parse().ok()?,
                base: hexadecimal(&read("resource")?)?,
                bytes: read("size")?.parse().ok().filter(|bytes| *bytes > 0)?,
                name,
            })
        })
        .collect()
}

/// The device to use: by node where one is asked for, else the one inside the firmware's window.
///
/// # Errors
/// A sentence for [`SleepError::NoNode`].
pub fn choose(
    devices: &[DaxDevice],
    choice: NodeChoice,
    window: Option<(u64, u64)>,
) -> Result<Option<DaxDevice>, String> {
    let inside = |device: &DaxDevice| {
        window.is_none_or(|(base, bytes)| {
            device.base >= base
                && device.base - base < bytes
                && bytes - (device.base - base) >= device.bytes
        })
    };
    let candidates: Vec<&DaxDevice> = devices
        .iter()
        .filter(|device| match choice {
            NodeChoice::Auto => inside(device),
            NodeChoice::Node(node) => device.node == node && inside(device),
        })
        .collect();
    match (candidates.as_slice(), choice) {
        ([device], _) => Ok(Some((*device).clone())),
        ([], NodeChoice::Node(_)) => Ok(None),
        ([], NodeChoice::Auto) if devices.is_empty() => Err(
            "there is no dax device; load dax_hmem (or cxl), and check that firmware marks the CXL \
             memory as special-purpose (soft reserved)"
                .to_owned(),
        ),
        ([], NodeChoice::Auto) => Err(format!(
            "no dax device lies in firmware's CXL window ({})",
            devices.iter().map(|d| format!("{} at {:#x}", d.name, d.base)).collect::<Vec<_>>().join(", ")
        )),
        (several, _) => Err(format!(
            "there are several dax devices ({}): choose one with --node",
            several.iter().map(|d| format!("{} node {}", d.name, d.node)).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// Finds the CXL node.
///
/// # Errors
/// [`SleepError::NoNode`].
pub fn find(
    root: &Root,
    choice: NodeChoice,
    status: Option<&Status>,
) -> Result<CxlNode, SleepError> {
    let window = status
        .filter(|status| status.cxl_bytes > 0)
        .map(|status| (status.cxl_base, status.cxl_bytes));
    let device =
        choose(&devices(root), choice, window).map_err(|detail| SleepError::NoNode { detail })?;
    match (device, choice) {
        (Some(device), _) => Ok(CxlNode {
            node: device.node,
            device: Some(device),
        }),
        (None, NodeChoice::Node(node)) if root.exists(&format!("{NODES}/node{node}")) => {
            if nodes_with(root, "has_cpu").contains(&node) {
                let detail = format!("node {node} has CPUs: it is DRAM, not CXL memory");
                return Err(SleepError::NoNode { detail });
            }
            Ok(CxlNode { node, device: None })
        }
        (None, choice) => Err(SleepError::NoNode {
            detail: format!("{choice:?} does not exist"),
        }),
    }
}

/// The nodes that pages come from and go back to: all with memory but this one.
pub fn dram_nodes(root: &Root, cxl_node: u32) -> Vec<u32> {
    nodes_with(root, "has_memory")
        .into_iter()
        .filter(|node| *node != cxl_node)
        .collect()
}

/// Makes the kernel fold its per-CPU counters, so that those of the nodes are exact.
pub fn refresh_counters(root: &Root) {
    let _ = root.write("proc/sys/vm/stat_refresh", "1");
}

/// Pages that processes have on a node: anonymous and mapped from files, each counted once.
pub fn user_bytes(root: &Root, node: u32) -> u64 {
    let info = of_node(root, node);
    let value = |name: &str| info.get(name).copied().unwrap_or(0);
    value("AnonPages") + value("Mapped")
}

/// Whether a node has so little free memory that one more page would not be given out: the
/// allocator keeps the last ones, below 1 %, to itself.
pub fn is_full(root: &Root, node: u32) -> bool {
    let info = of_node(root, node);
    match (info.get("MemTotal"), info.get("MemFree")) {
        (Some(total), Some(free)) => *free <= *total / 100,
        // It cannot be seen: taken as the allocator said.
        _ => true,
    }
}

/// The size of a memory block.
pub fn block_bytes(root: &Root) -> u64 {
    let text = root
        .read(&format!("{MEMORY}/block_size_bytes"))
        .unwrap_or_default();
    hexadecimal(&text)
        .filter(|bytes| bytes.is_power_of_two())
        .unwrap_or(128 << 20)
}

/// The numbers of the blocks that lie wholly inside a range.
pub fn blocks_inside(base: u64, bytes: u64, block_bytes: u64) -> std::ops::Range<u64> {
    let first = base.div_ceil(block_bytes);
    let end = base.saturating_add(bytes) / block_bytes;
    first..end.max(first)
}

/// The existing blocks (`memory32`) of the CXL node, ascending.
pub fn blocks(root: &Root, cxl: &CxlNode) -> Vec<String> {
    let mut numbers: Vec<u64> = match &cxl.device {
        Some(device) => blocks_inside(device.base, device.bytes, block_bytes(root)).collect(),
        None => root
            .list(&format!("{NODES}/node{}", cxl.node))
            .iter()
            .filter_map(|name| name.strip_prefix("memory")?.parse().ok())
            .collect(),
    };
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(|number| format!("memory{number}"))
        .filter(|name| root.exists(&format!("{MEMORY}/{name}/state")))
        .collect()
}

/// Bytes that user pages can get on this node when all of it is online: its whole blocks without
/// their own struct pages, less what is in use already.
pub fn capacity_bytes(root: &Root, cxl: &CxlNode) -> u64 {
    let block_bytes = block_bytes(root);
    let count = match &cxl.device {
        Some(device) => {
            let range = blocks_inside(device.base, device.bytes, block_bytes);
            range.end - range.start
        }
        None => blocks(root, cxl).len() as u64,
    };
    let whole = count * (block_bytes - block_bytes / MEMMAP_SHARE);
    let info = of_node(root, cxl.node);
    let value = |name: &str| info.get(name).copied().unwrap_or(0);
    whole.saturating_sub(value("MemTotal").saturating_sub(value("MemFree")))
}

/// `online`, `offline`, …; empty where there is no such block.
pub fn block_state(root: &Root, block: &str) -> String {
    root.read(&format!("{MEMORY}/{block}/state"))
        .unwrap_or_default()
}

/// Whether a memory block is online.
pub fn is_online(root: &Root, block: &str) -> bool {
    block_state(root, block).starts_with("online")
}

/// The path of a block's state, relative to the root.
pub fn block_path(block: &str) -> String {
    format!("{MEMORY}/{block}/state")
}

/// Where the node's struct pages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memmap {
    /// On the node itself, which spares DRAM and what is saved.
    OnNode,
    /// In DRAM: what the allocator knows of the node must go back with the rest of the kernel to
    /// the moment of a snapshot, which the node's own memory does not.
    InDram,
}

/// Puts everything of the node online as movable memory.
///
/// # Errors
/// The first step that failed; the caller takes the node offline again.
pub fn bring_online(root: &Root, cxl: &CxlNode, memmap: Memmap) -> Result<(), SleepError> {
    let policy = root.read(AUTO_ONLINE).unwrap_or_default();
    if policy.is_empty() || policy == "offline" {
        return bind_and_online(root, cxl, memmap);
    }
    // Else memory that is added goes online at once, and for every kind of allocation.
    root.write(AUTO_ONLINE, "offline")
        .map_err(SleepError::write(
            "keep new memory offline",
            root.path(AUTO_ONLINE),
            "boot with memhp_default_state=offline",
        ))?;
    let result = bind_and_online(root, cxl, memmap);
    let _ = root.write(AUTO_ONLINE, &policy);
    result
}

fn bind_and_online(root: &Root, cxl: &CxlNode, memmap: Memmap) -> Result<(), SleepError> {
    if let Some(device) = &cxl.device {
        bind_kmem(root, cxl, device, memmap)?;
    }
    let blocks = blocks(root, cxl);
    if blocks.is_empty() {
        let detail = format!(
            "node {} has no whole memory block of {} bytes",
            cxl.node,
            block_bytes(root)
        );
        return Err(SleepError::NoNode { detail });
    }
    blocks
        .iter()
        .try_for_each(|block| online_movable(root, cxl.node, block))
}

fn driver(root: &Root, device: &str) -> Option<String> {
    root.link_name(&format!("{DEVICES}/{device}/driver"))
}

fn bind_kmem(
    root: &Root,
    cxl: &CxlNode,
    device: &DaxDevice,
    wanted: Memmap,
) -> Result<(), SleepError> {
    let name = &device.name;
    let memmap = format!("{DEVICES}/{name}/memmap_on_memory");
    let value = if wanted == Memmap::OnNode { "1" } else { "0" };
    let memmap_is_right = root.read(&memmap).is_ok_and(|found| found == value);
    match driver(root, name).as_deref() {
        Some("kmem") => {
            let idle = blocks(root, cxl)
                .iter()
                .all(|block| !is_online(root, block));
            if memmap_is_right || !root.exists(&memmap) {
                return Ok(());
            }
            if !idle && wanted == Memmap::InDram {
                let detail = format!(
                    "{name} is online with its struct pages on itself, which a snapshot cannot \
                     have; take node {} offline first (`dormouse migrate-back`)",
                    cxl.node
                );
                return Err(SleepError::NoNode { detail });
            }
            // Bound at boot without its struct pages on itself: 1/64 of the device lies in DRAM and
            // would be saved with every sleep. While nothing is online that can be mended.
            if !idle {
                return Ok(());
            }
            write_driver(root, "kmem", "unbind", name)?;
        }
        Some(other) => write_driver(root, other, "unbind", name)?,
        None => {}
    }
    // Refused where the kernel cannot do it; then they lie in DRAM, which is only slower.
    let _ = root.write(&memmap, value);
    if !root.exists(&format!("{DRIVERS}/kmem")) {
        return Err(SleepError::Lacks {
            what: "use CXL memory as a node",
            path: root.path(&format!("{DRIVERS}/kmem")),
            found: "no driver kmem".to_owned(),
            next: "run `modprobe kmem`",
        });
    }
    // A new id binds by itself, and is refused when it is known; an explicit bind settles it.
    let _ = root.write(&format!("{DRIVERS}/kmem/new_id"), name);
    if driver(root, name).as_deref() != Some("kmem") {
        write_driver(root, "kmem", "bind", name)?;
    }
    Ok(())
}

fn write_driver(root: &Root, driver: &str, action: &str, device: &str) -> Result<(), SleepError> {
    let path = format!("{DRIVERS}/{driver}/{action}");
    root.write(&path, device).map_err(SleepError::write(
        "give the CXL memory to the driver kmem",
        root.path(&path),
        "see `dmesg`, and which program holds the device: fuser /dev/dax*",
    ))
}

fn online_movable(root: &Root, node: u32, block: &str) -> Result<(), SleepError> {
    let path = block_path(block);
    if is_online(root, block) {
        let zones = root
            .read(&format!("{MEMORY}/{block}/valid_zones"))
            .unwrap_or_default();
        if zones
            .split_ascii_whitespace()
            .next()
            .is_none_or(|zone| zone == "Movable")
        {
            return Ok(());
        }
        // Somebody put it online for the kernel's own use, too.
        root.write(&path, "offline")
            .map_err(|error| SleepError::NotMovable {
                block: block.to_owned(),
                node,
                detail: format!("it is online in zone {zones} and does not go offline: {error}"),
            })?;
    }
    root.write(&path, "online_movable")
        .map_err(|error| SleepError::NotMovable {
            block: block.to_owned(),
            node,
            detail: error.to_string(),
        })
}

#[cfg(test)]
mod tests;
