//! The BPF iterator (`bpf/vma_flags.bpf.c`) over the mappings of a task.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use dormouse_bpf::{iterator, libbpf_sys};

use crate::bpf;
use crate::ptrace::Pid;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vma_flags.o"));
/// `struct area` of the iterator: three words.
const AREA_BYTES: usize = 24;

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// The word `vm_flags`.
    pub flags: u64,
}

/// The loaded program.
#[derive(Debug)]
pub struct Reader {
    program: OwnedFd,
}

impl Reader {
    /// Loads it.
    ///
    /// # Errors
    /// The kernel has no such iterator or no BTF, or we may not load BPF programs.
    pub fn load() -> io::Result<Self> {
        let object = bpf::load(OBJECT)?;
        let program = object.progs().next();
        let program = program.ok_or_else(|| io::Error::other("the object has no program"))?;
        // The object with its maps and types is not needed any more.
        let program = program.as_fd().try_clone_to_owned()?;
        Ok(Self { program })
    }

    /// The mappings of a process or thread, ascending; none, if it has none or is no more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self, task: Pid) -> io::Result<Vec<Area>> {
        let mut info = libbpf_sys::bpf_iter_link_info::default();
        info.task.tid = task as u32;
        read_all(&iterator::run(self.program.as_fd(), info)?)
    }
}

/// Reads the iterator to its end.
///
/// Past it, kernels repeat the last mapping for ever instead of reporting an end (Linux 6.18), because only
/// an iteration over all tasks goes on with the next task. Mappings ascend: nothing new is the end.
fn read_all(mut iterator: impl Read) -> io::Result<Vec<Area>> {
    let mut areas: Vec<Area> = Vec::new();
    // As much as the kernel returns at once.
    let mut bytes = vec![0; 8 * 4096];
    loop {
        let count = match iterator.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        let (records, rest) = bytes[..count].as_chunks::<AREA_BYTES>();
        if !rest.is_empty() {
            return Err(io::Error::other("the BPF iterator wrote part of a record"));
        }
        let before = areas.len();
        for record in records {
            let word = |at: usize| {
                u64::from_ne_bytes(*record[8 * at..].first_chunk().expect("three words"))
            };
            let area = Area {
                start: word(0),
                end: word(1),
                flags: word(2),
            };
            if areas.last().is_none_or(|last| area.start >= last.end) {
                areas.push(area);
            }
        }
        if areas.len() == before {
            return Ok(areas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a part for each call, and the last for ever.
    struct Repeats<'parts>(&'parts [&'parts [u64]]);

    impl Read for Repeats<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let (first, rest) = self.0.split_first().expect("the last one stays");
            if !rest.is_empty() {
                self.0 = rest;
            }
            let bytes: Vec<u8> = first.iter().flat_map(|word| word.to_ne_bytes()).collect();
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    #[test]
    fn the_end_is_noticed_though_the_kernel_repeats_the_last_mapping() {
        let all: [&[u64]; 3] = [&[1, 2, 7, 2, 3, 8], &[2, 3, 8, 5, 9, 7], &[5, 9, 7]];
        let areas = read_all(Repeats(&all)).unwrap();
        let starts: Vec<u64> = areas.iter().map(|area| area.start).collect();
        assert_eq!(starts, [1, 2, 5]);
        assert!(read_all(Repeats(&[&[]])).unwrap().is_empty());
        assert!(read_all(Repeats(&[&[1, 2]])).is_err());
    }
}
