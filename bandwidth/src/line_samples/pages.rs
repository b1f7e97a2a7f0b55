//! The memory cgroup that a page is charged to, from `/proc/kpagecgroup`: 64 bits for each
//! physical page, the inode of the cgroup's folder; 0: no cgroup.
//!
//! Source: Documentation/admin-guide/mm/pagemap.rst of Linux (4.3 and newer, CONFIG_MEMCG and
//! CONFIG_PROC_PAGE_MONITOR; root only). Before 6.4 (mm/memcontrol.c: `page_cgroup_ino`) it
//! reports no cgroup for all but the first page of a transparent huge page, so older kernels are
//! rejected.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first kernel that reports the cgroup of all pages of a huge page.
const MIN_KERNEL: (u32, u32) = (6, 4);
/// The kernel's file.
pub const KPAGECGROUP: &str = "/proc/kpagecgroup";
/// How long an answer is cached: the minimum at first, and twice as long each time that it is
/// confirmed, up to the maximum. A query reads the kernel's record of the page, which may be on
/// the device itself.
const MIN_TRUST_MS: f64 = 1000.0;
const MAX_TRUST_MS: f64 = 4000.0;
/// Pages in one query: programs that use a page often use its neighbours.
const AT_ONCE: u64 = 8;
/// Maximum number of cached pages.
const MAX_PAGES: usize = 1 << 18;

#[derive(Clone, Copy, Debug)]
struct Page {
    cgroup: u64,
    /// The end of its validity.
    until_ms: f64,
    for_ms: f64,
}

/// Looks up pages and caches the answers.
#[derive(Debug)]
pub struct Pages {
    file: File,
    pages: HashMap<u64, Page>,
    now_ms: f64,
    /// Number of queries to the kernel.
    pub asked: u64,
}

impl Pages {
    /// Opens [`KPAGECGROUP`] or, in tests, a file of the same format.
    ///
    /// # Errors
    /// It does not exist, or is readable by root only.
    pub fn open(path: &Path) -> io::Result<Self> {
        let what = |error: io::Error| {
            let why =
                "which needs root and a kernel with CONFIG_MEMCG and CONFIG_PROC_PAGE_MONITOR";
            io::Error::new(error.kind(), format!("{}: {error}, {why}", path.display()))
        };
        Ok(Self {
            file: File::open(path).map_err(what)?,
            pages: HashMap::new(),
            now_ms: 0.0,
            asked: 0,
        })
    }

    /// Advances the time.
    pub fn pass(&mut self, ms: f64) {
        self.now_ms += ms;
    }

    fn make_room(&mut self) {
        let now_ms = self.now_ms;
        self.pages.retain(|_, page| page.until_ms > now_ms);
        // Otherwise the next pages would find the cache full again.
        if self.pages.len() > MAX_PAGES / 2 {
            self.pages.clear();
        }
    }

    /// Inode of the cgroup that the page of a physical address is charged to; `None`: no cgroup,
    /// or no page that the kernel knows.
    pub fn cgroup_of(&mut self, address: u64) -> Option<u64> {
        let number = address / rustix::param::page_size() as u64;
        let known = self.pages.get(&number);
        let cgroup = match known.filter(|page| page.until_ms > self.now_ms) {
            Some(page) => page.cgroup,
            None => self.ask(number),
        };
        (cgroup != 0).then_some(cgroup)
    }

    /// Queries a page and its neighbours.
    fn ask(&mut self, number: u64) -> u64 {
        self.asked += 1;
        if self.pages.len() + AT_ONCE as usize > MAX_PAGES {
            self.make_room();
        }
        let first = number / AT_ONCE * AT_ONCE;
        let mut bytes = [0; 8 * AT_ONCE as usize];
        // The file ends after the last page; a page whose record cannot be read has no cgroup.
        let read = self.file.read_at(&mut bytes, first * 8).unwrap_or(0);
        let (words, _) = bytes.as_chunks::<8>();
        let now_ms = self.now_ms;
        for (at, word) in (first..).zip(words) {
            let there = (at - first + 1) * 8 <= read as u64;
            let cgroup = if there { u64::from_ne_bytes(*word) } else { 0 };
            let known = self.pages.get(&at);
            let same = known.filter(|page| page.cgroup == cgroup);
            let for_ms = same.map_or(MIN_TRUST_MS, |page| (page.for_ms * 2.0).min(MAX_TRUST_MS));
            // A page without a cgroup may have one the next moment: the answer is valid in this
            // pass only.
            let believed_ms = if cgroup == 0 { 0.0 } else { for_ms };
            let until_ms = (now_ms + believed_ms).next_up();
            let page = Page {
                cgroup,
                until_ms,
                for_ms,
            };
            self.pages.insert(at, page);
        }
        self.pages.get(&number).map_or(0, |page| page.cgroup)
    }
}

