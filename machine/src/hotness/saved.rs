//! Which pages were hot before a sleep, in a file in /run/dormouse until pages migrate back.

use std::fs;

use crate::hotness::{self, ProcessHotness};
use crate::system::lock::RUN_DIRECTORY;
use crate::system::state::{HOTNESS_FILE, boot_id};
use crate::system::tree::Tree;

/// Larger files are not ours, and are not read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Writes which pages are hot, for migrating back of this boot; without it, there is just no advice.
pub fn save(tree: &Tree, processes: &[ProcessHotness]) {
    let text = format!("{}\n{}", boot_id(tree), hotness::encode(processes));
    let written = fs::create_dir_all(tree.path(RUN_DIRECTORY))
        .and_then(|()| fs::write(tree.path(HOTNESS_FILE), text));
    drop(written);
}

/// Which pages were hot before this boot's last sleep. Given out once: afterwards they are back in DRAM.
pub fn take(tree: &Tree) -> Vec<ProcessHotness> {
    let path = tree.path(HOTNESS_FILE);
    let small = fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= MAX_FILE_BYTES);
    let text = small.then(|| tree.read(HOTNESS_FILE).ok()).flatten();
    let _ = fs::remove_file(path);
    text.as_deref()
        .and_then(|text| text.split_once('\n'))
        .filter(|(boot, _)| *boot == boot_id(tree))
        .and_then(|(_, list)| hotness::decode(list))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotness::HotRange;

    #[test]
    fn hotness_is_given_out_once_and_only_in_the_boot_that_saved_it() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::at(directory.path());
        let random = tree.path("proc/sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), "one\n").unwrap();
        let hotness = vec![ProcessHotness {
            pid: 7,
            start_ticks: 8,
            ranges: hotness::sum(&[HotRange {
                start: 0x1000,
                end: 0x3000,
                hotness: 2,
            }]),
        }];
        save(&tree, &hotness);
        assert_eq!(take(&tree), hotness);
        assert_eq!(take(&tree), [], "it is given out once");
        save(&tree, &hotness);
        fs::write(random.join("boot_id"), "two\n").unwrap();
        assert_eq!(take(&tree), []);
    }
}
