//! Compares the memory of a program with that of its copy, page by page, where either has pages.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use dormouse_system::proc::pagemap::{self, FILE, PRESENT, SWAPPED, Scan, ZERO};

use crate::ptrace::Pid;
use crate::state::{Backing, Mapping, Process, Tree, advice};
use crate::store::PAGE_BYTES;
use crate::store::format::checksum;

/// The first difference of each process, in words. `copies`: number inside, and number as we see it.
///
/// # Errors
/// Memory cannot be read.
pub fn differences(tree: &Tree, copies: &[(Pid, Pid)]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
        let copy = copies.iter().find(|(own, _)| *own == process.pid);
        let Some((_, copy)) = copy else {
            found.push(format!("process {}: in the copy not there", process.pid));
            continue;
        };
        if let Some(address) = first_difference(process, *copy)? {
            found.push(format!(
                "process {}: memory at {address:#x}: other contents in the copy",
                process.pid
            ));
        }
    }
    Ok(found)
}

/// Whether the contents of a mapping are the program's own: not those of a file on disk, and not such as
/// may come back empty.
fn is_compared(mapping: &Mapping) -> bool {
    let own = match mapping.backing {
        Backing::Anonymous | Backing::Object(_) | Backing::SystemV { .. } | Backing::Uring(_) => {
            true
        }
        Backing::Image { .. } => !mapping.shared,
        Backing::Kernel(_) | Backing::AioRing { .. } => false,
    };
    own && mapping.advice & advice::DROPPABLE == 0
}

/// Whether the process itself cannot read it. Some kernels then let only the thread that traces the process
/// (`CONFIG_PROC_MEM_FORCE_PTRACE`): program and copy have different ones.
fn is_protected(mapping: &Mapping) -> bool {
    mapping.protection & libc::PROT_READ as u8 == 0
}

/// A digest of each private mapping that a process itself cannot read, by its start; for the thread that
/// traces the process. Pages of zeros count as pages that are not there.
///
/// # Errors
/// Memory cannot be read.
pub fn protected(process: &Process) -> io::Result<Vec<(u64, u64)>> {
    let mut digests = Vec::new();
    let private =
        |mapping: &&Mapping| is_protected(mapping) && is_compared(mapping) && !mapping.shared;
    let mut mappings = process.mappings.iter().filter(private).peekable();
    if mappings.peek().is_none() {
        return Ok(digests);
    }
    let memory = File::open(format!("/proc/{}/mem", process.pid))?;
    let map = pagemap::open(process.pid)?;
    for mapping in mappings {
        let mut pages = BTreeSet::new();
        own_pages(&map, mapping, &mut pages)?;
        let (mut bytes, mut sums) = ([0u8; PAGE_BYTES as usize], Vec::new());
        for page in pages {
            memory.read_exact_at(&mut bytes, page)?;
            if bytes.iter().any(|byte| *byte != 0) {
                sums.extend(page.to_ne_bytes());
                sums.extend(checksum(&bytes).to_ne_bytes());
            }
        }
        digests.push((mapping.start, checksum(&sums)));
    }
    Ok(digests)
}

fn first_difference(process: &Process, copy: Pid) -> io::Result<Option<u64>> {
    let open = |pid: Pid| File::open(format!("/proc/{pid}/mem"));
    let (program_memory, copy_memory) = (open(process.pid)?, open(copy)?);
    let maps = [pagemap::open(process.pid)?, pagemap::open(copy)?];
    // What only tracers may read is observed by them; of shared memory there is no other view than this.
    let here =
        |mapping: &&Mapping| is_compared(mapping) && (mapping.shared || !is_protected(mapping));
    for mapping in process.mappings.iter().filter(here) {
        let mut pages = BTreeSet::new();
        for map in &maps {
            own_pages(map, mapping, &mut pages)?;
        }
        let (mut one, mut other) = ([0u8; PAGE_BYTES as usize], [0u8; PAGE_BYTES as usize]);
        for page in pages {
            let read = |memory: &File, into: &mut [u8]| memory.read_exact_at(into, page).is_ok();
            let (has, copy_has) = (
                read(&program_memory, &mut one),
                read(&copy_memory, &mut other),
            );
            if has != copy_has {
                if is_protected(mapping) {
                    continue;
                }
                return Ok(Some(page));
            }
            let addresses = (page..).zip(one.iter().zip(&other));
            let differ = addresses.filter(|(_, (one, other))| has && one != other);
            let mut differ = differ.map(|(address, _)| address);
            if let Some(address) = differ.find(|address| !written_by_kernel(process, *address)) {
                return Ok(Some(address));
            }
        }
    }
    Ok(None)
}

