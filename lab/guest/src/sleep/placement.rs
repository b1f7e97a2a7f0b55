//! Where user pages lie: each process's pages by NUMA node, and each node's own account.

use std::collections::BTreeMap;
use std::fs;

use dormouse_guest::protocol::{Placement, ProcessPlacement};

/// Looks at every process that has user memory, and at every node.
pub fn read() -> Placement {
    let mut processes: Vec<ProcessPlacement> = numbered("/proc", "")
        .into_iter()
        .filter_map(|(pid, path)| {
            let maps = fs::read_to_string(format!("{path}/numa_maps")).ok()?;
            let node_bytes = parse_numa_maps(&maps);
            if node_bytes.is_empty() {
                return None; // a kernel thread, or it has just ended
            }
            let name = fs::read_to_string(format!("{path}/comm"))
                .ok()?
                .trim()
                .to_owned();
            Some(ProcessPlacement {
                pid,
                name,
                node_bytes,
            })
        })
        .collect();
    processes.sort_by_key(|process| process.pid);
    let nodes = numbered("/sys/devices/system/node", "node")
        .into_iter()
        .filter_map(|(node, path)| {
            let text = fs::read_to_string(format!("{path}/meminfo")).ok()?;
            Some((node, parse_meminfo(&text)))
        })
        .collect();
    Placement { processes, nodes }
}

/// Entries named `prefix` + number.
fn numbered(directory: &str, prefix: &str) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(prefix)?.parse().ok()?;
            Some((number, format!("{directory}/{name}")))
        })
        .collect()
}

/// Bytes by node. A line reads `7f… default anon=9 dirty=9 N0=5 N1=4 kernelpagesize_kB=4`.
fn parse_numa_maps(text: &str) -> BTreeMap<u32, u64> {
    let mut node_bytes = BTreeMap::new();
    for line in text.lines() {
        let mut pages = Vec::new();
        let mut page_bytes = 4096;
        for (key, value) in line
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
        {
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            if key == "kernelpagesize_kB" {
                page_bytes = value * 1024;
            } else if let Some(Ok(node)) = key.strip_prefix('N').map(str::parse::<u32>) {
                pages.push((node, value));
            }
        }
        for (node, count) in pages {
            *node_bytes.entry(node).or_insert(0) += count * page_bytes;
        }
    }
    node_bytes
}

/// Bytes by field. A line reads `Node 1 MemTotal:  2097152 kB`.
fn parse_meminfo(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(2);
            let name = words.next()?.trim_end_matches(':').to_owned();
            let value: u64 = words.next()?.parse().ok()?;
            let unit = if words.next() == Some("kB") { 1024 } else { 1 };
            Some((name, value * unit))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_count_with_their_size() {
        let maps = "7f0000000000 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=2048\n\
                    7f1000000000 default file=/bin/x mapped=4 N0=4 kernelpagesize_kB=4\n\
                    7f2000000000 default\n";
        let bytes = parse_numa_maps(maps);
        assert_eq!(bytes[&0], (2 << 20) + 16384);
        assert_eq!(bytes[&1], 4 << 20);
    }

    #[test]
    fn a_nodes_account_is_read_in_bytes() {
        let fields = parse_meminfo("Node 1 MemTotal:   8 kB\nNode 1 HugePages_Total:  3\n");
        assert_eq!(fields["MemTotal"], 8192);
        assert_eq!(fields["HugePages_Total"], 3);
    }
}
