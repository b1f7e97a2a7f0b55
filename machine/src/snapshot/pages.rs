//! Which pages of the node are occupied, and the digests of what is in them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use dormouse_image::UserCheck;
use dormouse_image::user_pages::{GROUP_BYTES, GROUP_PAGES, covered, digest};

use crate::snapshot::kernel::{PAGE_BYTES, RANGE};
use dormouse_system::Root;

const FLAGS: &str = "proc/kpageflags";
// Documentation/admin-guide/mm/pagemap.rst: free in the allocator, poisoned, no page, offline.
const NOT_OCCUPIED: u64 = 1 << 10 | 1 << 19 | 1 << 20 | 1 << 23;
const FLAGS_AT_ONCE: usize = 8192;
/// Groups with a digest where a sample is asked for; one page of each.
const SAMPLE_GROUPS: u64 = 256;

/// Table of digests, and what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digests {
    /// A word for each group; 0 where it has none.
    pub table: Vec<u64>,
    pub groups: u64,
    pub pages: u64,
}

/// A bit for each page of a range: neither free nor unreadable nor offline.
///
/// # Errors
/// /proc/kpageflags cannot be read.
pub fn occupied(root: &Root, base: u64, bytes: u64) -> io::Result<Vec<u64>> {
    let file = File::open(root.path(FLAGS))?;
    let pages = bytes / PAGE_BYTES as u64;
    let mut words = vec![0u64; pages.div_ceil(GROUP_PAGES) as usize];
    let mut flags = vec![0u8; FLAGS_AT_ONCE * 8];
    let mut page = 0;
    while page < pages {
        let count = (pages - page).min(FLAGS_AT_ONCE as u64) as usize;
        let part = &mut flags[..count * 8];
        read_as_far_as_it_goes(&file, part, (base / PAGE_BYTES as u64 + page) * 8)?;
        for (number, flags) in (page..).zip(part.chunks_exact(8)) {
            let flags = u64::from_le_bytes(*flags.first_chunk().expect("eight bytes"));
            if flags & NOT_OCCUPIED == 0 {
                words[(number / GROUP_PAGES) as usize] |= 1 << (number % GROUP_PAGES);
            }
        }
        page += count as u64;
    }
    Ok(words)
}

/// Behind the last page that the kernel knows the file ends: there is no memory.
fn read_as_far_as_it_goes(file: &File, to: &mut [u8], offset: u64) -> io::Result<()> {
    let mut at = 0;
    while at < to.len() {
        match file.read_at(&mut to[at..], offset + at as u64)? {
            0 => break,
            bytes => at += bytes,
        }
    }
    for flags in to[at..].chunks_mut(8) {
        flags.copy_from_slice(&NOT_OCCUPIED.to_le_bytes()[..flags.len()]);
    }
    Ok(())
}

/// Every how many of the occupied groups gets a digest.
pub fn step(check: UserCheck, occupied_groups: u64) -> u64 {
    if check == UserCheck::SAMPLE {
        occupied_groups.div_ceil(SAMPLE_GROUPS).max(1)
    } else {
        1
    }
}

/// The digests of the pages in `bitmap`, read from the module; groups with a page that cannot be
/// read get none.
///
/// # Errors
/// The module's device cannot be opened.
pub fn digests(root: &Root, check: UserCheck, bitmap: &[u64]) -> io::Result<Digests> {
    let mut made = Digests {
        table: vec![0; bitmap.len()],
        ..Digests::default()
    };
    if check == UserCheck::NONE {
        return Ok(made);
    }
    let file = File::open(root.path(RANGE))?;
    let in_use = bitmap.iter().filter(|word| **word != 0).count() as u64;
    let step = step(check, in_use);
    let mut group = vec![0; GROUP_BYTES];
    let mut number = 0;
    for (index, word) in bitmap.iter().enumerate() {
        if *word == 0 {
            continue;
        }
        number += 1;
        if (number - 1) % step != 0 {
            continue;
        }
        let pages = covered(check.0, *word);
        if read_pages(&file, index as u64, pages, &mut group).is_ok() {
            made.table[index] = digest(&group, pages);
            made.groups += 1;
            made.pages += u64::from(pages.count_ones());
        }
    }
    Ok(made)
}

fn read_pages(file: &File, group: u64, pages: u64, to: &mut [u8]) -> io::Result<()> {
    for page in (0..GROUP_PAGES).filter(|page| pages >> page & 1 == 1) {
        let part = &mut to[page as usize * PAGE_BYTES..][..PAGE_BYTES];
        file.read_exact_at(part, (group * GROUP_PAGES + page) * PAGE_BYTES as u64)?;
    }
    Ok(())
}

