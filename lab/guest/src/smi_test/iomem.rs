//! The physical memory map as the kernel shows it, to find memory that must never be touched.

use crate::error::{Doing, GuestError};

const FOUR_GIB: u64 = 4 << 30;
const PAGE_BYTES: u64 = 4096;

/// Top-level ranges of `/proc/iomem`: first and last byte, and the name.
pub struct MemoryMap(Vec<(u64, u64, String)>);

impl MemoryMap {
    pub fn read() -> Result<MemoryMap, GuestError> {
        let text = std::fs::read_to_string("/proc/iomem").doing("read /proc/iomem")?;
        Ok(MemoryMap::parse(&text))
    }

    fn parse(text: &str) -> MemoryMap {
        let ranges = text
            .lines()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| {
                let (range, name) = line.split_once(" : ")?;
                let (first, last) = range.split_once('-')?;
                let number = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
                Some((number(first)?, number(last)?, name.to_owned()))
            });
        MemoryMap(ranges.collect())
    }

    fn low_ram_end(&self) -> Option<u64> {
        let low = self
            .0
            .iter()
            .filter(|(first, _, name)| name == "System RAM" && *first < FOUR_GIB);
        low.map(|&(_, last, _)| last + 1).max()
    }

    /// The page right after the last RAM below 4 GiB: firmware's own memory.
    pub fn firmware_page(&self) -> Option<u64> {
        Some(self.low_ram_end()?.div_ceil(PAGE_BYTES))
    }

    /// The last page of what firmware keeps for itself behind that RAM: the top of SMRAM.
    pub fn smram_page(&self) -> Option<u64> {
        let ram_end = self.low_ram_end()?;
        let mut end = ram_end;
        // Firmware's ranges follow each other without a gap; then come devices.
        while let Some(&(_, last, _)) = self.0.iter().find(|(first, last, name)| {
            *first == end && *last < FOUR_GIB && (name == "Reserved" || name.starts_with("ACPI"))
        }) {
            end = last + 1;
        }
        (end > ram_end).then_some(end / PAGE_BYTES - 1)
    }

    /// An ordinary page of RAM, in the middle of the largest range below 4 GiB.
    pub fn ram_page(&self) -> Option<u64> {
        let low = self
            .0
            .iter()
            .filter(|(first, _, name)| name == "System RAM" && *first < FOUR_GIB);
        let (first, last, _) = low.max_by_key(|(first, last, _)| last - first)?;
        Some((first + (last - first) / 2) / PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
00000000-00000fff : Reserved
00001000-0009ffff : System RAM
000a0000-000fffff : Reserved
00100000-1ff66fff : System RAM
  01000000-01ffffff : Kernel code
1ff67000-1fffffff : Reserved
20000000-afffffff : PCI Bus 0000:00
b0000000-bfffffff : PCI ECAM 0000 [bus 00-ff]
100000000-107ffffff : Reserved
108000000-13fffffff : Soft Reserved
";

    #[test]
    fn firmwares_memory_and_smram_are_found_behind_ram() {
        let map = MemoryMap::parse(MAP);
        assert_eq!(map.firmware_page(), Some(0x1ff67));
        assert_eq!(map.smram_page(), Some(0x1ffff));
        assert_eq!(
            map.ram_page(),
            Some((0x100000 + (0x1ff66fff - 0x100000) / 2) / 4096)
        );
    }
}
