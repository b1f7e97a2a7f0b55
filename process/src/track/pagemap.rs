//! The PAGEMAP_SCAN system call (Linux 6.7): which pages are there, and which were written to
//! since they were last protected. Documented in the kernel's
//! `Documentation/admin-guide/mm/pagemap.rst`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::areas::{Area, Kind};
use crate::store::PAGE_BYTES;

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

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const WP_MATCHING: u64 = 1;
const CHECK_WPASYNC: u64 = 2;
const REGIONS: usize = 4096;

#[repr(C)]
#[derive(Debug, Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
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
    /// `WRITTEN`, `FILE`, `PRESENT`, `SWAPPED`, `ZERO`.
    pub categories: u64,
}

impl Region {
    /// Bytes of a private page that zeros or a file do not give.
    pub fn is_private_content(&self) -> bool {
        self.categories & (PRESENT | SWAPPED) != 0 && self.categories & (ZERO | FILE) == 0
    }

    /// Length in pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE_BYTES
    }
}

/// What a scan does besides reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    /// Nothing.
    Nothing,
    /// Protects what was written to, in the same instant; refuses with EPERM where the range is
    /// not registered for asynchronous write-protection.
    Written,
}

/// Reports the pages of a range that are there, ascending. [`FILE`] is not reported for memory
/// without a file: the kernel would read each page's own record, which is rarely in the cache.
///
/// # Errors
/// EPERM: see [`Protect::Written`]. Anything else: there is no such process or system call.
pub fn scan(
    pagemap: &File,
    area: &Area,
    protect: Protect,
    mut each: impl FnMut(Region),
) -> io::Result<()> {
    let mut regions = vec![Region::default(); REGIONS];
    let file = match area.kind {
        Kind::Anonymous => 0,
        Kind::PrivateFile => FILE,
    };
    let mut at = area.start;
    while at < area.end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            flags: match protect {
                Protect::Nothing => 0,
                Protect::Written => WP_MATCHING | CHECK_WPASYNC,
            },
            start: at,
            end: area.end,
            vec: regions.as_mut_ptr().addr() as u64,
            vec_len: regions.len() as u64,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: WRITTEN | file | PRESENT | SWAPPED | ZERO,
            ..ScanArgument::default()
        };
        // SAFETY: the argument and the vector it points to are valid for the call, and as long
        // as they say.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        regions[..count as usize]
            .iter()
            .copied()
            .for_each(&mut each);
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
/// It has ended, or we may not.
pub fn open(pid: i32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/pagemap"))
}
