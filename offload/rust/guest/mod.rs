//! Reads a guest from an ARM ELF: its memory as the kernel would have it, its code and symbols.
//!
//! The file is untrusted: everything in it is bounds-checked.

pub mod link;
pub mod natives;
pub mod page_table;

use std::collections::BTreeMap;
use std::path::Path;

use object::elf::{EM_ARM, ET_DYN, ET_EXEC, PF_X, PT_LOAD, SHF_EXECINSTR};
use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};

use crate::error::{OffloadError, io};

/// The small core's memory for guests, in bytes.
pub const MAX_MEMORY_BYTES: u32 = 16 << 20;
/// Where code may begin: the target table's first words are the vectors.
pub const FIRST_CODE: u32 = 0x8000;
/// Bytes at the end of guest memory: the stack, below it what must not be touched.
const STACK_BYTES: u32 = 0x8000;
const GUARD_BYTES: u32 = 0x4000;
/// The same where memory is less than [`MIN_MEMORY_BYTES`].
const SMALL_STACK_BYTES: u32 = 0x3000;
const SMALL_GUARD_BYTES: u32 = 0x3000;
/// Guest memory is at least this, unless the board has less.
const MIN_MEMORY_BYTES: u32 = 1 << 20;
/// Where an ARM kernel has its exception vectors.
const HIGH_VECTORS: u32 = 0xffff_0000;

/// A guest, ready to be put into memory.
#[derive(Debug, Clone)]
pub struct Guest {
    /// First linear-mapped address; a multiple of 16 MiB, or of the size of memory if that is less than usual.
    pub base: u32,
    /// Contents from `base` on; its length is a power of two.
    pub memory: Vec<u8>,
    /// First address of its code.
    pub text_start: u32,
    /// Address behind its code.
    pub text_end: u32,
    /// First address behind everything that the file has.
    pub end: u32,
    /// Addresses of its symbols; bit 0 is set for T32 functions.
    pub symbols: BTreeMap<String, u32>,
}

impl Guest {
    /// Reads a linked ELF.
    ///
    /// # Errors
    /// It is no 32-bit little-endian ARM executable, or does not fit into the small core's memory.
    pub fn read(path: &Path) -> Result<Guest, OffloadError> {
        let data = std::fs::read(path).map_err(io("read", path))?;
        Guest::parse(&data).map_err(|reason| OffloadError::BadElf {
            path: path.to_owned(),
            reason,
        })
    }

    fn parse(data: &[u8]) -> Result<Guest, String> {
        let text = |error: object::Error| format!("not a sound ELF: {error}");
        let file: ElfFile32 = ElfFile32::parse(data).map_err(text)?;
        let endian = file.endian();
        let header = file.elf_header();
        if header.e_machine(endian) != EM_ARM || !file.is_little_endian() {
            return Err("not for a little-endian ARM processor".into());
        }
        match header.e_type(endian) {
            ET_EXEC => {}
            ET_DYN => return Err("a shared object or position-independent program".into()),
            other => return Err(format!("neither linked nor an object (type {other})")),
        }
        let mut segments = segments_of(&file)?;
        segments.sort_by_key(|segment| segment.start);
        let lowest = segments
            .first()
            .ok_or("nothing in it is to be loaded")?
            .start;
        let base = lowest & !(MAX_MEMORY_BYTES - 1);
        let mut end = lowest;
        for segment in &segments {
            let Segment { start, bytes, .. } = *segment;
            if start < end {
                return Err(format!("the segment at {start:#x} meets another"));
            }
            end = start
                .checked_add(bytes)
                .filter(|behind| *behind - base <= MAX_MEMORY_BYTES - STACK_BYTES - GUARD_BYTES)
                .ok_or_else(|| {
                    format!("the segment at {start:#x} does not fit into 16 MiB from {base:#x} on")
                })?;
        }
        let (text_start, text_end) = code_of(&file, &segments).ok_or("it has no code")?;
        if text_start < base || text_end > end {
            return Err("it has code that is not loaded".into());
        }
        if text_start - base < FIRST_CODE {
            return Err(format!("code below {:#x} cannot be run", base + FIRST_CODE));
        }
        let mut memory = vec![0; memory_size(end - base)?];
        for segment in &segments {
            let at = (segment.start - base) as usize;
            memory[at..at + segment.contents.len()].copy_from_slice(segment.contents);
        }
        let symbols = file
            .symbols()
            .filter(|symbol| !symbol.is_undefined())
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address() as u32)))
            .filter(|(name, _)| !name.is_empty() && !name.starts_with('$'))
            .collect();
        Ok(Guest {
            base,
            memory,
            text_start: text_start & !3,
            text_end: (text_end + 3) & !3,
            end: (end + 63) & !63,
            symbols,
        })
    }

    /// Keeps memory behind what the file has; the answer is its offset in the guest's memory.
    ///
    /// # Errors
    /// The small core has no more.
    pub fn reserve(&mut self, bytes: u32, alignment: u32) -> Result<u32, String> {
        let start = (self.end - self.base).next_multiple_of(alignment);
        let size = memory_size(start + bytes)?;
        if size > self.memory.len() {
            self.memory.resize(size, 0);
        }
        self.end = self.base + start + bytes;
        Ok(start)
    }

    /// The word at an offset in the guest's memory, which must be in it.
    pub fn word(&self, offset: u32) -> u32 {
        let at = offset as usize;
        self.memory[at..at + 4]
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u32::from(*byte))
    }

    /// The stack's first and last address, and where memory begins that is kept free below it.
    pub fn stack(&self) -> (u32, u32, u32) {
        // The last word stays free, so that the end of the stack is an address below 2^32.
        let top = self.base + (self.memory.len() as u32 - 64);
        let (stack, guard) = if (self.memory.len() as u32) < MIN_MEMORY_BYTES {
            (SMALL_STACK_BYTES, SMALL_GUARD_BYTES)
        } else {
            (STACK_BYTES, GUARD_BYTES)
        };
        let bottom = (top - stack) & !4095;
        (top, bottom, bottom - guard + 4096)
    }

    /// The same guest in so many bytes of memory, a power of two, from a multiple of that on.
    ///
    /// # Errors
    /// What the file has and a stack need more.
    pub fn in_less_memory(mut self, bytes: u32) -> Result<Guest, String> {
        let lowest = self.memory.iter().position(|byte| *byte != 0);
        let skipped = lowest.map_or(0, |at| at as u32) & !(bytes - 1);
        let used = self.end - self.base - skipped;
        let needs = used + SMALL_STACK_BYTES + SMALL_GUARD_BYTES;
        if needs > bytes {
            return Err(format!(
                "with a stack it needs {needs} bytes from {:#x} on, and there are {bytes}",
                self.base + skipped
            ));
        }
        self.memory.drain(..skipped as usize);
        self.memory.resize(bytes as usize, 0);
        self.base += skipped;
        Ok(self)
    }

    /// The address of a function by symbol, or of a number.
    ///
    /// # Errors
    /// There is no such symbol.
    pub fn address(&self, name: &str) -> Result<u32, OffloadError> {
        if let Some(digits) = name.strip_prefix("0x") {
            return u32::from_str_radix(digits, 16)
                .map_err(|_| OffloadError::Usage(format!("{name} is no address")));
        }
        self.symbols
            .get(name)
            .copied()
            .ok_or_else(|| OffloadError::Usage(format!("the guest has no symbol {name:?}")))
    }
}

