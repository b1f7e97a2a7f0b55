//! The NUMA node of a physical address, from the memory blocks that sysfs lists for each node.
//!
//! ```text
//!  /sys/devices/system/memory/block_size_bytes     8000000    (hexadecimal)
//!  /sys/devices/system/node/node1/memory37         block 37 is the node's
//! ```
//!
//! A block may be shared by two nodes, for example at the end of a node's memory; it identifies
//! neither.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root of memory and nodes in sysfs.
pub const SYSTEM: &str = "/sys/devices/system";

/// The node of each block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    block_bytes: u64,
    /// `None`: shared.
    nodes: HashMap<u64, Option<u32>>,
}

impl Blocks {
    /// The present blocks; memory may be added and removed later.
    ///
    /// # Errors
    /// The kernel was built without memory hotplug, or the blocks cannot be read.
    pub fn read(system: &Path) -> io::Result<Self> {
        let size = fs::read_to_string(system.join("memory/block_size_bytes"))?;
        let block_bytes = u64::from_str_radix(size.trim().trim_start_matches("0x"), 16);
        let block_bytes = block_bytes.ok().filter(|bytes| *bytes > 0);
        let block_bytes =
            block_bytes.ok_or_else(|| io::Error::other("block_size_bytes is no number"))?;
        let mut nodes = HashMap::new();
        for (node, folder) in numbered(&system.join("node"), "node")? {
            for (block, _) in numbered(&folder, "memory")? {
                let owner = Some(node as u32);
                let known = nodes.entry(block).or_insert(owner);
                if *known != owner {
                    *known = None;
                }
            }
        }
        Ok(Self { block_bytes, nodes })
    }

    /// The node of a physical address.
    pub fn node_of(&self, address: u64) -> Option<u32> {
        let block = address.checked_div(self.block_bytes)?;
        self.nodes.get(&block).copied().flatten()
    }
}

/// Entries of a folder whose names are a word and a number.
fn numbered(folder: &Path, word: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_prefix(word)?;
        Some((digits.parse().ok()?, entry.path()))
    };
    Ok(fs::read_dir(folder)?.flatten().filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_node_that_has_its_block() {
        let root = tempfile::tempdir().unwrap();
        let folders = [
            "memory",
            "node/node0/memory0",
            "node/node0/memory1",
            "node/node1/memory1",
            "node/node1/memory9",
            "node/node1/memory_failure",
            "node/has_cpu",
        ];
        for folder in folders {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        assert!(Blocks::read(root.path()).is_err(), "no size");
        fs::write(root.path().join("memory/block_size_bytes"), "8000000\n").unwrap();
        let blocks = Blocks::read(root.path()).unwrap();
        let block = 0x800_0000u64;
        assert_eq!(blocks.node_of(0x1000), Some(0));
        assert_eq!(blocks.node_of(9 * block + 1), Some(1));
        assert_eq!(blocks.node_of(10 * block - 1), Some(1));
        assert_eq!(blocks.node_of(block), None, "two nodes have it");
        assert_eq!(blocks.node_of(5 * block), None);
        assert_eq!(Blocks::default().node_of(7), None);
    }

    #[test]
    fn this_machines_memory_is_on_its_nodes() {
        let Ok(blocks) = Blocks::read(Path::new(SYSTEM)) else {
            eprintln!("left out: this kernel shows no memory blocks");
            return;
        };
        assert!(!blocks.nodes.is_empty());
    }
}
