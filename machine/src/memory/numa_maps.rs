//! How many bytes of a process lie on which NUMA node, from /proc/PID/numa_maps.

use std::collections::BTreeMap;

use crate::system::tree::Tree;

/// Bytes on each node. Shared pages count in each process that maps them.
pub type BytesByNode = BTreeMap<u32, u64>;

/// Parses a whole numa_maps file: `N0=12 N1=3 kernelpagesize_kB=4` on each line.
pub fn parse(text: &str) -> BytesByNode {
    let mut bytes_by_node = BytesByNode::new();
    for line in text.lines() {
        let mut page_kib = 4;
        let mut pages = Vec::new();
        // A file name cannot pass for a field: white space in it is escaped, and it has `file=`.
        for word in line.split_ascii_whitespace().skip(1) {
            if let Some(value) = word.strip_prefix("kernelpagesize_kB=") {
                page_kib = value.parse().unwrap_or(4);
            } else if let Some((node, count)) =
                word.strip_prefix('N').and_then(|rest| rest.split_once('='))
                && let (Ok(node), Ok(count)) = (node.parse::<u32>(), count.parse::<u64>())
            {
                pages.push((node, count));
            }
        }
        for (node, count) in pages {
            let bytes = count.saturating_mul(page_kib).saturating_mul(1024);
            let sum = bytes_by_node.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    bytes_by_node
}

/// The bytes of one process on each node; nothing for one that has ended.
pub fn read(tree: &Tree, pid: i32) -> BytesByNode {
    tree.read(&format!("proc/{pid}/numa_maps"))
        .map(|text| parse(&text))
        .unwrap_or_default()
}

/// The node among `candidates` that holds most of the process; its pages go back there.
pub fn main_node(bytes_by_node: &BytesByNode, candidates: &[u32]) -> Option<u32> {
    bytes_by_node
        .iter()
        .filter(|(node, bytes)| candidates.contains(node) && **bytes > 0)
        .max_by_key(|(node, bytes)| (**bytes, u32::MAX - **node))
        .map(|(node, _)| *node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_summed_by_node_with_each_mapping_s_own_page_size() {
        let text = "5616e55be000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4\n\
                    7f0000000000 bind:1 anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
                    7f1000000000 default file=/anon_hugepage\\040(deleted) huge anon=1 dirty=1 \
                    N1=1 kernelpagesize_kB=2048\n\
                    7fff00000000 default stack\n";
        let bytes = parse(text);
        assert_eq!(bytes[&0], 3 * 4096);
        assert_eq!(bytes[&1], 2 * 4096 + (2 << 20));
    }

    #[test]
    fn the_main_node_is_the_fullest_candidate_and_the_lower_one_in_a_tie() {
        let bytes = BytesByNode::from([(0, 5), (1, 900), (2, 7), (3, 7)]);
        assert_eq!(main_node(&bytes, &[0, 2, 3]), Some(2));
        assert_eq!(main_node(&bytes, &[4]), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "([ -~]|\n){0,200}") {
            let _ = parse(&text);
        }
    }
}
