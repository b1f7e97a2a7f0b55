//! What a program has advised about its mappings (`madvise`, `mlock`), and other properties of theirs that
//! `/proc/PID/maps` does not show.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::thread::JoinHandle;

use crate::procfs::{self, MapsLine};
use crate::ptrace::Pid;
use crate::state::advice;
use crate::store::PAGE_BYTES;
use crate::vma_flags::VmaFlags;

/// Up to this resident size, `smaps` is read while the program is stopped: about 1 ms.
const SMAPS_PAGES_MAX: u64 = (64 << 20) / PAGE_BYTES;
/// The name of the flag of mappings of huge pages that were reserved.
const HUGE_PAGES: &str = "ht";

/// Reads advice, and remembers it where reading is slow.
///
/// `/proc/PID/smaps` has it, but walks all pages of a process (15 to 60 ms for 1 GiB). Of a large process, a
/// BPF iterator reads it while the process is stopped ([`VmaFlags`]). Where that is not to be had, `smaps` is
/// read while the process runs, and again while it is stopped only if there is a new mapping: advice that
/// the process gives in between about an unchanged mapping is missed. The kind of a mapping and the size of
/// its pages are never taken from what is remembered alone.
#[derive(Debug, Default)]
pub struct AdviceCache {
    /// Of each process, by first address.
    known: HashMap<Pid, BTreeMap<u64, (Key, Advice)>>,
    flags: Flags,
}

/// The reader of flags.
#[derive(Debug, Default)]
enum Flags {
    #[default]
    NotTried,
    Loading(JoinHandle<io::Result<VmaFlags>>),
    Loaded(VmaFlags),
    /// It is not to be had.
    Refused,
}

impl Flags {
    fn load(&mut self) {
        if matches!(self, Flags::NotTried) {
            *self = Flags::Loading(std::thread::spawn(VmaFlags::load));
        }
    }

    /// Waits until it is loaded.
    fn settle(&mut self) {
        *self = match std::mem::take(self) {
            Flags::Loading(loading) => match loading.join() {
                Ok(Ok(flags)) => Flags::Loaded(flags),
                Ok(Err(error)) => {
                    tracing::debug!("advice of large processes is read from smaps: {error}");
                    Flags::Refused
                }
                Err(_) => Flags::Refused,
            },
            other => other,
        };
    }

    /// If it is loaded by now.
    fn get(&mut self) -> Option<&VmaFlags> {
        if matches!(self, Flags::Loading(loading) if loading.is_finished()) {
            self.settle();
        }
        match self {
            Flags::Loaded(flags) => Some(flags),
            _ => None,
        }
    }
}

/// Identifies a mapping, so that another mapping in the same place is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    start: u64,
    end: u64,
    protection: i32,
    shared: bool,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    name: String,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Advice {
    /// As in [`advice`].
    pub bits: u32,
    /// 0: ordinary pages.
    pub huge_page_bytes: u64,
    /// It is of a device.
    pub io_or_special: bool,
    pub shadow_stack: bool,
    /// It can never be made writable.
    pub read_only: bool,
}

fn key(map: &MapsLine) -> Key {
    Key {
        start: map.start,
        end: map.end,
        protection: map.protection,
        shared: map.shared,
        offset: map.offset,
        device: map.device,
        inode: map.inode,
        name: map.name.clone(),
    }
}

impl AdviceCache {
    /// Makes ready, in the background, for a program that has so many bytes of memory and may grow.
    pub fn expect(&mut self, bytes: u64) {
        if bytes / PAGE_BYTES > SMAPS_PAGES_MAX / 2 {
            self.flags.load();
        }
    }

    /// Reads what is slow to read of a process that runs and will be stopped soon.
    ///
    /// # Errors
    /// It has ended, or `/proc/PID/smaps` cannot be read.
    pub fn prepare(&mut self, pid: Pid) -> io::Result<()> {
        if procfs::stat(pid, pid)?.resident_pages <= SMAPS_PAGES_MAX {
            return Ok(());
        }
        self.flags.load();
        self.flags.settle();
        match self.flags.get() {
            Some(_) => Ok(()),
            None => self.refresh(pid),
        }
    }

