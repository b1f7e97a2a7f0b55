//! Lists of CPUs and NUMA nodes as the kernel writes them: `0-3,5`.

use crate::Root;

/// The largest number that a list may name; it bounds what an untrusted text can allocate.
const MAX_NUMBER: u32 = 8191;

/// Parses a list of CPUs or nodes; parts that are no number or range are skipped.
pub fn parse_list(text: &str) -> Vec<u32> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(MAX_NUMBER))
        })
        .flatten()
        .collect()
}

/// The CPUs that are online.
pub fn online_cpus(root: &Root) -> Vec<u32> {
    let text = root.read("sys/devices/system/cpu/online");
    parse_list(&text.unwrap_or_default())
}

/// The nodes in one of the lists of `/sys/devices/system/node`: `online`, `has_cpu`, `has_memory`.
pub fn nodes_with(root: &Root, list: &str) -> Vec<u32> {
    let text = root.read(&format!("sys/devices/system/node/{list}"));
    parse_list(&text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_single_numbers_are_listed() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list(""), [] as [u32; 0]);
        assert_eq!(parse_list("x,3-1,4"), [4]);
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(!online_cpus(&Root::host()).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic_or_the_list_endless(text in "[0-9,x-]{0,20}") {
            prop_assert!(parse_list(&text).len() <= 20 * (MAX_NUMBER as usize + 1));
        }
    }
}
