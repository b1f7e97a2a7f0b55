//! The mappings of a process: what each one is, and how much of it lies on which NUMA node. From
//! /proc/PID/numa_maps (bytes by node) and /proc/PID/smaps (whether it is locked).

use std::collections::BTreeSet;

use dormouse_system::Root;
use dormouse_system::mounts::unescape;
use dormouse_system::proc::numa_maps::{self, BytesByNode};

/// One mapping with pages in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    pub start: u64,
    /// What is mapped: a path, or the kernel's name for it (`/memfd:x`, `anon_inode:[io_uring]`).
    /// None for anonymous memory.
    pub file: Option<String>,
    /// From the hugetlb pool.
    pub hugetlb: bool,
    /// `mlock(2)`, `MAP_LOCKED`.
    pub locked: bool,
    pub bytes: BytesByNode,
}

impl Mapping {
    /// Bytes on any of the nodes.
    pub fn bytes_on(&self, nodes: &[u32]) -> u64 {
        nodes.iter().filter_map(|node| self.bytes.get(node)).sum()
    }
}

/// Parses numa_maps, one mapping a line; those without pages are left out.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let mut mapping = Mapping {
                start,
                bytes: numa_maps::parse(line),
                ..Mapping::default()
            };
            for word in words {
                match word.strip_prefix("file=") {
                    Some(file) => mapping.file = Some(unescape(file)),
                    None => mapping.hugetlb |= word == "huge",
                }
            }
            (!mapping.bytes.is_empty()).then_some(mapping)
        })
        .collect()
}

/// Parses smaps: the start addresses of the locked mappings.
pub fn parse_locked(text: &str) -> BTreeSet<u64> {
    let mut locked = BTreeSet::new();
    let mut start = None;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_ascii_whitespace().any(|flag| flag == "lo") {
                locked.extend(start);
            }
        } else if let Some((first, _)) = line.split_once('-')
            && let Ok(address) = u64::from_str_radix(first, 16)
        {
            start = Some(address);
        }
    }
    locked
}

/// The mappings of a process; none for one that has ended. The kernel walks its page tables twice.
pub fn read(root: &Root, pid: i32) -> Vec<Mapping> {
    let text = |name: &str| root.read(&format!("proc/{pid}/{name}")).unwrap_or_default();
    let mut mappings = parse(&text("numa_maps"));
    if !mappings.is_empty() {
        let locked = parse_locked(&text("smaps"));
        for mapping in &mut mappings {
            mapping.locked = locked.contains(&mapping.start);
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mapping_has_its_name_its_kind_and_its_bytes_by_node() {
        let text = "7f0000000000 default file=/dev/shm/a\\040b\\134 dirty=3 N0=2 N1=1 \
                    kernelpagesize_kB=4\n\
                    7f1000000000 bind:0 file=/anon_hugepage\\040(deleted) huge anon=1 N0=1 \
                    kernelpagesize_kB=2048\n\
                    7f2000000000 default heap\n\
                    7f3000000000 default heap anon=1 N1=1 kernelpagesize_kB=4\n";
        let mappings = parse(text);
        assert_eq!(mappings.len(), 3);
        assert_eq!(mappings[0].file.as_deref(), Some("/dev/shm/a b\\"));
        assert_eq!(mappings[0].bytes_on(&[0]), 8192);
        assert_eq!(mappings[0].bytes_on(&[0, 1]), 12288);
        assert!(mappings[1].hugetlb && mappings[1].bytes_on(&[0]) == 2 << 20);
        assert_eq!(
            (mappings[2].start, &mappings[2].file),
            (0x7f30_0000_0000, &None)
        );
    }

    #[test]
    fn locked_mappings_are_found_by_their_flags() {
        let text = "7f00-7f10 rw-p 00000000 00:00 0 \nRss:   4 kB\nLocked: 4 kB\n\
                    VmFlags: rd wr lo ac \n\
                    7f20-7f30 rw-p 00000000 00:00 0    [heap]\nVmFlags: rd wr ac \n";
        assert_eq!(parse_locked(text), BTreeSet::from([0x7f00]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "([ -~é]|\n){0,200}", name in "[\\\\0-9é]{0,9}") {
            let _ = parse(&text);
            let _ = parse(&format!("7f00 default file={name} N0=1"));
            let _ = parse_locked(&text);
        }
    }
}
