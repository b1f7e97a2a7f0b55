//! Mappings: the backing of each, and the program's advice about it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::objects::LINK_FAILED;
use super::{Builder, Error};
use crate::procfs::{self, MapsLine};
use crate::ptrace::Pid;
use crate::state::{self, AIO_EVENT_BYTES, AIO_HEADER_BYTES, Backing, KernelPart, Mapping, advice};

/// Up to this resident size, `smaps` is read while the program is stopped: about 1 ms.
const SMAPS_PAGES_MAX: u64 = (64 << 20) / 4096;

/// What `/proc/PID/smaps` reports about mappings. Reading it walks all page tables, which takes long
/// for a large process (15 ms for 1 GiB). For such a process it is read while the process runs, and
/// read again while it is stopped only if there is a new mapping. Advice that the process gives in
/// between about an unchanged mapping is missed. The kind of a mapping and the size of its pages are
/// never taken from here alone.
#[derive(Debug, Default)]
pub struct AdviceCache {
    /// Of each process, by first address.
    known: HashMap<Pid, BTreeMap<u64, (Key, Advice)>>,
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
struct Advice {
    bits: u32,
    huge_page_bytes: u64,
    io_or_special: bool,
    shadow_stack: bool,
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
    /// Reads the advice of a process anew. The process may run.
    ///
    /// # Errors
    /// `/proc/PID/smaps` cannot be read.
    pub fn refresh(&mut self, pid: Pid) -> std::io::Result<()> {
        let text = procfs::text(format!("/proc/{pid}/smaps"))?;
        let all = parse_smaps(&text).into_iter();
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
                "VmFlags" => read_flags(value, advice),
                _ => {}
            }
            let _ = key;
        } else if let Ok(maps) = procfs::parse_maps(line.as_bytes()) {
            all.extend(maps.iter().map(|map| (key(map), Advice::default())));
        }
    }
    all
}

fn read_flags(flags: &str, into: &mut Advice) {
    for flag in flags.split_ascii_whitespace() {
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
            _ => 0,
        };
        into.io_or_special |= matches!(flag, "io" | "pf");
        into.shadow_stack |= flag == "ss";
    }
}

