//! The board's power management, which QEMU 7.2 with SeaBIOS 1.16.2 leaves switched off after a sleep to RAM.
//!
//! The reset that ends the sleep takes away the I/O ports of the chip set's power management, and the register that
//! says where they are keeps its value, so nobody writes it again: Linux restores no registers of that chip beyond the
//! standard ones. All ports read as ones then. Linux takes that for the end of its next sleep to RAM, and the machine
//! never slept.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::error::{Doing, GuestError};

/// The chip set's bridge to slow devices (ICH9 LPC).
const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:1f.0/config";
/// In its configuration: where the ports are, and whether they are on.
const BASE: std::ops::Range<u64> = 0x40..0x48;
const PORTS: &str = "/dev/port";
/// From the base: PM1 enable and control, and the enable bits of general-purpose events.
const REGISTERS: [(u64, usize); 3] = [(0x02, 2), (0x04, 2), (0x28, 8)];
const BASE_MASK: u32 = 0xff80;

/// What has to be as before.
pub struct PowerManagement {
    configuration: Vec<u8>,
    base: u64,
    registers: Vec<Vec<u8>>,
}

fn read(path: &str, at: u64, count: usize) -> Result<Vec<u8>, GuestError> {
    let mut bytes = vec![0; count];
    let file = OpenOptions::new().read(true).open(path);
    file.and_then(|file| file.read_exact_at(&mut bytes, at))
        .doing(format!("read {path}"))?;
    Ok(bytes)
}

fn write(path: &str, at: u64, bytes: &[u8]) -> Result<(), GuestError> {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.write_all_at(bytes, at))
        .doing(format!("write {path}"))
}

impl PowerManagement {
    /// # Errors
    /// The machine is no q35.
    pub fn save() -> Result<PowerManagement, GuestError> {
        let configuration = read(BRIDGE, BASE.start, (BASE.end - BASE.start) as usize)?;
        let base = u32::from_le_bytes([
            configuration[0],
            configuration[1],
            configuration[2],
            configuration[3],
        ]);
        let base = u64::from(base & BASE_MASK);
        let registers = REGISTERS
            .iter()
            .map(|&(at, count)| read(PORTS, base + at, count))
            .collect::<Result<_, _>>()?;
        Ok(PowerManagement {
            configuration,
            base,
            registers,
        })
    }

    /// # Errors
    /// As for [`PowerManagement::save`].
    pub fn restore(&self) -> Result<(), GuestError> {
        write(BRIDGE, BASE.start, &self.configuration)?;
        for (&(at, _), bytes) in REGISTERS.iter().zip(&self.registers) {
            write(PORTS, self.base + at, bytes)?;
        }
        Ok(())
    }
}