/// Whether the kernel writes there by itself: on which processor a thread runs (restartable sequences).
fn written_by_kernel(process: &Process, address: u64) -> bool {
    process.threads.iter().any(|thread| {
        let (start, bytes, _) = thread.rseq;
        start != 0 && (start..start + u64::from(bytes)).contains(&address)
    })
}

/// Pages that zeros or a file do not give; of memory that is shared all that are there.
fn own_pages(map: &File, mapping: &Mapping, pages: &mut BTreeSet<u64>) -> io::Result<()> {
    let what = Scan {
        any_of: PRESENT | SWAPPED,
        none_of: if mapping.shared { 0 } else { FILE | ZERO },
        reported: PRESENT | SWAPPED,
        ..Scan::default()
    };
    pagemap::scan(map, mapping.start..mapping.end, what, |region| {
        pages.extend((region.start..region.end).step_by(PAGE_BYTES as usize));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs;

    fn mapping(backing: Backing, shared: bool) -> Mapping {
        Mapping {
            start: 0,
            end: PAGE_BYTES,
            protection: 3,
            shared,
            backing,
            offset: 0,
            advice: 0,
            huge_page_bytes: 0,
            name: None,
        }
    }

    #[test]
    fn contents_of_files_on_disk_are_not_compared_and_private_copies_of_them_are() {
        let image = || Backing::Image {
            image: 0,
            writable: true,
        };
        assert!(!is_compared(&mapping(image(), true)));
        assert!(is_compared(&mapping(image(), false)));
        assert!(is_compared(&mapping(Backing::Object(0), true)));
        let mut droppable = mapping(Backing::Anonymous, false);
        assert!(is_compared(&droppable));
        droppable.advice = advice::DROPPABLE;
        assert!(!is_compared(&droppable));
    }

    /// What is described as protected, and is readable here: no kernel has to let this process read more.
    #[test]
    fn one_byte_changes_the_digest_of_memory_that_a_process_cannot_read() {
        let page = PAGE_BYTES as usize;
        let mut bytes = vec![1u8; page * 4];
        let first = bytes.as_ptr().align_offset(page);
        let start = bytes[first..].as_ptr() as u64;
        let mut own = mapping(Backing::Anonymous, false);
        (own.start, own.end, own.protection) = (start, start + 2 * PAGE_BYTES, 0);
        let mut process = Process::empty(std::process::id() as Pid, 0);
        process.mappings.push(own);
        let mut digest = |at: usize, byte: u8| {
            bytes[at..at + 1].fill(std::hint::black_box(byte));
            protected(&process).expect("readable")
        };
        let before = digest(first, 1);
        assert_eq!(before.len(), 1);
        assert_ne!(digest(first + page + 17, 2), before);
        assert_eq!(digest(first + page + 17, 1), before);
        process.mappings[0].protection = 1;
        assert_eq!(protected(&process).expect("readable"), []);
        process.mappings[0].protection = 0;
        bytes.fill(0);
        let of_zeros = protected(&process).expect("readable");
        assert_eq!(of_zeros[0].1, checksum(&[]));
    }

    #[test]
    fn a_page_that_differs_is_found_by_its_first_byte() {
        let page = PAGE_BYTES as usize;
        let mut bytes = vec![1u8; page * 3];
        let start = (bytes.as_mut_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let pid = std::process::id() as Pid;
        let maps = procfs::maps(pid).expect("ours");
        assert!(maps.iter().any(|map| map.start <= start && start < map.end));
        let mut own = mapping(Backing::Anonymous, false);
        (own.start, own.end) = (start, start + PAGE_BYTES);
        let mut process = Process::empty(pid, 0);
        process.mappings.push(own);
        // SAFETY: the child has one thread, and only waits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                let at = (start + 17) as *mut u8;
                at.write_volatile(2);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
        }
        // SAFETY: no memory involved; it is our child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WUNTRACED) };
        let with_itself = first_difference(&process, pid).expect("compared");
        let found = first_difference(&process, child).expect("compared");
        // SAFETY: as above.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert_eq!((with_itself, found), (None, Some(start + 17)));
        drop(bytes);
    }
}