impl Builder<'_> {
    /// Describes all mappings of the current process.
    pub(super) fn mappings(
        &mut self,
        maps: &[MapsLine],
        resident_pages: u64,
    ) -> Result<Vec<Mapping>, Error> {
        let advice = &mut self.options.advice;
        if resident_pages <= SMAPS_PAGES_MAX
            || !maps.iter().all(|map| advice.of(self.pid, map).is_some())
        {
            advice
                .refresh(self.pid)
                .map_err(self.failed("read /proc/PID/smaps of it"))?;
        }
        let mut mappings = Vec::with_capacity(maps.len());
        for map in maps {
            if map.name == "[vsyscall]" {
                continue;
            }
            if let Some(mapping) = self.mapping(map)? {
                mappings.push(mapping);
            }
        }
        Ok(mappings)
    }

    fn mapping(&mut self, map: &MapsLine) -> Result<Option<Mapping>, Error> {
        let mut known = self.options.advice.of(self.pid, map).unwrap_or_default();
        let range = format!("mapping {:#x}-{:#x}", map.start, map.end);
        if known.shadow_stack {
            self.refuse(format!("{range} is a shadow stack"));
        }
        let Some(backing) = self.backing(map, &range, &mut known)? else {
            return Ok(None);
        };
        if known.io_or_special && !matches!(backing, Backing::Kernel(_)) {
            self.refuse(format!("{range} ({}) maps a device", map.name));
        }
        let named = map
            .name
            .strip_prefix("[anon:")
            .or(map.name.strip_prefix("[anon_shmem:"));
        Ok(Some(Mapping {
            start: map.start,
            end: map.end,
            protection: map.protection as u8,
            shared: map.shared,
            offset: if backing == Backing::Anonymous {
                0
            } else {
                map.offset
            },
            backing,
            advice: known.bits,
            huge_page_bytes: known.huge_page_bytes,
            name: named
                .and_then(|name| name.strip_suffix(']'))
                .map(str::to_owned),
        }))
    }

    fn backing(
        &mut self,
        map: &MapsLine,
        range: &str,
        known: &mut Advice,
    ) -> Result<Option<Backing>, Error> {
        let kernel = match map.name.as_str() {
            "[vdso]" => Some(KernelPart::Vdso),
            "[vvar]" => Some(KernelPart::Vvar),
            "[vvar_vclock]" => Some(KernelPart::VvarClock),
            _ => None,
        };
        if let Some(part) = kernel {
            if part == KernelPart::Vdso {
                self.vdso(map)?;
            }
            return Ok(Some(Backing::Kernel(part)));
        }
        if is_system_v(map) {
            return self.segment(map, range, known.huge_page_bytes != 0);
        }
        if map.inode == 0 {
            if map.name == "[stack]" {
                known.bits |= advice::GROWS_DOWN;
            }
            let special = map.name.starts_with('[')
                && !["[heap]", "[stack]"].contains(&map.name.as_str())
                && !map.name.starts_with("[anon")
                && !map.name.starts_with("[stack:");
            if special {
                self.refuse(format!("{range} is {}", map.name));
                return Ok(None);
            }
            return Ok(Some(Backing::Anonymous));
        }
        if map.name == crate::uring::LINK {
            return Ok(Some(self.ring_backing(map, range)));
        }
        if let Some(kind) = map.name.strip_prefix("anon_inode:") {
            self.refuse(format!("{range} belongs to {}", plain_kind(kind)));
            return Ok(None);
        }
        if map.name == "/[aio] (deleted)" || map.name == "/[aio]" {
            return self.aio_ring(map, range);
        }
        if !map.shared && self.is_zero_device(map)? {
            return Ok(Some(Backing::Anonymous));
        }
        if map.name.starts_with("/anon_hugepage") {
            if known.huge_page_bytes == 0 {
                known.huge_page_bytes = 2 << 20;
            }
            if map.shared {
                self.refuse(format!("{range} is shared anonymous memory of huge pages"));
                return Ok(None);
            }
            return Ok(Some(Backing::Anonymous));
        }
        self.file_backing(map, range).map(Some)
    }

    /// Whether a private mapping is one of the device `/dev/zero`, whose pages are anonymous. Shared
    /// anonymous memory has the same name and is a file: opened through `map_files`, it can be
    /// mapped privately, and pages that were not written through that mapping are the object's.
    fn is_zero_device(&mut self, map: &MapsLine) -> Result<bool, Error> {
        if !map.name.starts_with("/dev/zero") {
            return Ok(false);
        }
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, map.start, map.end);
        let metadata = fs::metadata(&link).map_err(self.failed(LINK_FAILED))?;
        Ok(metadata.file_type().is_char_device())
    }

    /// Asynchronous I/O: a ring with events that were not read.
    fn aio_ring(&mut self, map: &MapsLine, range: &str) -> Result<Option<Backing>, Error> {
        // struct aio_ring: id, nr, head, tail, magic, …
        let words = crate::memory::read_array::<20>(self.pid, map.start)
            .map_err(self.failed("read its asynchronous I/O ring"))?;
        let word =
            |at: usize| u32::from_ne_bytes(words[at * 4..at * 4 + 4].try_into().expect("a word"));
        let (events, head, tail) = (word(1), word(2), word(3));
        if word(4) != 0xa10a_10a1 {
            self.refuse(format!(
                "{range} is an asynchronous I/O ring of an unknown kind"
            ));
            return Ok(None);
        }
        let bytes = AIO_HEADER_BYTES + u64::from(events) * AIO_EVENT_BYTES;
        if events == 0 || head >= events || tail >= events || bytes > map.end - map.start {
            self.refuse(format!(
                "{range} is an asynchronous I/O ring, and its program has written over its header"
            ));
            return Ok(None);
        }
        let mut unread = Vec::new();
        let mut at = head;
        while at != tail {
            let address = map.start + AIO_HEADER_BYTES + u64::from(at) * AIO_EVENT_BYTES;
            let event = crate::memory::read_array::<32>(self.pid, address)
                .map_err(self.failed("read its asynchronous I/O ring"))?;
            let word = |at: usize| {
                u64::from_ne_bytes(event[at * 8..at * 8 + 8].try_into().expect("a word"))
            };
            unread.push([0, 1, 2, 3].map(word));
            at = (at + 1) % events;
        }
        self.tree.rings.push(state::Ring { head, unread });
        let ring = self.tree.rings.len() as u32 - 1;
        Ok(Some(Backing::AioRing { events, ring }))
    }

    /// All processes of a tree have the same vdso; its digest identifies the vdso of a kernel.
    fn vdso(&mut self, map: &MapsLine) -> Result<(), Error> {
        let mut code = vec![0u8; (map.end - map.start) as usize];
        let got = crate::memory::read(self.pid, map.start, &mut code);
        let got = got.map_err(self.failed("read its vdso"))?;
        let digest = vdso_digest(&code[..got]);
        if self.tree.kernel.vdso_digest == 0 {
            self.tree.kernel.vdso_digest = digest;
        } else if self.tree.kernel.vdso_digest != digest {
            self.refuse("its vdso differs from that of its parent");
        }
        Ok(())
    }
}

/// Its inode is the number of the segment, which is 0 for the first one since the machine was started.
fn is_system_v(map: &MapsLine) -> bool {
    map.name.starts_with("/SYSV")
}

/// Names the bytes of a vdso; never 0.
pub(crate) fn vdso_digest(code: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(code).max(1)
}

/// `[io_uring]` → "an io_uring instance".
pub(super) fn plain_kind(kind: &str) -> String {
    let kind = kind.trim_start_matches('[').trim_end_matches(']');
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind} instance")
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

    #[test]
    fn the_first_segment_of_system_v_is_not_taken_for_anonymous_memory() {
        let line = b"7f0000400000-7f0000402000 rw-s 00000000 00:01 0   /SYSV00000000 (deleted)\n";
        let map = procfs::parse_maps(line).unwrap().remove(0);
        assert_eq!(map.inode, 0);
        assert!(is_system_v(&map));
    }

    #[test]
    fn kinds_are_named_in_plain_words() {
        assert_eq!(plain_kind("[io_uring]"), "an io_uring instance");
        assert_eq!(plain_kind("[perf_event]"), "a perf_event instance");
    }
}
