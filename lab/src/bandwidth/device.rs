//! The machine's memory device: nodes of memory beside DRAM, whose traffic the emulator's plugin
//! (`lab/device`) counts and slows, and a PCI device that has the counts in its memory.

use std::fs::File;
use std::path::Path;

use dormouse_guest::protocol::bandwidth_job::{LINE_BYTES, counted};
use serde::Serialize;

use crate::error::{Doing, LabError};

const MIB: u64 = 1 << 20;
const DRAM_MIB: u64 = 768;
/// Of each of the device's nodes, which are 1, 2 and so on.
const NODE_MIB: u64 = 256;
/// How many nodes it has: each is a monitoring group.
pub const NODES: usize = 2;

/// What the device can do. An emulated processor asks for a line in a microsecond or two at
/// best, so all is slower than hardware, by a factor of some hundred.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Model {
    /// Time that the device needs for a line, one after the other.
    pub service_ns: u64,
    /// Time until a read is answered, beside that.
    pub latency_ns: u64,
    /// Reads that a processor has under way.
    pub depth: u64,
    /// One line in this many is sampled.
    pub sample: u64,
    /// A processor that waits sleeps, so that others go on.
    pub sleeps: bool,
    /// Accesses of the kernel neither count nor wait.
    pub programs_only: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            service_ns: 2000,
            latency_ns: 2000,
            depth: 8,
            sample: 8,
            sleeps: false,
            programs_only: false,
        }
    }
}

impl Model {
    /// A device that one processor cannot saturate: with 8 reads under way for 1 ms each, it asks for
    /// four tenths of what the device carries.
    pub fn deep() -> Self {
        Self {
            service_ns: 50_000,
            latency_ns: 950_000,
            depth: 8,
            sample: 0,
            sleeps: true,
            programs_only: true,
        }
    }

    /// What the device carries at most, in bytes a second.
    pub fn capacity(&self) -> f64 {
        LINE_BYTES as f64 * 1e9 / self.service_ns as f64
    }
}

/// Size of the machine's memory, as the emulator has it.
pub fn memory() -> String {
    format!("{}M", DRAM_MIB + NODES as u64 * NODE_MIB)
}

/// The emulator's arguments; makes the file that the machine and the plugin share.
///
/// # Errors
/// The file cannot be made.
pub fn arguments(
    plugin: &Path,
    folder: &Path,
    cpus: u32,
    model: Model,
) -> Result<Vec<String>, LabError> {
    let path = folder.join("counters");
    File::create(&path)
        .and_then(|file| file.set_len(counted::BYTES))
        .doing(format!("create {}", path.display()))?;
    let counters = text(&path);
    let mut words: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    // In this order: the plugin's addresses depend on it.
    add(
        "-object",
        format!("memory-backend-ram,id=dram,size={DRAM_MIB}M"),
    );
    add(
        "-numa",
        format!("node,nodeid=0,memdev=dram,cpus=0-{}", cpus - 1),
    );
    let mut ranges = Vec::new();
    for node in 1..=NODES {
        let id = format!("node{node}");
        add(
            "-object",
            format!("memory-backend-ram,id={id},size={NODE_MIB}M"),
        );
        add("-numa", format!("node,nodeid={node},memdev={id}"));
        let from = (DRAM_MIB + (node as u64 - 1) * NODE_MIB) * MIB;
        let bytes = NODE_MIB * MIB;
        ranges.push(format!("{:#x}:{bytes:#x}:{from:#x}", plugin_address(from)));
    }
    add(
        "-object",
        format!(
            "memory-backend-file,id=counters,size={},share=on,mem-path={counters}",
            counted::BYTES
        ),
    );
    add("-device", "ivshmem-plain,memdev=counters,addr=0x10".into());
    let Model {
        service_ns,
        latency_ns,
        depth,
        sample,
        sleeps,
        programs_only,
    } = model;
    let (sleeps, programs_only) = (u8::from(sleeps), u8::from(programs_only));
    add(
        "-plugin",
        format!(
            "{},counters={counters},nodes={},service_ns={service_ns},latency_ns={latency_ns},\
             depth={depth},sample={sample},sleeps={sleeps},programs_only={programs_only}",
            text(plugin),
            ranges.join("+")
        ),
    );
    Ok(words)
}

/// In the emulator's option lists a comma is written twice.
fn text(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// How version 1 of the plugins' interface names an address of memory that a backend provides:
/// where the backend begins among all, and once more where it begins in the machine's memory (both
/// are the same here, because the backends are made in that order), and the offset in it.
fn plugin_address(from: u64) -> u64 {
    2 * from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_do_not_overlap_in_the_plugins_eyes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a,b");
        std::fs::create_dir(&folder).unwrap();
        let words = arguments(Path::new("p.so"), &folder, 2, Model::default()).unwrap();
        let all = words.join(" ");
        assert!(
            all.contains("nodes=0x60000000:0x10000000:0x30000000+0x80000000:0x10000000:0x40000000"),
            "{all}"
        );
        assert!(all.contains("a,,b/counters"), "{all}");
        let length = std::fs::metadata(folder.join("counters")).unwrap().len();
        assert_eq!(length, counted::BYTES);
    }
}
