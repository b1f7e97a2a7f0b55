//! Firmware for chips with both cores: takes what `build.sh` built, and examines it as Linux' remoteproc does when
//! it loads it (`drivers/remoteproc/remoteproc_elf_loader.c` and the two chips' drivers, Linux 6.12).

use std::fs;
use std::ops::Range;
use std::path::Path;

use clap::ValueEnum;
use object::LittleEndian;
use object::elf::{EM_ARM, FileHeader32, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::error::{OffloadError, io};
use crate::parts::Parts;

/// A chip with both kinds of core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Chip {
    /// The Cortex-M4 of an STM32MP15.
    #[value(name = "stm32mp1")]
    Stm32mp1,
    /// The Cortex-M4 of an i.MX7D.
    #[value(name = "imx7d")]
    Imx7d,
}

/// What the small core's driver can load to, in the small core's own addresses.
const STM32MP1: [Range<u32>; 3] = [
    0..0x1_0000,
    0x1000_0000..0x1004_0000,
    0x3000_0000..0x3004_0000,
];
const IMX7D: [Range<u32>; 4] = [
    0..0x8000,
    0x0090_0000..0x0092_0000,
    0x1fff_8000..0x2000_0000,
    0x2000_0000..0x2000_8000,
];

impl Chip {
    fn file(self) -> &'static str {
        match self {
            Chip::Stm32mp1 => "dormouse-stm32mp1.elf",
            Chip::Imx7d => "dormouse-imx7d.elf",
        }
    }

    fn windows(self) -> &'static [Range<u32>] {
        match self {
            Chip::Stm32mp1 => &STM32MP1,
            Chip::Imx7d => &IMX7D,
        }
    }

    /// Whether all of it is in one window.
    fn reaches(self, start: u32, bytes: u32) -> bool {
        let end = u64::from(start) + u64::from(bytes);
        self.windows()
            .iter()
            .any(|window| window.contains(&start) && end <= u64::from(window.end))
    }
}

/// What a firmware says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firmware {
    /// Bytes that are loaded, and that are zeroed.
    pub bytes: u32,
    /// Small core's address of `struct offload_handover`, and its bytes.
    pub handover: (u32, u32),
    /// Small core's address of the trace, and its bytes.
    pub trace: (u32, u32),
    /// Where the resource table is in the file.
    pub table_at: usize,
}

const RESOURCE_TRACE: u32 = 2;
/// `HANDOVER_RESOURCE` and `HANDOVER_MAGIC` of `include/handover.h`.
const RESOURCE_HANDOVER: u32 = 128;
const HANDOVER_MAGIC: u32 = 0x314f_4844;
const TABLE_NAME: &[u8] = b".resource_table";

fn word(data: &[u8], at: usize) -> Result<u32, String> {
    data.get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_le_bytes)
        .ok_or_else(|| format!("it ends before byte {at:#x}"))
}

/// The segments' addresses and bytes in memory, judged.
fn segments(
    data: &[u8],
    header: &FileHeader32<LittleEndian>,
    chip: Chip,
) -> Result<Vec<Range<u32>>, String> {
    let mut found: Vec<Range<u32>> = Vec::new();
    let all = header
        .program_headers(LittleEndian, data)
        .map_err(|error| format!("program headers: {error}"))?;
    for segment in all {
        let (start, bytes) = (segment.p_paddr(LittleEndian), segment.p_memsz(LittleEndian));
        if segment.p_type(LittleEndian) != PT_LOAD || bytes == 0 {
            continue;
        }
        let filled = segment.p_filesz(LittleEndian);
        if filled > bytes {
            return Err(format!(
                "the segment at {start:#x} is smaller than its content"
            ));
        }
        let from = u64::from(segment.p_offset(LittleEndian));
        if from + u64::from(filled) > data.len() as u64 {
            return Err(format!("the segment at {start:#x} is not all in the file"));
        }
        if !chip.reaches(start, bytes) {
            return Err(format!(
                "the driver cannot load {bytes:#x} bytes to {start:#x}"
            ));
        }
        let end = start + bytes;
        if found
            .iter()
            .any(|other| start < other.end && other.start < end)
        {
            return Err(format!("two segments are at {start:#x}"));
        }
        found.push(start..end);
    }
    Ok(found)
}

