//! Mappings: the backing of each, and the program's advice about it.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::advice::Advice;
use super::objects::LINK_FAILED;
use super::{Builder, Error};
use crate::procfs::MapsLine;
use crate::state::{self, AIO_EVENT_BYTES, AIO_HEADER_BYTES, Backing, KernelPart, Mapping, advice};

impl Builder<'_> {
    /// Describes all mappings of the current process.
    pub(super) fn mappings(
        &mut self,
        maps: &[MapsLine],
        resident_pages: u64,
    ) -> Result<Vec<Mapping>, Error> {
        let advice = self.options.advice.all(self.pid, maps, resident_pages);
        let advice = advice.map_err(self.failed("read /proc/PID/smaps of it"))?;
        let mut mappings = Vec::with_capacity(maps.len());
        for (map, known) in maps.iter().zip(advice) {
            if map.name == "[vsyscall]" {
                continue;
            }
            if let Some(mapping) = self.mapping(map, known)? {
                mappings.push(mapping);
            }
        }
        Ok(mappings)
    }

    fn mapping(&mut self, map: &MapsLine, mut known: Advice) -> Result<Option<Mapping>, Error> {
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
            advice: match map.shared && known.read_only {
                true => known.bits | advice::READ_ONLY,
                false => known.bits,
            },
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
    fn the_first_segment_of_system_v_is_not_taken_for_anonymous_memory() {
        let line = b"7f0000400000-7f0000402000 rw-s 00000000 00:01 0   /SYSV00000000 (deleted)\n";
        let map = crate::procfs::parse_maps(line).unwrap().remove(0);
        assert_eq!(map.inode, 0);
        assert!(is_system_v(&map));
    }

    #[test]
    fn kinds_are_named_in_plain_words() {
        assert_eq!(plain_kind("[io_uring]"), "an io_uring instance");
        assert_eq!(plain_kind("[perf_event]"), "a perf_event instance");
    }
}