/// Whether Linux uses memory of a range, from /proc/iomem.
pub fn is_in_use(root: &Root, base: u64, bytes: u64) -> bool {
    let mut text = String::new();
    // What cannot be read is taken for in use.
    File::open(root.path("proc/iomem"))
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_or(true, |_| overlaps_memory(&text, base, bytes))
}

fn overlaps_memory(iomem: &str, base: u64, bytes: u64) -> bool {
    iomem.lines().any(|line| {
        let Some((range, name)) = line.split_once(" : ") else {
            return false;
        };
        let Some((start, end)) = range.trim().split_once('-') else {
            return false;
        };
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (start, end) = (number(start), number(end));
        // Without the right to see addresses they are all zero.
        name.starts_with("System RAM") && start < base.saturating_add(bytes) && end >= base
    })
}

/// Writes the caches of all processors back, so that the pages are on the device.
///
/// # Errors
/// The module is gone, or the kernel cannot.
pub fn write_back(root: &Root) -> io::Result<()> {
    File::open(root.path(RANGE))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A machine with these flags from page 0 on, and a range of these pages.
    fn machine(flags: &[u64], range: &[u8]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["proc", "dev"] {
            std::fs::create_dir(directory.path().join(folder)).unwrap();
        }
        let mut file = File::create(directory.path().join(FLAGS)).unwrap();
        for one in flags {
            file.write_all(&one.to_le_bytes()).unwrap();
        }
        std::fs::write(directory.path().join(RANGE), range).unwrap();
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn free_poisoned_and_offline_pages_are_not_occupied() {
        let mut flags = vec![0; 4 + 70];
        flags[4] = 1 << 10;
        flags[6] = 1 << 19;
        flags[7] = 1 << 20;
        flags[8] = 1 << 5;
        let (_directory, root) = machine(&flags, &[]);
        let words = occupied(&root, 4 * 4096, 72 * 4096).unwrap();
        assert_eq!(words[0], !0b1101);
        // 70 pages are known, the last two are no memory.
        assert_eq!(words[1], 0b11_1111);
    }

    #[test]
    fn all_pages_or_one_of_some_groups_have_a_digest() {
        let range: Vec<u8> = (0..3 * GROUP_BYTES).map(|at| (at / 4096) as u8).collect();
        let (_directory, root) = machine(&[], &range);
        let bitmap = [0b110, 0, u64::MAX];
        let all = digests(&root, UserCheck::ALL, &bitmap).unwrap();
        assert_eq!((all.groups, all.pages), (2, 66));
        assert_eq!(all.table[0], digest(&range, 0b110));
        assert_eq!(all.table[1], 0);
        let sample = digests(&root, UserCheck::SAMPLE, &bitmap).unwrap();
        assert_eq!((sample.groups, sample.pages), (2, 2));
        assert_eq!(sample.table[0], digest(&range, 0b10));
        let none = digests(&root, UserCheck::NONE, &bitmap).unwrap();
        assert_eq!(none.table, [0, 0, 0]);
    }

    #[test]
    fn a_group_that_cannot_be_read_has_no_digest() {
        let (_directory, root) = machine(&[], &vec![1; GROUP_BYTES]);
        let made = digests(&root, UserCheck::ALL, &[1, 1]).unwrap();
        assert_eq!((made.groups, made.table[1]), (1, 0));
    }

    #[test]
    fn a_sample_is_some_hundred_groups_of_any_number() {
        assert_eq!(step(UserCheck::ALL, 1 << 20), 1);
        assert_eq!(step(UserCheck::SAMPLE, 0), 1);
        for groups in [1u64, 255, 256, 257, 5000, 1 << 30] {
            let digests = groups.div_ceil(step(UserCheck::SAMPLE, groups));
            assert!(
                digests <= SAMPLE_GROUPS && digests >= (groups / 2).min(100),
                "{groups}"
            );
        }
    }

    #[test]
    fn memory_in_a_range_is_seen_and_other_things_are_not() {
        let text = "00001000-0009fbff : System RAM\n140000000-17fffffff : Persistent Memory\n  \
                    148000000-17fffffff : dax1.0\n    150000000-157ffffff : System RAM (kmem)\n";
        assert!(overlaps_memory(text, 0x1_4000_0000, 0x4000_0000));
        assert!(!overlaps_memory(text, 0x1_4000_0000, 0x1000_0000));
        assert!(!overlaps_memory(text, 0x1_5800_0000, 0x1000_0000));
        assert!(overlaps_memory(text, 0x1_57ff_f000, 0x1000));
    }
}