    /// The advice about all mappings of a stopped process, in their order.
    ///
    /// # Errors
    /// `/proc/PID/smaps` cannot be read.
    pub fn all(
        &mut self,
        pid: Pid,
        maps: &[MapsLine],
        resident_pages: u64,
    ) -> io::Result<Vec<Advice>> {
        let known = match self.flags.get() {
            Some(flags) => exact(flags, pid, maps),
            None if resident_pages > SMAPS_PAGES_MAX => {
                maps.iter().map(|map| self.of(pid, map)).collect()
            }
            None => None,
        };
        if let Some(known) = known {
            return Ok(known);
        }
        self.refresh(pid)?;
        let of = |map| self.of(pid, map).unwrap_or_default();
        Ok(maps.iter().map(of).collect())
    }

    /// Reads the advice of a process anew.
    fn refresh(&mut self, pid: Pid) -> io::Result<()> {
        // A name need not be UTF-8.
        let text = procfs::bytes(format!("/proc/{pid}/smaps"))?;
        let all = parse_smaps(&String::from_utf8_lossy(&text)).into_iter();
        let by_start = all.map(|(key, advice)| (key.start, (key, advice)));
        self.known.insert(pid, by_start.collect());
        Ok(())
    }

    /// What is known about a mapping, or about that which has grown, up or down, to be it.
    fn of(&self, pid: Pid, map: &MapsLine) -> Option<Advice> {
        let key = key(map);
        let known = self.known.get(&pid)?;
        let was = |known: &&(Key, Advice)| {
            let (known, _) = known;
            let (start, end) = (key.start, key.end);
            let same_or_grown = (known.start == start && known.end <= end)
                || (known.end == end && known.start >= start && key.inode == 0);
            let now = Key {
                start,
                end,
                ..known.clone()
            };
            same_or_grown && now == key
        };
        let upwards = known.get(&key.start).filter(was);
        let found = upwards.or_else(|| {
            let (_, last) = known.range(key.start..key.end).next_back()?;
            Some(last).filter(was)
        });
        found.map(|(_, advice)| *advice)
    }

    /// Forgets processes that are no more.
    pub fn retain(&mut self, alive: impl Fn(Pid) -> bool) {
        self.known.retain(|pid, _| alive(*pid));
    }
}

/// The advice about each mapping of a stopped process from its flags; `None` if those of one are not known,
/// or do not tell the size of its pages.
fn exact(flags: &VmaFlags, pid: Pid, maps: &[MapsLine]) -> Option<Vec<Advice>> {
    let areas = flags.areas(pid).ok()?;
    let areas: HashMap<u64, _> = areas.iter().map(|area| (area.start, area)).collect();
    // Thousands of mappings have a handful of words.
    let mut read: HashMap<u64, Option<Advice>> = HashMap::new();
    let of = |map: &MapsLine| {
        if map.name == "[vsyscall]" {
            // The kernel's, and no mapping of the process.
            return Some(Advice::default());
        }
        let area = areas.get(&map.start).filter(|area| area.end == map.end)?;
        let advice = || {
            let names = flags.names(area)?;
            let mut advice = Advice::default();
            read_flags(names.iter().map(String::as_str), &mut advice);
            names
                .iter()
                .all(|name| name != HUGE_PAGES)
                .then_some(advice)
        };
        *read.entry(area.flags).or_insert_with(advice)
    };
    maps.iter().map(of).collect()
}

fn parse_smaps(text: &str) -> Vec<(Key, Advice)> {
    let mut all: Vec<(Key, Advice)> = Vec::new();
    for line in text.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if let Some(name) = first.strip_suffix(':') {
            let Some((key, advice)) = all.last_mut() else {
                continue;
            };
            let value = line[first.len()..].trim();
            match name {
                "KernelPageSize" => {
                    let kib: u64 = value
                        .strip_suffix(" kB")
                        .and_then(|kib| kib.parse().ok())
                        .unwrap_or(4);
                    advice.huge_page_bytes = if kib > 4 { kib << 10 } else { 0 };
                }
                "VmFlags" => {
                    read_flags(value.split_ascii_whitespace(), advice);
                }
                _ => {}
            }
            let _ = key;
        } else if let Ok(maps) = procfs::parse_maps(line.as_bytes()) {
            all.extend(maps.iter().map(|map| (key(map), Advice::default())));
        }
    }
    all
}

