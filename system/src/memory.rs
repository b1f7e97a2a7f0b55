//! `meminfo` of the machine and of a NUMA node.

use std::collections::BTreeMap;

use crate::Root;

/// Values by name (`MemTotal`). Those in kB are given in bytes; counts such as `HugePages_Total`
/// stay as they are.
pub type Meminfo = BTreeMap<String, u64>;

/// `/proc/meminfo`; empty if it cannot be read.
pub fn read(root: &Root) -> Meminfo {
    parse(&root.read("proc/meminfo").unwrap_or_default())
}

/// `meminfo` of a NUMA node; empty if there is no such node.
pub fn of_node(root: &Root, node: u32) -> Meminfo {
    let path = format!("sys/devices/system/node/node{node}/meminfo");
    parse(&root.read(&path).unwrap_or_default())
}

/// Parses `MemTotal:  12 kB` and `Node 1 MemTotal:  12 kB`; skips other lines.
pub fn parse(text: &str) -> Meminfo {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let name = name.split_ascii_whitespace().last()?;
            let mut words = value.split_ascii_whitespace();
            let number: u64 = words.next()?.parse().ok()?;
            let scale = if words.next() == Some("kB") { 1024 } else { 1 };
            Some((name.to_owned(), number.saturating_mul(scale)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_in_bytes_and_counts_stay_counts() {
        let machine = parse("MemTotal:  4000 kB\nHugePages_Total:     3\n");
        assert_eq!(machine["MemTotal"], 4000 << 10);
        let node = parse("Node 1 AnonPages:     8 kB\nNode 1 HugePages_Total:     3\n");
        assert_eq!((node["AnonPages"], node["HugePages_Total"]), (8 << 10, 3));
        assert_eq!(node.get("MemTotal"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(read(&Root::host())["MemTotal"] > 0);
        assert!(of_node(&Root::host(), 4711).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "([ -~]|\n){0,200}") {
            let _ = parse(&text);
        }
    }
}
