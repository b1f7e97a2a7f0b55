//! What must be the same when the machine wakes: the kernel, firmware's memory map, the amount of
//! memory, the two devices.

use dormouse_image::check::Geometry;
use dormouse_image::digest::xxh64;
use dormouse_image::snapshot::{Facts, Machine};

use crate::error::SleepError;
use crate::node::DaxDevice;
use crate::snapshot::devices;
use dormouse_system::Root;

const FIRMWARE_MAP: &str = "sys/firmware/memmap";
const PAGE_BYTES: u64 = 4096;

/// One entry of firmware's map; `end` is the first byte behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    pub start: u64,
    pub end: u64,
    pub kind: String,
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// Firmware's map, ascending.
pub fn firmware_map(root: &Root) -> Vec<MapEntry> {
    let mut entries: Vec<MapEntry> = root
        .list(FIRMWARE_MAP)
        .into_iter()
        .filter_map(|name| {
            let read = |attribute: &str| root.read(&format!("{FIRMWARE_MAP}/{name}/{attribute}"));
            Some(MapEntry {
                start: hexadecimal(&read("start").ok()?)?,
                end: hexadecimal(&read("end").ok()?)?.checked_add(1)?,
                kind: read("type").ok()?,
            })
        })
        .collect();
    entries.sort_by_key(|entry| (entry.start, entry.end));
    entries
}

/// Whole pages of RAM, runs that touch joined.
pub fn ram(map: &[MapEntry]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for entry in map.iter().filter(|entry| entry.kind == "System RAM") {
        let start = entry.start.div_ceil(PAGE_BYTES) * PAGE_BYTES;
        let end = entry.end / PAGE_BYTES * PAGE_BYTES;
        if end <= start {
            continue;
        }
        match ranges.last_mut() {
            Some((base, bytes)) if *base + *bytes == start => *bytes += end - start,
            _ => ranges.push((start, end - start)),
        }
    }
    ranges
}

fn map_digest(map: &[MapEntry]) -> u64 {
    let line = |entry: &MapEntry| format!("{:x}-{:x} {}\n", entry.start, entry.end, entry.kind);
    xxh64(map.iter().map(line).collect::<String>().as_bytes())
}

/// Of firmware's map: another one is refused by the kernel, too.
pub fn firmware_map_digest(root: &Root) -> u64 {
    map_digest(&firmware_map(root))
}

/// Of the kernel that runs: release, version (which has the build's date), and its notes, among
/// them the build ID.
pub fn kernel_digest(root: &Root) -> u64 {
    let mut bytes = Vec::new();
    for path in [
        "proc/sys/kernel/osrelease",
        "proc/sys/kernel/version",
        "sys/kernel/notes",
    ] {
        bytes.extend(std::fs::read(root.path(path)).unwrap_or_default());
        bytes.push(0);
    }
    xxh64(&bytes)
}

/// Pages of memory by node, as the kernel counts them for its snapshot.
pub fn present_pages(root: &Root) -> Vec<(u32, u64)> {
    parse_present(&root.read("proc/zoneinfo").unwrap_or_default())
}

/// Sums the lines `present N` of each `Node N, zone …`.
pub fn parse_present(text: &str) -> Vec<(u32, u64)> {
    sum_by_node(text, "present")
}

/// Pages that the kernel keeps from its allocator: its image, tables made at boot. By node.
pub fn reserved_pages(root: &Root) -> Vec<(u32, u64)> {
    let text = root.read("proc/zoneinfo").unwrap_or_default();
    let managed = sum_by_node(&text, "managed");
    parse_present(&text)
        .into_iter()
        .map(|(node, present)| {
            let own = managed.iter().find(|(one, _)| *one == node);
            (
                node,
                present.saturating_sub(own.map_or(0, |(_, pages)| *pages)),
            )
        })
        .collect()
}

fn sum_by_node(text: &str, field: &str) -> Vec<(u32, u64)> {
    let mut nodes: Vec<(u32, u64)> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let number = rest
                .split(',')
                .next()
                .and_then(|text| text.trim().parse().ok());
            let Some(number) = number else { continue };
            if nodes.last().is_none_or(|(last, _)| *last != number) {
                nodes.push((number, 0));
            }
        }
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some(field)
            && let Some(pages) = words.next().and_then(|word| word.parse::<u64>().ok())
            && let Some((_, sum)) = nodes.last_mut()
        {
            *sum = sum.saturating_add(pages);
        }
    }
    nodes
}

/// What this machine is, for making or checking an image. `present`: what its kernel counts.
///
/// # Errors
/// Firmware's map cannot be read, or has more ranges than the format.
pub fn gather(
    root: &Root,
    head: &DaxDevice,
    node: &DaxDevice,
    present_pages: u64,
) -> Result<Facts, SleepError> {
    let map = firmware_map(root);
    let lacks = |found: String| SleepError::Lacks {
        what: "tell its memory map",
        path: root.path(FIRMWARE_MAP),
        found,
        next: "the kernel needs CONFIG_FIRMWARE_MEMMAP",
    };
    let ranges = ram(&map);
    if ranges.is_empty() {
        return Err(lacks("no RAM".to_owned()));
    }
    let geometry = Geometry::new(head.base, head.bytes, head.bytes, &ranges)
        .map_err(|_| lacks(format!("{} ranges of RAM", ranges.len())))?;
    let (serial, lost) = devices::identity(root, [head, node]);
    Ok(Facts::new(
        &geometry.with_device(serial, lost),
        Machine {
            kernel_digest: kernel_digest(root),
            firmware_map_digest: map_digest(&map),
            node_base: node.base,
            node_bytes: node.bytes,
            present_pages,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(start: u64, end: u64, kind: &str) -> MapEntry {
        MapEntry {
            start,
            end,
            kind: kind.to_owned(),
        }
    }

    #[test]
    fn ram_is_whole_pages_and_joined() {
        let map = [
            entry(0, 0x9_fc00, "System RAM"),
            entry(0xf_0000, 0x10_0000, "Reserved"),
            entry(0x10_0000, 0x20_0000, "System RAM"),
            entry(0x20_0000, 0x30_0000, "System RAM"),
            entry(0x30_0010, 0x30_0020, "System RAM"),
        ];
        assert_eq!(ram(&map), [(0, 0x9_f000), (0x10_0000, 0x20_0000)]);
        let mut other = map.to_vec();
        other[1].kind = "ACPI Tables".to_owned();
        assert_ne!(map_digest(&map), map_digest(&other));
    }

    #[test]
    fn memory_is_summed_over_the_zones_of_a_node() {
        let text = "Node 0, zone      DMA\n  pages free     3840\n        present  3998\n        \
                    managed  3840\nNode 0, zone    DMA32\n        present  258000\n        \
                    managed  250000\nNode 1, zone  Movable\n        present  131072\n";
        assert_eq!(parse_present(text), [(0, 261_998), (1, 131_072)]);
        assert_eq!(sum_by_node(text, "managed"), [(0, 253_840), (1, 0)]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "([ -~]|\n){0,200}") {
            let _ = (parse_present(&text), hexadecimal(&text));
        }
    }
}
