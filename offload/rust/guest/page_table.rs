//! Page tables of the guest's own kind (ARMv7-A short descriptors: sections and small pages), for
//! addresses that are not linear-mapped.

use crate::guest::{Guest, MAX_MEMORY_BYTES};

const PAGE: u32 = 1 << 12;
const SECTION: u32 = 1 << 20;
const FIRST_LEVEL_BYTES: u32 = 16 << 10;
const SECOND_LEVEL_BYTES: u32 = 1 << 10;
/// Descriptors' types, with access for privileged code (AP 01).
const TABLE: u32 = 0x1;
const SECTION_DESCRIPTOR: u32 = 0x402;
const PAGE_DESCRIPTOR: u32 = 0x12;

/// A range of guest addresses, and the physical addresses behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Guest address.
    pub address: u32,
    /// Physical address.
    pub physical: u32,
    /// Size in bytes.
    pub bytes: u32,
}

fn place(memory: &mut [u8], offset: u32) -> &mut [u8] {
    &mut memory[offset as usize..offset as usize + 4]
}

/// Puts tables with these mappings behind what the guest's memory holds; the answer is the physical
/// address of the first-level table. `physical` is that of the guest's first byte.
///
/// # Errors
/// A mapping makes no sense or meets another, or memory is too small.
pub fn build(guest: &mut Guest, mappings: &[Mapping], physical: u32) -> Result<u32, String> {
    if !physical.is_multiple_of(FIRST_LEVEL_BYTES) {
        return Err(format!(
            "memory at {physical:#x}: page tables need a multiple of 16 KiB"
        ));
    }
    let first = guest.reserve(FIRST_LEVEL_BYTES, FIRST_LEVEL_BYTES)?;
    for mapping in mappings {
        map(guest, first, mapping, physical)
            .map_err(|reason| format!("mapping {:#x}: {reason}", mapping.address))?;
    }
    Ok(physical.wrapping_add(first))
}

fn map(guest: &mut Guest, first: u32, mapping: &Mapping, physical: u32) -> Result<(), String> {
    let Mapping {
        address,
        physical: to,
        bytes,
    } = *mapping;
    if !(address | to | bytes).is_multiple_of(PAGE) || bytes == 0 {
        return Err("addresses and size must be multiples of 4 KiB".into());
    }
    let last = address.checked_add(bytes - 1);
    let (Some(last), Some(_)) = (last, to.checked_add(bytes - 1)) else {
        return Err("it goes beyond the last address".into());
    };
    if address < guest.base.saturating_add(MAX_MEMORY_BYTES) && last >= guest.base {
        return Err("these addresses are linear-mapped already".into());
    }
    let mut done = 0;
    while done < bytes {
        let (at, to) = (address + done, to + done);
        let entry = first + at / SECTION * 4;
        let old = guest.word(entry);
        if (at | to).is_multiple_of(SECTION) && bytes - done >= SECTION {
            if old != 0 {
                return Err("it meets another mapping".into());
            }
            place(&mut guest.memory, entry)
                .copy_from_slice(&(to | SECTION_DESCRIPTOR).to_le_bytes());
            done += SECTION;
            continue;
        }
        let second = match old & 3 {
            0 => {
                let second = guest.reserve(SECOND_LEVEL_BYTES, SECOND_LEVEL_BYTES)?;
                let descriptor = physical.wrapping_add(second) | TABLE;
                place(&mut guest.memory, entry).copy_from_slice(&descriptor.to_le_bytes());
                second
            }
            TABLE => (old & !(SECOND_LEVEL_BYTES - 1)).wrapping_sub(physical),
            _ => return Err("it meets another mapping".into()),
        };
        let entry = second + at % SECTION / PAGE * 4;
        if guest.word(entry) != 0 {
            return Err("it meets another mapping".into());
        }
        place(&mut guest.memory, entry).copy_from_slice(&(to | PAGE_DESCRIPTOR).to_le_bytes());
        done += PAGE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHYSICAL: u32 = 0x8000_0000;

    fn guest() -> Guest {
        Guest {
            base: 0xc000_0000,
            memory: vec![0; 1 << 20],
            text_start: 0xc000_8000,
            text_end: 0xc000_9000,
            end: 0xc000_9040,
            symbols: Default::default(),
        }
    }

    fn mapping(address: u32, physical: u32, bytes: u32) -> Mapping {
        Mapping {
            address,
            physical,
            bytes,
        }
    }

    /// As the architecture walks them.
    fn walk(guest: &Guest, table: u32, address: u32) -> Option<u32> {
        let first = guest.word(table - PHYSICAL + address / SECTION * 4);
        match first & 3 {
            2 => Some((first & !(SECTION - 1)) | (address & (SECTION - 1))),
            1 => {
                let at = (first & !1023) - PHYSICAL + address % SECTION / PAGE * 4;
                let second = guest.word(at);
                (second & 2 != 0).then_some((second & !(PAGE - 1)) | (address & (PAGE - 1)))
            }
            _ => None,
        }
    }

    #[test]
    fn every_mapped_address_leads_to_its_physical_one() {
        let mut guest = guest();
        let mappings = [
            mapping(0xf000_0000, 0x4000_4000, 0x1000),
            mapping(0xf000_2000, 0x8000_a000, 0x3000),
            mapping(0xf0f0_0000, 0x4800_0000, 0x0030_0000),
            mapping(0xf20f_f000, 0x5000_0000, 0x2000),
        ];
        let table = build(&mut guest, &mappings, PHYSICAL).unwrap();
        assert_eq!(table % FIRST_LEVEL_BYTES, 0);
        for m in mappings {
            for offset in [0, 4, m.bytes / 2, m.bytes - 4] {
                let to = walk(&guest, table, m.address + offset);
                assert_eq!(to, Some(m.physical + offset), "{:#x}", m.address + offset);
            }
            assert_ne!(
                walk(&guest, table, m.address + m.bytes),
                Some(m.physical + m.bytes)
            );
        }
        assert_eq!(walk(&guest, table, 0xf000_1000), None);
        let (_, _, guard) = guest.stack();
        assert!(guest.end <= guard);
    }

    #[test]
    fn mappings_without_sense_are_refused() {
        for (mappings, why) in [
            (vec![mapping(0xf000_0001, 0, 0x1000)], "4 KiB"),
            (vec![mapping(0xf000_0000, 0, 0)], "4 KiB"),
            (vec![mapping(0xffff_f000, 0, 0x2000)], "last address"),
            (vec![mapping(0xc010_0000, 0, 0x1000)], "linear"),
            (vec![mapping(0xf000_0000, 0, 0x1000); 2], "another"),
            (
                vec![
                    mapping(0xf000_0000, 0, 0x0010_0000),
                    mapping(0xf000_1000, 0, 0x1000),
                ],
                "another",
            ),
        ] {
            let reason = build(&mut guest(), &mappings, PHYSICAL).unwrap_err();
            assert!(reason.contains(why), "{reason}");
        }
    }
}
