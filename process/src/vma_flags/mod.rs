//! The flags of mappings (`VmFlags` of `/proc/PID/smaps`) without a count of their pages.
//!
//! For each mapping `smaps` visits all of its pages: up to 30 ms for 1 GiB. A BPF iterator over the
//! mappings of a task reads the flags alone, as a word whose bits mean something else in every kernel
//! version. What they mean is learned from mappings of our own (`probes.rs`), of which `smaps` tells the names
//! (`legend.rs`); so nothing is known of a kernel in advance, and a bit that no probe has is not guessed.

mod legend;
mod probes;
mod reader;

use std::io;

use crate::procfs;
use crate::ptrace::Pid;

use legend::Legend;
use probes::Probes;
pub use reader::Area;
use reader::Reader;

/// Mappings that the kernel makes for each process.
const KERNELS: [&str; 3] = ["[vvar]", "[vvar_vclock]", "[vdso]"];

/// Reads flags of mappings; closed when dropped.
#[derive(Debug)]
pub struct VmaFlags {
    reader: Reader,
    legend: Legend,
}

impl VmaFlags {
    /// Loads the iterator and learns this kernel's flags; it takes some milliseconds.
    ///
    /// # Errors
    /// The kernel has no such iterator or no BTF, or we may not load BPF programs; or our own mappings
    /// cannot be read, or have a flag that no bit explains.
    pub fn load() -> io::Result<Self> {
        let reader = Reader::load()?;
        let probes = Probes::new()?;
        let words = reader.read(std::process::id() as Pid)?;
        let names = named(&procfs::text("/proc/self/smaps")?);
        // Other threads may change any mappings but these.
        let stands = |mapping: &Named| {
            probes.range().contains(&mapping.start) || KERNELS.contains(&mapping.name.as_str())
        };
        let known = names.into_iter().filter(stands).filter_map(|mapping| {
            let same = |area: &&Area| area.start == mapping.start;
            let word = words.iter().find(same)?.flags;
            Some((word, mapping.flags))
        });
        let legend = Legend::learn(&known.collect::<Vec<_>>())
            .ok_or_else(|| io::Error::other("smaps shows a flag that is none of the bits"))?;
        Ok(Self { reader, legend })
    }

    /// The mappings of a process or thread that stands still, in ascending order. Its memory may be of any
    /// size.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn areas(&self, task: Pid) -> io::Result<Vec<Area>> {
        self.reader.read(task)
    }

    /// The names of the flags of a mapping, two letters each, as in the line `VmFlags` of `smaps`; `None`: it
    /// has a flag that is not known.
    pub fn names(&self, area: &Area) -> Option<Vec<String>> {
        self.legend.names(area.flags)
    }
}

/// A mapping in `smaps`.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    start: u64,
    name: String,
    flags: Vec<String>,
}

fn named(smaps: &str) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(last) = all.last_mut() {
                last.flags = flags.split_ascii_whitespace().map(str::to_owned).collect();
            }
        } else if let Ok(maps) = procfs::parse_maps(line.as_bytes()) {
            all.extend(maps.into_iter().map(|map| Named {
                start: map.start,
                name: map.name,
                flags: Vec::new(),
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root's tests only: others may not load BPF programs.
    fn loaded() -> Option<VmaFlags> {
        match VmaFlags::load() {
            Ok(flags) => Some(flags),
            Err(error) => {
                eprintln!("not tried: {error}");
                assert!(!rustix::process::geteuid().is_root() || !has_btf());
                None
            }
        }
    }

    fn has_btf() -> bool {
        std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
    }

    /// A process of another program has mappings that none of ours was made for.
    #[test]
    fn flags_of_any_process_are_those_that_smaps_names() {
        let Some(flags) = loaded() else { return };
        let mut child = std::process::Command::new("sleep")
            .arg("1d")
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        // Its mappings stand still once it sleeps.
        let sleeps = || {
            procfs::text(format!("/proc/{pid}/wchan"))
                .unwrap()
                .contains("nanosleep")
        };
        while !sleeps() {
            std::thread::yield_now();
        }
        let expected = named(&procfs::text(format!("/proc/{pid}/smaps")).unwrap());
        let found = flags.areas(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.len() > 10);
        // `smaps` shows a page of the kernel, [vsyscall], too.
        for mapping in expected.iter().filter(|mapping| mapping.start < 1 << 63) {
            let mut sorted = mapping.flags.clone();
            sorted.sort();
            let area = found.iter().find(|area| area.start == mapping.start);
            let area = area.unwrap_or_else(|| panic!("{mapping:?} is missing"));
            let mut names = flags.names(area);
            names.iter_mut().for_each(|names| names.sort());
            assert_eq!(names, Some(sorted), "{mapping:?}");
        }
        assert!(flags.areas(pid).map_or(true, |areas| areas.is_empty()));
    }

    /// More than the kernel returns at once.
    #[test]
    fn all_of_many_mappings_are_read() {
        const MANY: usize = 5_000;
        let Some(flags) = loaded() else { return };
        let bytes = MANY * 4096;
        // SAFETY: a new mapping; the pages of it that become accessible are in no use.
        let start = unsafe {
            let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                anonymous,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            for page in (0..MANY).step_by(2) {
                assert_eq!(
                    libc::mprotect(start.add(page * 4096), 4096, libc::PROT_READ),
                    0
                );
            }
            start
        };
        let range = start as u64..start as u64 + bytes as u64;
        let found = flags.areas(std::process::id() as Pid).unwrap();
        let found: Vec<_> = found
            .iter()
            .filter(|area| range.contains(&area.start))
            .collect();
        assert_eq!(found.len(), MANY);
        for (nth, area) in found.iter().enumerate() {
            assert_eq!(area.start, range.start + nth as u64 * 4096);
            let readable = flags.names(area).unwrap().contains(&"rd".to_owned());
            assert_eq!(readable, nth % 2 == 0, "{nth}");
        }
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(start, bytes) };
    }

    #[test]
    fn names_stand_under_their_mapping() {
        let text = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
Size: 2048 kB\nVmFlags: rd wr mr mw me ac dc hg \n\
7f0000400000-7f0000800000 r-xp 00000000 00:00 0    [vdso]\nVmFlags: rd ex mr me \n";
        let expect = |start: u64, name: &str, flags: &str| Named {
            start,
            name: name.to_owned(),
            flags: flags.split(' ').map(str::to_owned).collect(),
        };
        assert_eq!(
            named(text),
            [
                expect(0x7f00_0000_0000, "", "rd wr mr mw me ac dc hg"),
                expect(0x7f00_0040_0000, "[vdso]", "rd ex mr me")
            ]
        );
    }
}
