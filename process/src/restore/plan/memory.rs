//! Memory: unmaps the tracker's mappings and creates the program's.

use super::super::Error;
use super::super::stub::{Check, List};
use super::{MAP_IMAGE, Writer};
use crate::state::{Backing, KernelPart, Mapping, ObjectKind, Process, advice, attachments};

/// The first two arguments of `PR_SET_THP_DISABLE`: off altogether, but for memory that asks for them, or
/// not at all.
pub fn huge_pages_off(off: bool, only_advised: bool) -> [u64; 2] {
    const EXCEPT_ADVISED: u64 = 2;
    match (off, only_advised) {
        (true, _) => [1, 0],
        (false, true) => [1, EXCEPT_ADVISED],
        (false, false) => [0, 0],
    }
}

impl Writer<'_> {
    /// Before its mappings are created. The first write to a mapping must not bring in 511 pages of
    /// zeros: pages of the store are still to be filled in there.
    pub(super) fn huge_pages(&self, list: &mut List, process: &Process) {
        // It may have inherited ours.
        let off = process.thp_disabled || !self.copy_all;
        let [disable, flags] = huge_pages_off(off, process.huge_pages_only_advised);
        let call = list.prctl(
            libc::PR_SET_THP_DISABLE,
            &[disable, flags, 0, 0],
            "switch huge pages off or on",
        );
        if !off {
            call.expect(Check::Any);
        }
    }

    /// Replaces our memory by the program's mappings; those that it shares with its parent or its children
    /// are there.
    pub(super) fn memory(&mut self, list: &mut List, index: usize) -> Result<(), Error> {
        let process = &self.tree.processes[index];
        let kept = self.kept(index, process);
        let parked = self.empty(list, &kept);
        self.drop_pages(list, index);
        // Between what is parked, the kernel has room.
        let own = self.region.base()..self.region.end();
        let mut occupied = vec![own];
        let mut from = self.region.parking();
        for (_, _, bytes) in &self.kernel.parts {
            occupied.push(from..from + bytes);
            from += bytes;
        }
        occupied.extend(kept);
        self.rings(list, process, occupied)?;
        self.segments(list, process)?;
        for (at, mapping) in process.mappings.iter().enumerate() {
            let parts = self.sharing.of(index).map(|shares| &shares.parts);
            match parts.and_then(|parts| parts.get(&at)) {
                Some(&protection) => {
                    protect(list, mapping, protection);
                    self.advise(list, mapping)?;
                }
                None => self.mapping(list, process.pid, mapping, &parked)?,
            }
        }
        Ok(())
    }

    /// Attaches System V segments, each as a whole, and takes away what is not mapped any more.
    fn segments(&self, list: &mut List, process: &Process) -> Result<(), Error> {
        for attachment in attachments(self.tree, process) {
            let object = &self.tree.objects[attachment.object as usize];
            let ObjectKind::SystemV { ipc, .. } = &object.kind else {
                let what = "a mapping of no System V segment".to_owned();
                return Err(Error::Description(what));
            };
            let pieces = attachment.pieces.iter().map(|at| &process.mappings[*at]);
            let mut flags = if attachment.writable {
                0
            } else {
                libc::SHM_RDONLY
            };
            let executed = |piece: &Mapping| i32::from(piece.protection) & libc::PROT_EXEC != 0;
            if pieces.clone().any(executed) {
                flags |= libc::SHM_EXEC;
            }
            list.call(
                libc::SYS_shmat,
                &[ipc.id as u64, attachment.start, flags as u64],
                "attach a System V segment",
            )
            .about(attachment.start)
            .expect(Check::Equals(attachment.start));
            let mut from = attachment.start;
            let kept = pieces.clone().map(|piece| (piece.start, piece.end));
            for (start, end) in kept.chain([(attachment.end, attachment.end)]) {
                if from < start {
                    let arguments = [from, start - from];
                    list.call(libc::SYS_munmap, &arguments, "unmap a part of a segment");
                }
                from = end;
            }
            for piece in pieces {
                let arguments = [
                    piece.start,
                    piece.end - piece.start,
                    u64::from(piece.protection),
                ];
                list.call(libc::SYS_mprotect, &arguments, "protect a segment");
            }
        }
        Ok(())
    }

    fn mapping(
        &mut self,
        list: &mut List,
        pid: i32,
        mapping: &Mapping,
        parked: &[(KernelPart, u64)],
    ) -> Result<(), Error> {
        let (start, bytes) = (mapping.start, mapping.end - mapping.start);
        let protection = u64::from(mapping.protection);
        let has = |bit: u32| mapping.advice & bit != 0;
        let kind = if mapping.shared {
            libc::MAP_SHARED
        } else if has(advice::DROPPABLE) && mapping.backing == Backing::Anonymous {
            libc::MAP_DROPPABLE
        } else {
            libc::MAP_PRIVATE
        };
        let mut flags = kind | libc::MAP_FIXED_NOREPLACE;
        if has(advice::NO_RESERVE) {
            flags |= libc::MAP_NORESERVE;
        }
        if has(advice::GROWS_DOWN) {
            flags |= libc::MAP_GROWSDOWN;
        }
        if mapping.huge_page_bytes != 0 && mapping.backing == Backing::Anonymous {
            flags |= libc::MAP_HUGETLB;
            flags |= (mapping.huge_page_bytes.trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
        }
        let mut map = |flags: i32, fd: u64, action| {
            let arguments = [start, bytes, protection, flags as u64, fd, mapping.offset];
            list.call(libc::SYS_mmap, &arguments, action)
                .expect(Check::Equals(start));
        };
        match mapping.backing {
            Backing::Anonymous => map(flags | libc::MAP_ANONYMOUS, u64::MAX, "map memory"),
            Backing::Image { image, writable } => {
                let fd = self.pool.image(self.tree, image, writable)?;
                map(flags, fd as u64, MAP_IMAGE);
            }
            Backing::Object(object) => {
                let fd = match has(advice::READ_ONLY) {
                    true => self.pool.object_to_read(object)?,
                    false => self.pool.objects[object as usize],
                };
                map(flags, fd as u64, "map shared memory");
            }
            // Attached already.
            Backing::SystemV { .. } => {}
            // Mapped already.
            Backing::Uring(_) => {}
            Backing::Kernel(part) => {
                let place = parked
                    .iter()
                    .find(|(own, _)| *own == part)
                    .map(|(_, at)| *at);
                let Some(place) = place else {
                    return Err(Error::Kernel(format!("it has no {part:?} mapping")));
                };
                let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                list.call(
                    libc::SYS_mremap,
                    &[place, bytes, bytes, fixed, start],
                    "place the vdso",
                )
                .about(start)
                .expect(Check::Equals(start));
                return Ok(());
            }
            Backing::AioRing { events, ring } => {
                // The kernel writes the address of the ring, which is its name, to where the next
                // call has its first argument; the moved ring has its old name.
                let next = list.len() + 1;
                let room = u64::from(events / 2).saturating_sub(1);
                list.call(libc::SYS_io_setup, &[room], "set up asynchronous I/O")
                    .points_to(1, next, 0);
                let fixed = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                list.call(
                    libc::SYS_mremap,
                    &[0, bytes, bytes, fixed, start],
                    "place an I/O ring",
                )
                .about(start)
                .expect(Check::Equals(start));
                return self.unread_events(list, pid, start, events, ring);
            }
        }
        self.advise(list, mapping)
    }

    /// Advice about a mapping, and its name.
    fn advise(&mut self, list: &mut List, mapping: &Mapping) -> Result<(), Error> {
        let (start, bytes) = (mapping.start, mapping.end - mapping.start);
        for (bit, number) in [
            (advice::DONT_FORK, libc::MADV_DONTFORK),
            (advice::WIPE_ON_FORK, libc::MADV_WIPEONFORK),
            (advice::DONT_DUMP, libc::MADV_DONTDUMP),
            (advice::HUGE, libc::MADV_HUGEPAGE),
            (advice::NO_HUGE, libc::MADV_NOHUGEPAGE),
            (advice::MERGEABLE, libc::MADV_MERGEABLE),
            (advice::SEQUENTIAL, libc::MADV_SEQUENTIAL),
            (advice::RANDOM, libc::MADV_RANDOM),
        ] {
            if mapping.advice & bit != 0 {
                // Advice that this kernel does not know is no loss.
                list.call(libc::SYS_madvise, &[start, bytes, number as u64], "advise")
                    .expect(Check::Any);
            }
        }
        if let Some(name) = &mapping.name {
            let name = self.string(name)?;
            let kind = libc::PR_SET_VMA_ANON_NAME as u64;
            list.prctl(libc::PR_SET_VMA, &[kind, start, bytes, name], "name memory")
                .expect(Check::Any);
        }
        Ok(())
    }

    /// Tells the kernel where things lie, and what the program is.
    pub(super) fn layout(&mut self, list: &mut List, process: &Process) -> Result<(), Error> {
        let auxv: Vec<u64> = process
            .auxv
            .iter()
            .flat_map(|&(kind, value)| [kind, value])
            .chain([0, 0])
            .collect();
        let vector = self.words(&auxv)?;
        let executable = self.pool.image(self.tree, process.executable, false)? as u64;
        let mut map = process.layout.addresses().to_vec();
        map.extend([vector, (auxv.len() * 8) as u64 | executable << 32]);
        let map = self.words(&map)?;
        list.prctl(
            libc::PR_SET_MM,
            &[libc::PR_SET_MM_MAP as u64, map, 104, 0],
            "set the memory layout",
        );
        for mapping in &process.mappings {
            if mapping.advice & advice::LOCKED != 0 {
                let bytes = mapping.end - mapping.start;
                // What is filled while the program runs must not be brought in here.
                let on_fault = mapping.advice & advice::LOCKED_ON_FAULT != 0 || !self.copy_all;
                let arguments = [mapping.start, bytes, u64::from(on_fault)];
                list.call(libc::SYS_mlock2, &arguments, "lock memory")
                    .expect(Check::Any);
            }
        }
        // Nothing is mapped any more.
        if process.locks_future != 0 {
            let arguments = [process.locks_future as u64];
            list.call(libc::SYS_mlockall, &arguments, "lock memory to come");
        }
        Ok(())
    }
}

/// Seals mappings: the last that is done with memory.
pub(super) fn seals(list: &mut List, process: &Process) {
    const SYS_MSEAL: libc::c_long = 462;
    for mapping in &process.mappings {
        let of_kernel = matches!(mapping.backing, Backing::Kernel(_));
        if mapping.advice & advice::SEALED != 0 && !of_kernel {
            let bytes = mapping.end - mapping.start;
            list.call(SYS_MSEAL, &[mapping.start, bytes, 0], "seal memory")
                .about(mapping.start);
        }
    }
}

/// Gives a part of an area, which has this protection so far, its own.
fn protect(list: &mut List, mapping: &Mapping, protection: u8) {
    if protection != mapping.protection {
        let bytes = mapping.end - mapping.start;
        let arguments = [mapping.start, bytes, u64::from(mapping.protection)];
        list.call(libc::SYS_mprotect, &arguments, "protect memory");
    }
}