/// The size of memory for `bytes` and a stack: a power of two.
fn memory_size(bytes: u32) -> Result<usize, String> {
    let size = (bytes + STACK_BYTES + GUARD_BYTES)
        .next_power_of_two()
        .max(MIN_MEMORY_BYTES);
    if size > MAX_MEMORY_BYTES {
        return Err("the small core has 16 MiB for guests, and this needs more".into());
    }
    Ok(size as usize)
}

/// What is to be loaded.
struct Segment<'data> {
    start: u32,
    bytes: u32,
    executable: bool,
    contents: &'data [u8],
}

fn segments_of<'data>(file: &ElfFile32<'data>) -> Result<Vec<Segment<'data>>, String> {
    let endian = file.endian();
    file.elf_program_headers()
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_memsz(endian) > 0)
        // A kernel has its exception vectors there; they are the big core's.
        .filter(|segment| segment.p_vaddr(endian) < HIGH_VECTORS)
        .map(|segment| {
            let start = segment.p_vaddr(endian);
            let contents = segment
                .data(endian, file.data())
                .map_err(|()| format!("the segment at {start:#x} lies outside the file"))?;
            let bytes = segment.p_memsz(endian);
            if contents.len() > bytes as usize {
                return Err(format!(
                    "the segment at {start:#x} is larger than its memory"
                ));
            }
            Ok(Segment {
                start,
                bytes,
                executable: segment.p_flags(endian) & PF_X != 0,
                contents,
            })
        })
        .collect()
}

/// From the first to the last code: executable sections, or segments where there are none.
fn code_of(file: &ElfFile32, segments: &[Segment]) -> Option<(u32, u32)> {
    let sections: Vec<(u32, u32)> = file
        .sections()
        .filter(|section| {
            matches!(section.flags(), SectionFlags::Elf { sh_flags }
                if sh_flags & u64::from(SHF_EXECINSTR) != 0)
        })
        .map(|section| (section.address() as u32, section.size() as u32))
        .filter(|(start, bytes)| *start < HIGH_VECTORS && *bytes > 0)
        .collect();
    let code = if sections.is_empty() {
        segments
            .iter()
            .filter(|segment| segment.executable)
            .map(|segment| (segment.start, segment.bytes))
            .collect()
    } else {
        sections
    };
    let start = code.iter().map(|(start, _)| *start).min()?;
    let end = code
        .iter()
        .map(|(start, bytes)| start.saturating_add(*bytes))
        .max()?;
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_refused() {
        assert!(Guest::parse(b"").is_err());
        assert!(Guest::parse(b"\x7fELF").is_err());
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(Guest::parse(&own).is_err(), "this machine's own programs");
    }
}
