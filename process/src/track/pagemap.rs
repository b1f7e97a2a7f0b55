//! Which pages of a program are there, and which were written to since they were last protected.

use std::fs::File;
use std::io;

use dormouse_system::proc::pagemap::{self, FILE, PRESENT, SWAPPED, Scan, ZERO};
pub use dormouse_system::proc::pagemap::{Region, WRITTEN, open};

use super::areas::{Area, Kind};
use crate::store::PAGE_BYTES;

/// Whether a region holds bytes of a private page that zeros or a file do not give.
pub fn is_private_content(region: &Region) -> bool {
    region.has(PRESENT | SWAPPED) && !region.has(ZERO | FILE)
}

/// Length of a region in pages.
pub fn page_count(region: &Region) -> u64 {
    (region.end - region.start) / PAGE_BYTES
}

/// What a scan does besides reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    /// Nothing.
    Nothing,
    /// Nothing, but refuses as `Written` does.
    Registered,
    /// Protects what was written to, in the same instant; refuses with EPERM where the range is
    /// not registered for asynchronous write-protection.
    Written,
}

/// Reports the pages of a range that are there, ascending. [`FILE`] is not reported for memory
/// without a file: the kernel would read each page's own record, which is rarely in the cache.
///
/// # Errors
/// EPERM: see [`Protect`]. Anything else: there is no such process or system call.
pub fn scan(
    pagemap: &File,
    area: &Area,
    protect: Protect,
    each: impl FnMut(Region),
) -> io::Result<()> {
    let file = match area.kind {
        Kind::Anonymous => 0,
        Kind::PrivateFile => FILE,
    };
    let what = Scan {
        any_of: PRESENT | SWAPPED,
        reported: WRITTEN | file | PRESENT | SWAPPED | ZERO,
        protect: protect == Protect::Written,
        registered: protect == Protect::Registered,
        ..Scan::default()
    };
    pagemap::scan(pagemap, area.start..area.end, what, each)
}
