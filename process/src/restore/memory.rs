//! Memory of the recreated processes: free address space, and the pages that are copied first.

use std::io;
use std::ops::Range;

use super::error::system;
use super::read_only::ReadOnlyMemory;
use super::sharing::{Fill, Sharing, ranges};
use super::stub::Region;
use super::{Error, LeftToFill, Options};
use crate::procfs::MapsLine;
use crate::state::{Backing, KernelPart, Process, Tree, advice, attachments};
use crate::store::{Extent, PAGE_BYTES, Snapshot, SpaceId};

/// Holes are looked for from here: above what programs use, below the kernel's choice for mmap.
const HOLE_FROM: u64 = 0x1000_0000_0000;
const HOLE_STEP: u64 = 1 << 30;
/// Pieces of one process_vm_writev.
const PIECES_MAX: usize = 1024;

/// Our own vdso and its data, which the recreated processes get.
#[derive(Debug)]
pub struct KernelMappings {
    /// Part, start, bytes; ascending.
    pub parts: Vec<(KernelPart, u64, u64)>,
}

impl KernelMappings {
    /// Finds them, and checks that they can stand in for those of the description.
    ///
    /// # Errors
    /// Another kernel with another vdso: threads may stand in it, and the C library knows the
    /// addresses of its functions.
    pub fn find(own: &[MapsLine], tree: &Tree) -> Result<Self, Error> {
        let parts: Vec<(KernelPart, u64, u64)> = own
            .iter()
            .filter_map(|map| {
                let part = match map.name.as_str() {
                    "[vdso]" => KernelPart::Vdso,
                    "[vvar]" => KernelPart::Vvar,
                    "[vvar_vclock]" => KernelPart::VvarClock,
                    _ => return None,
                };
                Some((part, map.start, map.end - map.start))
            })
            .collect();
        if tree.kernel.vdso_digest == 0 {
            return Ok(Self { parts });
        }
        let mut here = 0;
        for &(part, start, bytes) in &parts {
            if part == KernelPart::Vdso {
                // SAFETY: the vdso is mapped as long as we live, and readable.
                let code =
                    unsafe { std::slice::from_raw_parts(start as *const u8, bytes as usize) };
                here = crate::capture::vdso_digest(code);
            }
        }
        if here != tree.kernel.vdso_digest {
            return Err(Error::Kernel(format!(
                "it was persisted on Linux {}, whose vdso differs from this kernel's; boot that \
                 kernel",
                tree.kernel.release
            )));
        }
        for process in &tree.processes {
            for mapping in &process.mappings {
                let Backing::Kernel(part) = mapping.backing else {
                    continue;
                };
                let bytes = mapping.end - mapping.start;
                if !parts
                    .iter()
                    .any(|&(own, _, length)| own == part && length == bytes)
                {
                    return Err(Error::Kernel(format!(
                        "process {} has a {part:?} mapping of {bytes} bytes, this kernel has none \
                         such",
                        process.pid
                    )));
                }
            }
        }
        Ok(Self { parts })
    }
}

/// A place for the restorer, mapped, that is free here and in all processes of the tree.
///
/// # Errors
/// There is none, or no memory.
pub fn map_restorer(tree: &Tree, own: &[MapsLine]) -> Result<Region, Error> {
    for hole in holes(tree, own) {
        match Region::new(hole) {
            // Another thread of ours has mapped something there since.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            mapped => return mapped.map_err(system("map the restorer")),
        }
    }
    Err(no_hole())
}

/// Checks that there is address space for the restorer.
///
/// # Errors
/// There is none.
pub fn check_hole(tree: &Tree, own: &[MapsLine]) -> Result<(), Error> {
    holes(tree, own).next().map(|_| ()).ok_or_else(no_hole)
}

fn no_hole() -> Error {
    Error::Description("no free address space for the restorer".to_owned())
}