fn read_flags<'names>(flags: impl Iterator<Item = &'names str>, into: &mut Advice) {
    into.read_only = true;
    for flag in flags {
        into.read_only &= flag != "mw";
        read_flag(flag, into);
    }
}

fn read_flag(flag: &str, into: &mut Advice) {
    into.bits |= match flag {
        "dc" => advice::DONT_FORK,
        "wf" => advice::WIPE_ON_FORK,
        "dd" => advice::DONT_DUMP,
        "hg" => advice::HUGE,
        "nh" => advice::NO_HUGE,
        "mg" => advice::MERGEABLE,
        "sr" => advice::SEQUENTIAL,
        "rr" => advice::RANDOM,
        "lo" => advice::LOCKED,
        "nr" => advice::NO_RESERVE,
        "gd" => advice::GROWS_DOWN,
        "dp" => advice::DROPPABLE,
        "lf" => advice::LOCKED_ON_FAULT,
        "sl" => advice::SEALED,
        _ => 0,
    };
    into.io_or_special |= matches!(flag, "io" | "pf");
    into.shadow_stack |= flag == "ss";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_read_for_the_mapping_that_it_stands_under() {
        let text = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n\
Size:               2048 kB\n\
KernelPageSize:        4 kB\n\
VmFlags: rd wr mr mw me ac dc hg \n\
7f0000400000-7f0000800000 rw-p 00000000 00:0f 9                          /anon_hugepage (deleted)\n\
KernelPageSize:     2048 kB\n\
VmFlags: rd wr mr mw me de ht \n";
        let all = parse_smaps(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].1.bits, advice::DONT_FORK | advice::HUGE);
        assert_eq!(all[0].1.huge_page_bytes, 0);
        assert_eq!(all[1].1.huge_page_bytes, 2 << 20);
        assert_eq!(all[1].0.start, 0x7f00_0040_0000);
    }

    #[test]
    fn a_mapping_that_has_grown_keeps_its_advice_and_a_new_one_has_none() {
        let mut cache = AdviceCache::default();
        let maps = |text: &str| procfs::parse_maps(text.as_bytes()).unwrap().remove(0);
        let was = maps("7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n");
        let advice = Advice {
            bits: advice::WIPE_ON_FORK,
            ..Advice::default()
        };
        let known = BTreeMap::from([(was.start, (key(&was), advice))]);
        cache.known.insert(1, known);
        for (range, kind, found) in [
            ("7f0000400000-7f0000800000", "rw-p", true),
            ("7f0000400000-7f0000900000", "rw-p", true),
            ("7f0000300000-7f0000800000", "rw-p", true),
            ("7f0000400000-7f0000700000", "rw-p", false),
            ("7f0000500000-7f0000900000", "rw-p", false),
            ("7f0000400000-7f0000800000", "r--p", false),
            ("7f0000900000-7f0000a00000", "rw-p", false),
        ] {
            let now = maps(&format!("{range} {kind} 00000000 00:00 0 \n"));
            assert_eq!(cache.of(1, &now).is_some(), found, "{range} {kind}");
            assert!(cache.of(2, &now).is_none());
        }
    }

    /// A huge page of hugetlbfs lay where now an ordinary mapping lies, at the same addresses.
    #[test]
    fn another_mapping_in_the_same_place_is_not_taken_for_the_one_that_was_known() {
        let lines = b"7f0000400000-7f0000800000 rw-p 00000000 00:0f 9  /anon_hugepage (deleted)\n\
7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n";
        let maps = procfs::parse_maps(lines).unwrap();
        assert_ne!(key(&maps[0]), key(&maps[1]));
    }
}
