//! Mappings of rings of io_uring.

use std::ops::Range;

use super::super::Error;
use super::super::sharing::ranges;
use super::super::stub::{Check, List};
use super::Writer;
use crate::procfs;
use crate::state::{Backing, FileKind, Process, TASK_END};

/// Below it, the kernel chooses no address; its own default.
const LOWEST: u64 = 1 << 16;

impl Writer<'_> {
    /// Maps rings, first of all. The kernel chooses the address of a mapping of a ring, and refuses one that
    /// is asked for. So all other addresses are taken for that moment.
    /// `there`: what is mapped already.
    pub(super) fn rings(
        &self,
        list: &mut List,
        process: &Process,
        mut there: Vec<Range<u64>>,
    ) -> Result<(), Error> {
        for mapping in &process.mappings {
            let Backing::Uring(ring) = mapping.backing else {
                continue;
            };
            let mut files = self.tree.files.iter();
            let file = files.position(|file| file.kind == FileKind::Uring(ring));
            let file = file.ok_or_else(|| Error::Description(format!("ring {ring} is missing")))?;
            there.push(mapping.start..mapping.end);
            there.sort_by_key(|range| range.start);
            let others = ranges::outside(&there, &(lowest()..TASK_END));
            for other in &others {
                take(list, other);
            }
            let bytes = mapping.end - mapping.start;
            let (protection, place) = (u64::from(mapping.protection), self.pool.files[file] as u64);
            let shared = libc::MAP_SHARED as u64;
            list.call(
                libc::SYS_mmap,
                &[0, bytes, protection, shared, place, mapping.offset],
                "map an io_uring",
            )
            .about(mapping.start)
            .expect(Check::Equals(mapping.start));
            for other in &others {
                let arguments = [other.start, other.end - other.start];
                list.call(libc::SYS_munmap, &arguments, "give addresses back");
            }
        }
        Ok(())
    }
}

/// Takes addresses, so that the kernel does not choose them.
fn take(list: &mut List, range: &Range<u64>) {
    let (start, bytes) = (range.start, range.end - range.start);
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_NONE as u64;
    list.call(
        libc::SYS_mmap,
        &[start, bytes, protection, flags as u64, u64::MAX, 0],
        "take addresses",
    )
    .about(start)
    .expect(Check::Equals(start));
}

/// The lowest address that the kernel chooses.
fn lowest() -> u64 {
    let text = procfs::text("/proc/sys/vm/mmap_min_addr").unwrap_or_default();
    text.trim()
        .parse()
        .map_or(LOWEST, |lowest: u64| lowest.max(4096))
}