/// Starts of address space for the restorer that was free here when `own` was read, and is free in all
/// processes of the tree.
fn holes(tree: &Tree, own: &[MapsLine]) -> impl Iterator<Item = u64> {
    // Segments are attached as a whole first.
    let attached: Vec<_> = living(tree)
        .flat_map(|process| attachments(tree, process))
        .collect();
    let free = move |start: u64| {
        let end = start + Region::BYTES;
        own.iter().all(|map| map.end <= start || end <= map.start)
            && tree
                .processes
                .iter()
                .flat_map(|process| &process.mappings)
                .all(|mapping| mapping.end <= start || end <= mapping.start)
            && attached
                .iter()
                .all(|attached| attached.end <= start || end <= attached.start)
    };
    let limit = 0x7000_0000_0000 / HOLE_STEP;
    (HOLE_FROM / HOLE_STEP..limit)
        .chain(1..HOLE_FROM / HOLE_STEP)
        .map(|step| step * HOLE_STEP)
        .filter(move |&start| free(start))
}

fn living(tree: &Tree) -> impl Iterator<Item = &Process> {
    let processes = tree.processes.iter();
    processes.filter(|process| process.zombie.is_none())
}

/// Whether all pages are copied before the tree runs.
pub fn copies_all(tree: &Tree, snapshot: &dyn Snapshot, options: &Options) -> bool {
    let mut total = 0;
    living(tree).all(|process| {
        let extents = snapshot.extents(process.space);
        total += extents.map(|extent| extent.bytes).sum::<u64>();
        total <= options.copy_all_bytes_max
    })
}

/// Copies pages that a process shares with its children, before it creates them.
///
/// # Errors
/// A page is damaged, or cannot be written.
pub fn fill_early(process: &Process, fills: &[Fill], snapshot: &dyn Snapshot) -> Result<(), Error> {
    let mut writer = Writer::new(process)?;
    for fill in fills {
        for extent in snapshot.extents_in(fill.space, fill.range.clone()) {
            writer.add(snapshot, fill.space, fill.protection, &extent)?;
        }
    }
    writer.finish()
}

/// Copies the pages that must be there before the tree runs, or all; returns the mappings that are left.
///
/// # Errors
/// A page is damaged, or cannot be written.
pub fn fill(
    tree: &Tree,
    snapshot: &dyn Snapshot,
    sharing: &Sharing,
    copy_all: bool,
) -> Result<Vec<LeftToFill>, Error> {
    let mut left = Vec::new();
    for (index, process) in tree.processes.iter().enumerate() {
        if process.zombie.is_some() {
            continue;
        }
        let mut writer = Writer::new(process)?;
        let urgent = urgent_pages(process);
        let shares = sharing.of(index);
        let there = shares.map_or(&[][..], |shares| &shares.there);
        let replaced = shares.map_or(&[][..], |shares| &shares.replaced);
        for mapping in &process.mappings {
            // Droppable memory holds what must not be used twice, such as the state of a random number
            // generator: it comes back empty, which its user must expect at any time.
            let droppable = mapping.advice & advice::DROPPABLE != 0;
            if mapping.shared || droppable || matches!(mapping.backing, Backing::Kernel(_)) {
                continue;
            }
            // A child gets no such memory, or an empty one: what its parent lacks is not for it.
            let not_inherited = mapping.advice & (advice::DONT_FORK | advice::WIPE_ON_FORK) != 0;
            let at_once = copy_all
                || not_inherited
                || mapping.backing != Backing::Anonymous
                || mapping.huge_page_bytes != 0;
            let range = mapping.start..mapping.end;
            let mut filled: Vec<_> = ranges::clip(there, &range).collect();
            let mut copy = |range: Range<u64>| {
                // Extents may reach over the end of a mapping into its neighbour.
                for extent in snapshot.extents_in(process.space, range) {
                    writer.add(snapshot, process.space, mapping.protection, &extent)?;
                }
                Ok::<(), Error>(())
            };
            if at_once {
                let others = ranges::outside(&filled, &range);
                others.into_iter().try_for_each(copy)?;
                continue;
            }
            for replaced in ranges::clip(replaced, &range) {
                copy(replaced.clone())?;
                filled.push(replaced);
            }
            filled.sort_by_key(|range| range.start);
            let stored = |range: &Range<u64>| {
                let mut extents = snapshot.extents_in(process.space, range.clone());
                extents.next().is_some()
            };
            let lacking = ranges::outside(&filled, &range);
            if !lacking.iter().any(stored) {
                continue;
            }
            for page in &urgent {
                if lacking.iter().any(|range| range.contains(page)) {
                    copy(*page..page + PAGE_BYTES)?;
                }
            }
            left.push(LeftToFill {
                pid: process.pid,
                space: process.space,
                range,
                filled,
                huge_pages: !process.thp_disabled,
                only_advised: process.huge_pages_only_advised,
            });
        }
        writer.finish()?;
    }
    Ok(left)
}

