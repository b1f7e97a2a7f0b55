//! Reads a guest from an ARM ELF: its memory as the kernel would have it, its code and symbols.
//!
//! The file is untrusted: everything in it is bounds-checked.

use std::collections::BTreeMap;
use std::path::Path;

use object::elf::{EM_ARM, ET_EXEC, PF_X, PT_LOAD};
use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

use crate::error::{OffloadError, io};

/// The small core's memory for guests, in bytes.
pub const MOST_MEMORY: u32 = 16 << 20;
/// Where code may begin: the target table's first words are the vectors.
pub const FIRST_CODE: u32 = 0x8000;
/// Bytes at the end of guest memory: the stack, below it what must not be touched.
const STACK_BYTES: u32 = 0x8000;
const GUARD_BYTES: u32 = 0x4000;

/// A guest, ready to be put into memory.
#[derive(Debug, Clone)]
pub struct Guest {
    /// First linear-mapped address; a multiple of 16 MiB.
    pub base: u32,
    /// Contents from `base` on; its length is a power of two.
    pub memory: Vec<u8>,
    pub text_start: u32,
    pub text_end: u32,
    /// First address behind everything that the file has.
    pub end: u32,
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
        if header.e_type(endian) != ET_EXEC {
            return Err(
                "not linked: link it with arm-none-eabi-ld -T offload/guest/guest.ld".into(),
            );
        }
        let segments: Vec<_> = file
            .elf_program_headers()
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_memsz(endian) > 0)
            .collect();
        let lowest = segments
            .iter()
            .map(|segment| segment.p_vaddr(endian))
            .min()
            .ok_or("nothing in it is to be loaded")?;
        let base = lowest & !(MOST_MEMORY - 1);
        let (mut end, mut text_start, mut text_end) = (lowest, u32::MAX, 0);
        for segment in &segments {
            let start = segment.p_vaddr(endian);
            let behind = start
                .checked_add(segment.p_memsz(endian))
                .filter(|behind| *behind - base <= MOST_MEMORY - STACK_BYTES - GUARD_BYTES)
                .ok_or_else(|| {
                    format!("the segment at {start:#x} does not fit into 16 MiB from {base:#x} on")
                })?;
            end = end.max(behind);
            if segment.p_flags(endian) & PF_X != 0 {
                text_start = text_start.min(start);
                text_end = text_end.max(behind);
            }
        }
        if text_start >= text_end {
            return Err("it has no code".into());
        }
        if text_start - base < FIRST_CODE {
            return Err(format!("code below {:#x} cannot be run", base + FIRST_CODE));
        }
        let size = (end - base + STACK_BYTES + GUARD_BYTES)
            .next_power_of_two()
            .max(1 << 20);
        let mut memory = vec![0; size as usize];
        for segment in &segments {
            let bytes = segment
                .data(endian, data)
                .map_err(|()| "a segment lies outside the file")?;
            let at = (segment.p_vaddr(endian) - base) as usize;
            let length = bytes.len().min(segment.p_memsz(endian) as usize);
            memory[at..at + length].copy_from_slice(&bytes[..length]);
        }
        let symbols = file
            .symbols()
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

    /// The stack's first and last address, and where memory begins that is kept free below it.
    pub fn stack(&self) -> (u32, u32, u32) {
        // The last word stays free, so that the end of the stack is an address below 2^32.
        let top = self.base + (self.memory.len() as u32 - 64);
        let bottom = (top - STACK_BYTES) & !4095;
        (top, bottom, bottom - GUARD_BYTES + 4096)
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
