//! The system calls that see and move pages of other processes, behind one small trait.

use std::io;

use dormouse_system::proc::pagemap::{self, Scan};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// A run of present pages in a process; `huge`: mapped by huge pages, one address moves 2 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Address of its first byte.
    pub start: u64,
    /// Address behind its last byte.
    pub end: u64,
    /// Whether it consists of huge pages.
    pub huge: bool,
}

/// What can be asked and done about the pages of a process. Errors are the system calls'.
pub trait Pages: Sync {
    /// Calls `found` with each run of present pages, ascending, without the kernel's shared zero
    /// page, while the scan goes on.
    ///
    /// # Errors
    /// `ESRCH`/`ENOENT`: the process has ended. `ENOTTY`: this kernel cannot scan.
    fn scan(&self, pid: i32, found: &mut dyn FnMut(Run)) -> io::Result<()>;

    /// All of them.
    ///
    /// # Errors
    /// As [`Pages::scan`].
    fn present(&self, pid: i32) -> io::Result<Vec<Run>> {
        let mut runs = Vec::new();
        self.scan(pid, &mut |run| runs.push(run))?;
        Ok(runs)
    }

    /// The node of each page, or a negative errno, into `status`.
    ///
    /// # Errors
    /// As move_pages(2).
    fn nodes(&self, pid: i32, pages: &[u64], status: &mut [i32]) -> io::Result<()>;

    /// Moves the pages to `node`; in `status` the node or a negative errno, untouched for pages
    /// that the kernel did not get to. Returns how many pages were left at least.
    ///
    /// # Errors
    /// As move_pages(2).
    fn move_to(&self, pid: i32, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<u64>;

    /// Moves every page of the process from the nodes `from` to `to`; returns how many could not.
    ///
    /// # Errors
    /// As migrate_pages(2).
    fn move_all(&self, pid: i32, from: &[u32], to: u32) -> io::Result<u64>;
}

/// The running kernel.
pub struct Kernel;

const MPOL_MF_MOVE_ALL: i32 = 1 << 2;
/// Words of a node mask: 1024 nodes, more than any kernel is built for.
const NODE_MASK_WORDS: usize = 16;

/// End of the user half of the address space with four-level tables; with five levels nothing
/// lies above it unless a program asks for such an address.
const USER_END: u64 = 0x7fff_ffff_f000;

/// The pages of the vDSO in /proc/PID/maps: every process has them, and they are the kernel's own.
fn parse_vdso(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    ))
}

impl Pages for Kernel {
    fn scan(&self, pid: i32, found: &mut dyn FnMut(Run)) -> io::Result<()> {
        // Asking for what can never move would only make the kernel cut a call short.
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let vdso = parse_vdso(&maps).unwrap_or_default();
        let what = Scan {
            all_of: pagemap::PRESENT,
            none_of: pagemap::ZERO,
            reported: pagemap::PRESENT | pagemap::HUGE,
            ..Scan::default()
        };
        pagemap::scan(&pagemap::open(pid)?, 0..USER_END, what, |region| {
            let huge = region.has(pagemap::HUGE);
            let before = (region.start, region.end.min(vdso.0));
            let after = (region.start.max(vdso.1), region.end);
            for (start, end) in [before, after] {
                if start < end {
                    found(Run { start, end, huge });
                }
            }
        })
    }

    fn nodes(&self, pid: i32, pages: &[u64], status: &mut [i32]) -> io::Result<()> {
        move_pages(pid, pages, None, status, 0).map(|_| ())
    }

    fn move_to(&self, pid: i32, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<u64> {
        let nodes = vec![node as i32; pages.len()];
        move_pages(pid, pages, Some(&nodes), status, MPOL_MF_MOVE_ALL)
    }

    fn move_all(&self, pid: i32, from: &[u32], to: u32) -> io::Result<u64> {
        let from_mask = node_mask(from)?;
        let to_mask = node_mask(&[to])?;
        // SAFETY: both masks hold NODE_MASK_WORDS words; the kernel reads one bit less than the argument says.
        let left = unsafe {
            libc::syscall(
                libc::SYS_migrate_pages,
                pid,
                (NODE_MASK_WORDS * 64 + 1) as libc::c_ulong,
                from_mask.as_ptr(),
                to_mask.as_ptr(),
            )
        };
        if left < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(left as u64)
        }
    }
}

fn move_pages(
    pid: i32,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    flags: i32,
) -> io::Result<u64> {
    assert_eq!(addresses.len(), status.len(), "a status for each address");
    let nodes_pointer = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: all arrays have `addresses.len()` elements (64-bit addresses are pointers here) and
    // the kernel writes only `status`.
    let left = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len() as libc::c_ulong,
            addresses.as_ptr(),
            nodes_pointer,
            status.as_mut_ptr(),
            flags,
        )
    };
    if left < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(left as u64)
    }
}

fn node_mask(nodes: &[u32]) -> io::Result<[u64; NODE_MASK_WORDS]> {
    let mut mask = [0u64; NODE_MASK_WORDS];
    for node in nodes {
        let word = mask.get_mut(*node as usize / 64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("node {node} is out of range"),
            )
        })?;
        *word |= 1 << (node % 64);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_one_bit_for_each_node() {
        let mask = node_mask(&[0, 65]).unwrap();
        assert_eq!((mask[0], mask[1], mask[2]), (1, 2, 0));
        assert!(node_mask(&[1024]).is_err());
    }

    #[test]
    fn the_vdso_is_found_among_the_mappings() {
        let maps = "7ffe1000-7ffe3000 r--p 00000000 00:00 0    [vvar]\n\
                    7ffe3000-7ffe5000 r-xp 00000000 00:00 0    [vdso]\n";
        assert_eq!(parse_vdso(maps), Some((0x7ffe_3000, 0x7ffe_5000)));
        assert_eq!(parse_vdso("7ffe1000 [vdso]"), None);
    }

    #[test]
    fn a_touched_page_of_this_process_is_seen_and_an_untouched_one_is_not() {
        let bytes = 64 * PAGE_BYTES as usize;
        // SAFETY: a fresh private mapping, written once inside its bounds, unmapped at the end.
        unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            let touched = base as u64 + 5 * PAGE_BYTES;
            *(touched as *mut u8) = 1;
            match Kernel.present(std::process::id() as i32) {
                Ok(runs) => {
                    let seen = |address: u64| {
                        runs.iter()
                            .any(|run| run.start <= address && address < run.end)
                    };
                    assert!(seen(touched));
                    assert!(!seen(touched + PAGE_BYTES));
                }
                // A kernel before 6.7: migrate_pages(2) is used instead.
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY)),
            }
            libc::munmap(base, bytes);
        }
    }
}