/// Whether a kernel of this release (`uname -r`) reports huge pages correctly.
///
/// # Errors
/// It is too old.
pub fn check_kernel(release: &str) -> io::Result<()> {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let version = number().zip(number());
    if version.is_some_and(|version| version >= MIN_KERNEL) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "{KPAGECGROUP} of this kernel, {release}, does not report the cgroups of huge pages: Linux \
             {}.{} or newer is needed",
            MIN_KERNEL.0, MIN_KERNEL.1
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PAGE: u64 = 4096;

    /// A file in which page number `n` belongs to the `n`-th of these.
    fn owned(cgroups: &[u64]) -> (tempfile::TempDir, Pages) {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, cgroups);
        let pages = Pages::open(&folder.path().join("kpagecgroup")).unwrap();
        (folder, pages)
    }

    fn write(folder: &tempfile::TempDir, cgroups: &[u64]) {
        let bytes: Vec<u8> = cgroups.iter().flat_map(|one| one.to_ne_bytes()).collect();
        fs::write(folder.path().join("kpagecgroup"), bytes).unwrap();
    }

    #[test]
    fn a_page_is_queried_less_often_while_its_owner_stays() {
        let (folder, mut pages) = owned(&[0, 70, 70, 81]);
        assert_eq!(pages.cgroup_of(PAGE + 64), Some(70));
        assert_eq!(pages.cgroup_of(3 * PAGE), Some(81), "a neighbour");
        assert_eq!(pages.asked, 1);
        // The page gets another owner, which is noticed within a second.
        write(&folder, &[0, 71, 70, 81]);
        pages.pass(900.0);
        assert_eq!(pages.cgroup_of(PAGE), Some(70));
        pages.pass(200.0);
        assert_eq!(pages.cgroup_of(PAGE), Some(71));
        assert_eq!(pages.asked, 2);
        for (ms, asked) in [(900.0, 2), (200.0, 3), (1900.0, 3), (200.0, 4), (3900.0, 4)] {
            pages.pass(ms);
            assert_eq!(pages.cgroup_of(PAGE), Some(71));
            assert_eq!(pages.asked, asked, "after {ms} ms");
        }
        pages.pass(200.0);
        pages.cgroup_of(PAGE);
        pages.pass(4100.0);
        pages.cgroup_of(PAGE);
        assert_eq!(pages.asked, 6, "four seconds are the longest");
    }

    #[test]
    fn a_page_without_owner_is_queried_again_in_the_next_pass() {
        let (folder, mut pages) = owned(&[0, 0]);
        for _ in 0..3 {
            assert_eq!(pages.cgroup_of(PAGE), None);
        }
        assert_eq!(pages.asked, 1, "not asked for each sample");
        write(&folder, &[0, 9]);
        pages.pass(50.0);
        assert_eq!(pages.cgroup_of(PAGE), Some(9));
    }

    #[test]
    fn addresses_without_a_page_have_no_owner() {
        let (_folder, mut pages) = owned(&[5]);
        for address in [PAGE, 100 * PAGE, 0x000f_ffff_ffff_ffc0, u64::MAX] {
            assert_eq!(pages.cgroup_of(address), None);
        }
        assert_eq!(pages.cgroup_of(0), Some(5));
    }

    #[test]
    fn no_more_pages_are_remembered_than_there_is_room_for() {
        let (_folder, mut pages) = owned(&[5]);
        for number in 0..(MAX_PAGES as u64 / AT_ONCE + 10) {
            pages.cgroup_of(number * AT_ONCE * PAGE);
            assert!(pages.pages.len() <= MAX_PAGES);
        }
        pages.pass(1.0);
        assert_eq!(pages.cgroup_of(0), Some(5));
    }

    #[test]
    fn kernels_that_say_nothing_of_huge_pages_are_refused() {
        for release in ["6.4.0", "6.4-rc1", "6.12.41+deb13-amd64", "7.0.1", "10.1"] {
            assert!(check_kernel(release).is_ok(), "{release}");
        }
        for release in ["6.3.9", "5.15.0-91-generic", "4.19.1", "6", "", "x.9"] {
            let said = check_kernel(release).unwrap_err().to_string();
            assert!(said.contains("Linux 6.4 or newer"), "{said}");
        }
    }

    #[test]
    fn this_kernel_answers_queries_where_it_can() {
        let Ok(mut pages) = Pages::open(Path::new(KPAGECGROUP)) else {
            eprintln!("left out: this kernel does not report the owners of pages, or only to root");
            return;
        };
        // The owner of memory in the first GiB depends on the machine; a query works for any
        // address.
        for at in 0..1024 {
            pages.cgroup_of(at << 20);
        }
        assert_eq!(pages.asked, 1024);
    }
}