/// The two words that the core begins with, at its address 0: stack and first instruction.
fn vectors(
    data: &[u8],
    header: &FileHeader32<LittleEndian>,
    chip: Chip,
    segments: &[Range<u32>],
) -> Result<(), String> {
    let all = header
        .program_headers(LittleEndian, data)
        .map_err(|error| format!("program headers: {error}"))?;
    let at = all
        .iter()
        .find(|s| s.p_type(LittleEndian) == PT_LOAD && s.p_paddr(LittleEndian) == 0)
        .map(|s| s.p_offset(LittleEndian) as usize)
        .ok_or("nothing is loaded to address 0, where the core begins")?;
    let (stack, reset) = (word(data, at)?, word(data, at + 4)?);
    if stack % 8 != 0 || stack < 8 || !chip.reaches(stack - 8, 8) {
        return Err(format!("the first stack is at {stack:#x}"));
    }
    if reset & 1 == 0 || !segments.iter().any(|segment| segment.contains(&reset)) {
        return Err(format!("the first instruction is at {reset:#x}"));
    }
    Ok(())
}

/// The file offset and bytes of the section with the resource table.
fn table(data: &[u8], header: &FileHeader32<LittleEndian>) -> Result<(usize, usize), String> {
    let sections = header
        .sections(LittleEndian, data)
        .map_err(|error| format!("sections: {error}"))?;
    let (_, section) = sections
        .section_by_name(LittleEndian, TABLE_NAME)
        .ok_or("it has no section .resource_table")?;
    let (at, bytes) = (
        section.sh_offset(LittleEndian) as usize,
        section.sh_size(LittleEndian) as usize,
    );
    if at.checked_add(bytes).is_none_or(|end| end > data.len()) {
        return Err("the resource table is not all in the file".into());
    }
    Ok((at, bytes))
}

/// Examines a firmware for a chip.
///
/// # Errors
/// What remoteproc would refuse, or what the module for the hand-over needs and does not find.
pub fn examine(data: &[u8], chip: Chip) -> Result<Firmware, String> {
    let header = FileHeader32::<LittleEndian>::parse(data)
        .map_err(|error| format!("it is no ELF of 32 bits: {error}"))?;
    header
        .endian()
        .map_err(|_| "it is not little-endian".to_owned())?;
    if header.e_machine(LittleEndian) != EM_ARM {
        return Err("it is not for Arm".into());
    }
    let segments = segments(data, header, chip)?;
    vectors(data, header, chip, &segments)?;
    let (at, bytes) = table(data, header)?;
    let (version, entries) = (word(data, at)?, word(data, at + 4)? as usize);
    if version != 1 {
        return Err(format!("its resource table is of version {version}"));
    }
    if word(data, at + 8)? != 0 || word(data, at + 12)? != 0 {
        return Err("reserved words of its resource table are not 0".into());
    }
    if 16 + 4 * entries > bytes {
        return Err("its resource table is incomplete".into());
    }
    let (mut trace, mut handover) = (None, None);
    for entry in 0..entries {
        let offset = word(data, at + 16 + 4 * entry)? as usize;
        if offset + 16 > bytes {
            return Err(format!("entry {entry} is outside its resource table"));
        }
        let words: Vec<u32> = (0..4)
            .map(|index| word(data, at + offset + 4 * index))
            .collect::<Result<_, _>>()?;
        let area = match (words[0], words[1]) {
            (RESOURCE_TRACE, _) => *trace.insert((words[1], words[2])),
            (RESOURCE_HANDOVER, HANDOVER_MAGIC) => *handover.insert((words[2], words[3])),
            _ => return Err(format!("entry {entry} is of no kind that it should have")),
        };
        if !chip.reaches(area.0, area.1) {
            return Err(format!("the big core cannot reach {:#x}", area.0));
        }
        if segments
            .iter()
            .any(|s| area.0 < s.end && s.start < area.0 + area.1)
        {
            return Err(format!(
                "what both cores write at {:#x} is loaded, too",
                area.0
            ));
        }
    }
    Ok(Firmware {
        bytes: segments
            .iter()
            .map(|segment| segment.end - segment.start)
            .sum(),
        handover: handover.ok_or("it says nothing of the hand-over")?,
        trace: trace.ok_or("it has no trace")?,
        table_at: at,
    })
}

/// Builds the firmware for a chip, examines it and writes it.
///
/// # Errors
/// It does not build, or is not as it must be.
pub fn write(chip: Chip, out: &Path) -> Result<Firmware, OffloadError> {
    let path = Parts::ready()?.file(chip.file());
    let data = fs::read(&path).map_err(io("read", &path))?;
    let firmware = examine(&data, chip).map_err(|reason| OffloadError::BadElf { path, reason })?;
    fs::write(out, data).map_err(io("write", out))?;
    Ok(firmware)
}