/// Pages that the kernel or the stub touches before the program runs, and the tops of stacks;
/// their addresses.
fn urgent_pages(process: &Process) -> Vec<u64> {
    let mut pages: Vec<u64> = process
        .threads
        .iter()
        .flat_map(|thread| {
            [
                thread.rseq.0,
                thread.rseq.0 + u64::from(thread.rseq.1),
                thread.registers.rsp,
            ]
        })
        .filter(|&address| address != 0)
        .map(|address| address & !(PAGE_BYTES - 1))
        .collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// Writes pages into one process, many with one call.
struct Writer {
    pid: i32,
    read_only: ReadOnlyMemory,
    local: Vec<libc::iovec>,
    remote: Vec<libc::iovec>,
    bytes: usize,
}

impl Writer {
    fn new(process: &Process) -> Result<Self, Error> {
        let pid = process.pid;
        let read_only = ReadOnlyMemory::open(pid).map_err(failed(pid))?;
        Ok(Self {
            pid,
            read_only,
            local: Vec::new(),
            remote: Vec::new(),
            bytes: 0,
        })
    }

    fn add(
        &mut self,
        snapshot: &dyn Snapshot,
        space: SpaceId,
        protection: u8,
        extent: &Extent,
    ) -> Result<(), Error> {
        snapshot.check(space, extent)?;
        let bytes = snapshot.bytes(extent);
        if i32::from(protection) & libc::PROT_WRITE == 0 {
            return self
                .read_only
                .write(bytes, extent.start)
                .map_err(failed(self.pid));
        }
        self.local.push(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        self.remote.push(libc::iovec {
            iov_base: extent.start as *mut _,
            iov_len: bytes.len(),
        });
        self.bytes += bytes.len();
        if self.local.len() == PIECES_MAX {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.read_only.finish().map_err(failed(self.pid))
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.local.is_empty() {
            return Ok(());
        }
        // SAFETY: the local pieces lie in the mapped store; the kernel checks the others.
        let written = unsafe {
            libc::process_vm_writev(
                self.pid,
                self.local.as_ptr(),
                self.local.len() as libc::c_ulong,
                self.remote.as_ptr(),
                self.remote.len() as libc::c_ulong,
                0,
            )
        };
        if written != self.bytes as isize {
            let error = if written < 0 {
                io::Error::last_os_error()
            } else {
                io::Error::from_raw_os_error(libc::EFAULT)
            };
            return Err(failed(self.pid)(error));
        }
        self.local.clear();
        self.remote.clear();
        self.bytes = 0;
        Ok(())
    }
}

fn failed(pid: i32) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System {
        action: format!("write the memory of process {pid}"),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_another_thread_takes_meanwhile_is_passed_over() {
        let own = crate::procfs::maps(std::process::id() as i32).expect("our mappings");
        let tree = Tree::empty();
        let first = map_restorer(&tree, &own).expect("a place");
        // The list does not have the first one.
        let second = map_restorer(&tree, &own).expect("another place");
        assert!(second.parking() >= first.end() || first.parking() >= second.end());
    }
}
