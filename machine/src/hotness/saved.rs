//! Which pages were hot before a sleep, in a file in /run/dormouse until pages migrate back.

use std::fs;

use dormouse_system::Root;
use dormouse_system::file::{Durability, replace};
use dormouse_system::kernel::boot_id;

use crate::hotness::{self, ProcessHotness};
use crate::system::state::HOTNESS_FILE;

/// Larger files are not ours, and are not read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Writes which pages are hot, for migrating back of this boot; without it, there is just no advice.
pub fn save(root: &Root, processes: &[ProcessHotness]) {
    let text = format!("{}\n{}", boot_id(root), hotness::encode(processes));
    let _ = replace(
        &root.path(HOTNESS_FILE),
        text.as_bytes(),
        Durability::Readers,
    );
}

/// Which pages were hot before this boot's last sleep. Given out once: afterwards they are back in DRAM.
pub fn take(root: &Root) -> Vec<ProcessHotness> {
    let path = root.path(HOTNESS_FILE);
    let small = fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= MAX_FILE_BYTES);
    let text = small.then(|| root.read(HOTNESS_FILE).ok()).flatten();
    let _ = fs::remove_file(path);
    text.as_deref()
        .and_then(|text| text.split_once('\n'))
        .filter(|(boot, _)| *boot == boot_id(root))
        .and_then(|(_, list)| hotness::decode(list))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotness::HotRange;
    use crate::tests::{machine_in_boot, reboot};

    #[test]
    fn hotness_is_given_out_once_and_only_in_the_boot_that_saved_it() {
        let (_directory, root) = machine_in_boot("one");
        let hotness = vec![ProcessHotness {
            pid: 7,
            start_ticks: 8,
            ranges: hotness::sum(&[HotRange {
                start: 0x1000,
                end: 0x3000,
                hotness: 2,
            }]),
        }];
        save(&root, &hotness);
        assert_eq!(take(&root), hotness);
        assert_eq!(take(&root), [], "it is given out once");
        save(&root, &hotness);
        reboot(&root, "two");
        assert_eq!(take(&root), []);
    }
}
