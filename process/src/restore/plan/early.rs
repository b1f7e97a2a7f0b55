//! What a process does before it creates children: maps memory that they share with it
//! copy-on-write, and waits until the tracker has filled it.

use std::ops::Range;

use super::super::Error;
use super::super::sharing::{Area, ranges};
use super::super::stub::{Check, Gate, List, Store};
use super::{Writer, full};
use crate::state::{KernelPart, Process, TASK_END, advice};

/// A process that waits for pages before it creates children.
#[derive(Debug, Clone, Copy)]
pub struct Early {
    /// Its index.
    pub process: usize,
    /// Open when its memory is mapped.
    pub mapped: Gate,
    /// Opened when the pages are there.
    pub filled: Gate,
}

impl Writer<'_> {
    /// Maps memory that is shared with children. The tracker's goes first, as it would be in the way.
    pub(super) fn early_memory(&mut self, list: &mut List, index: usize) -> Result<(), Error> {
        let shares = self.sharing.of(index);
        let shares = shares.filter(|shares| shares.begins_early());
        // A process that its parent does not create has inherited memory that it is not to have.
        let foreign = self.emptied && self.placeholders.made_by_others().contains(&index);
        if foreign || shares.is_some() && !self.emptied {
            self.empty(list, &[]);
        }
        let Some(shares) = shares else {
            return Ok(());
        };
        // Each page is to be shared for itself. Children inherit that.
        list.prctl(
            libc::PR_SET_THP_DISABLE,
            &[1, 0, 0, 0],
            "switch huge pages off",
        )
        .expect(Check::Any);
        for area in &shares.areas {
            self.area(list, area)?;
        }
        if shares.fills.is_empty() {
            return Ok(());
        }
        let early = Early {
            process: index,
            mapped: self.region.gate().map_err(full)?,
            filled: self.region.gate().map_err(full)?,
        };
        list.call(libc::SYS_getpid, &[], "report")
            .store(Store::Gate(early.mapped));
        list.report();
        list.wait(early.filled);
        self.early.push(early);
        Ok(())
    }

    /// Unmaps everything but these ranges, which ascend; what the kernel has mapped is parked. Returns where.
    pub(super) fn empty(&mut self, list: &mut List, kept: &[Range<u64>]) -> Vec<(KernelPart, u64)> {
        let mut parked = self.region.parking();
        let mut at = Vec::new();
        for &(part, start, bytes) in &self.kernel.parts {
            let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            if !self.emptied {
                list.call(
                    libc::SYS_mremap,
                    &[start, bytes, bytes, fixed, parked],
                    "move the vdso (are system mappings sealed?)",
                );
            }
            at.push((part, parked));
            parked += bytes;
        }
        self.emptied = true;
        let mut kept = kept.to_vec();
        kept.push(self.region.parking()..self.region.end());
        kept.sort_by_key(|range| range.start);
        // Also the lowest addresses: they may be unmapped without asking.
        for other in ranges::outside(&kept, &(0..TASK_END)) {
            list.call(
                libc::SYS_munmap,
                &[other.start, other.end - other.start],
                "unmap the tracker's memory",
            );
        }
        at
    }

    /// The ranges of mappings that a process has mapped early or inherited, ascending.
    pub(super) fn kept(&self, index: usize, process: &Process) -> Vec<Range<u64>> {
        let shares = self.sharing.of(index);
        let parts = shares.into_iter().flat_map(|shares| shares.parts.keys());
        let range = |part: &usize| {
            let mapping = &process.mappings[*part];
            mapping.start..mapping.end
        };
        parts.map(range).collect()
    }

    /// Drops pages that a process has inherited, and that are not its own.
    pub(super) fn drop_pages(&self, list: &mut List, index: usize) {
        let shares = self.sharing.of(index);
        for range in shares.into_iter().flat_map(|shares| &shares.dropped) {
            let bytes = range.end - range.start;
            let arguments = [range.start, bytes, libc::MADV_DONTNEED as u64];
            list.call(libc::SYS_madvise, &arguments, "drop inherited memory");
        }
    }

    fn area(&mut self, list: &mut List, area: &Area) -> Result<(), Error> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        if area.kind.advice & advice::NO_RESERVE != 0 {
            flags |= libc::MAP_NORESERVE;
        }
        if area.kind.advice & advice::GROWS_DOWN != 0 {
            flags |= libc::MAP_GROWSDOWN;
        }
        let (start, bytes) = (area.range.start, area.range.end - area.range.start);
        let (file, offset) = match area.kind.image {
            None => (-1, 0),
            Some((image, distance)) => (
                self.pool.image(self.tree, image, false)?,
                start.wrapping_sub(distance),
            ),
        };
        if file < 0 {
            flags |= libc::MAP_ANONYMOUS;
        }
        let protection = u64::from(area.protection);
        list.call(
            libc::SYS_mmap,
            &[start, bytes, protection, flags as u64, file as u64, offset],
            "map memory that children inherit",
        )
        .expect(Check::Equals(start));
        Ok(())
    }
}
