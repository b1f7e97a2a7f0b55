//! Which pages of a process are where, from the ioctl PAGEMAP_SCAN of `/proc/PID/pagemap`
//! (Linux 6.7; the kernel's `Documentation/admin-guide/mm/pagemap.rst`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Written to since it was protected.
pub const WRITTEN: u64 = 1 << 1;
/// A page of a file, not a private copy of one.
pub const FILE: u64 = 1 << 2;
/// In memory.
pub const PRESENT: u64 = 1 << 3;
/// In swap, or a marker in its place.
pub const SWAPPED: u64 = 1 << 4;
/// The shared page of zeros.
pub const ZERO: u64 = 1 << 5;
/// Mapped by a huge page.
pub const HUGE: u64 = 1 << 6;

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const WP_MATCHING: u64 = 1;
const CHECK_WPASYNC: u64 = 2;
const REGIONS_AT_ONCE: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Neighbouring pages of the same categories; addresses in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// [`WRITTEN`], [`FILE`], [`PRESENT`], [`SWAPPED`], [`ZERO`], [`HUGE`].
    pub categories: u64,
}

impl Region {
    /// Whether the pages are of any of these categories.
    pub fn has(&self, categories: u64) -> bool {
        self.categories & categories != 0
    }
}

/// Which pages a scan reports, and what it does to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scan {
    /// Pages of all of these categories.
    pub all_of: u64,
    /// Pages of at least one of these categories.
    pub any_of: u64,
    /// Pages of none of these categories.
    pub none_of: u64,
    /// What is reported of a page, and so tells regions apart.
    pub reported: u64,
    /// Protects the reported pages against writing, in the same instant; refuses with EPERM where
    /// the range is not registered for asynchronous write-protection.
    pub protect: bool,
    /// Refuses with EPERM where the range is not registered for asynchronous write-protection, as
    /// `protect` does.
    pub registered: bool,
}

/// Calls `each` for the pages of a range of addresses, ascending.
///
/// # Errors
/// EPERM: see [`Scan::protect`]. ENOTTY: this kernel cannot scan. Anything else: the process has
/// ended, or the range is none.
pub fn scan(
    pagemap: &File,
    range: Range<u64>,
    what: Scan,
    mut each: impl FnMut(Region),
) -> io::Result<()> {
    let mut regions = vec![Region::default(); REGIONS_AT_ONCE];
    let mut at = range.start;
    while at < range.end {
        let mut argument = Argument {
            size: size_of::<Argument>() as u64,
            flags: match (what.protect, what.registered) {
                (true, _) => WP_MATCHING | CHECK_WPASYNC,
                (false, true) => CHECK_WPASYNC,
                (false, false) => 0,
            },
            start: at,
            end: range.end,
            regions: regions.as_mut_ptr().addr() as u64,
            regions_len: regions.len() as u64,
            category_inverted: what.none_of,
            category_mask: what.all_of | what.none_of,
            category_anyof_mask: what.any_of,
            return_mask: what.reported,
            ..Argument::default()
        };
        // SAFETY: the kernel writes at most `regions_len` regions to `regions`, which lives and is
        // not touched meanwhile, and `walk_end` into `argument`.
        let count =
            unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = &regions[..(count as usize).min(regions.len())];
        found.iter().copied().for_each(&mut each);
        if argument.walk_end <= at {
            return Err(io::Error::other("PAGEMAP_SCAN makes no progress"));
        }
        at = argument.walk_end;
    }
    Ok(())
}

/// Opens the pagemap of a process.
///
/// # Errors
/// It has ended, or the caller may not.
pub fn open(pid: i32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/pagemap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_has_the_size_that_the_ioctl_number_names() {
        assert_eq!(size_of::<Argument>() as u64, (PAGEMAP_SCAN >> 16) & 0x3fff);
    }

    #[test]
    fn a_page_on_the_stack_is_present() {
        let local = 1u8;
        let page = (&raw const local).addr() as u64 & !4095;
        let pagemap = open(std::process::id() as i32).unwrap();
        let what = Scan {
            all_of: PRESENT,
            none_of: ZERO,
            reported: PRESENT,
            ..Scan::default()
        };
        let mut found = Vec::new();
        let scanned = scan(&pagemap, page..page + 4096, what, |region| {
            found.push(region);
        });
        match scanned {
            Ok(()) => assert!(found[0].start == page && found[0].has(PRESENT), "{found:?}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY)),
        }
    }
}
