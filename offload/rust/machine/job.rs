//! Writes a job as the executor reads it: `struct target_job` of `src/runtime/target.h`.

use crate::error::OffloadError;
use crate::guest::Guest;
use crate::machine::board::Board;

const MAGIC: u32 = 0x3142_4a44;
const MAX_NATIVES: usize = 160;
/// Maximum number of devices.
pub const MAX_DEVICES: usize = 8;
const MAX_PRESETS: usize = 4;

/// The register that compilers need last: GCC hands out r4 to r11 in this order (docs/explanation/offload.md).
pub const SCRATCH: u32 = 11;

/// All optimisations: `OPTIONS_ALL` of `src/translate/translate.h`.
pub const ALL_OPTIONS: u32 = 0x1fff;

/// Each optimisation's switch (`enum offload_option`), in the order in which the benchmark adds them
/// to the baseline.
pub const OPTIONS: [(&str, u32); 13] = [
    ("registers", 1),
    ("flags", 1 << 1),
    ("stack", 1 << 2),
    ("interrupts", 1 << 4),
    ("chain", 1 << 3),
    ("pages", 1 << 9),
    ("linear", 1 << 5),
    ("protection", 1 << 6),
    ("table", 1 << 7),
    ("regions", 1 << 8),
    ("carry", 1 << 10),
    ("loops", 1 << 11),
    ("inline", 1 << 12),
];

/// The switch of an optimisation; 0: there is none of that name.
fn option_bit(name: &str) -> u32 {
    let known = OPTIONS.iter().find(|(known, _)| *known == name);
    known.map_or(0, |(_, bit)| *bit)
}

/// What must not be switched off where the executor's state is beyond the first 64 KiB.
const PROTECTING: [&str; 5] = ["registers", "flags", "stack", "linear", "protection"];

/// The optimisations that a board makes of these.
///
/// # Errors
/// One that this board needs is not among them.
pub fn options_on(board: Board, options: u32) -> Result<u32, OffloadError> {
    if board == Board::Mps2An385 {
        return Ok(options);
    }
    let missing = PROTECTING
        .iter()
        .find(|name| options & option_bit(name) == 0);
    if let Some(missing) = missing {
        return Err(OffloadError::Usage(format!(
            "{} needs the optimisation {missing}: its memory below 64 KiB cannot be written; run without \
             it on {}",
            board.machine(),
            Board::Mps2An385.machine()
        )));
    }
    // There is no target table.
    Ok(options & !option_bit("table"))
}

/// A device of the big core that guest code reaches through its page tables, and which of the small
/// core's it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Physical address.
    pub physical: u32,
    /// Size in bytes.
    pub bytes: u32,
    /// Host address.
    pub host: u32,
}

impl Device {
    /// Peripherals of the small core, without the timer that counts for the executor:
    /// `TARGET_DEVICES` and `TARGET_DEVICES_END` of `target/boards`.
    pub const HOSTS: std::ops::Range<u32> = 0x4000_1000..0x6000_0000;
}

/// What is to be run, and how.
#[derive(Debug, Clone)]
pub struct Job {
    /// What it is run on.
    pub board: Board,
    /// Address of the function; bit 0 is set for T32.
    pub entry: u32,
    /// r0 to r3.
    pub arguments: [u32; 4],
    /// r4 to r12.
    pub registers: [u32; 9],
    /// LR; 0: the executor's own, and a return to it ends the run. At any other the executor hands back.
    pub link: u32,
    /// CPSR's A, I, F and mode at the beginning.
    pub control: u32,
    /// TPIDRURW, TPIDRURO and TPIDRPRW.
    pub thread: [u32; 3],
    /// The stack's first and last address and where its guard begins, unless it is the guest's
    /// usual one; no memory is allocated then, because all of it is the guest's.
    pub stack: Option<(u32, u32, u32)>,
    /// How often; the code cache is kept from one to the next.
    pub runs: u32,
    /// Bytes of code cache.
    pub cache_bytes: u32,
    /// Ticks of 40 ns between two interrupts.
    pub tick: u32,
    /// Interrupts until it is stopped.
    pub budget: u32,
    /// Optimisations, as bits.
    pub options: u32,
    /// Number of the register that the translator keeps for itself.
    pub scratch: u32,
    /// Guest function that is called at interrupts; 0: none.
    pub irq_handler: u32,
    /// The time in nanoseconds at the beginning, which a replaced `ktime_get` goes on from.
    pub time_ns: u64,
    /// Replaced functions: guest address and kind.
    pub natives: Vec<(u32, u32)>,
    /// Guest memory that is wanted back: address and bytes.
    pub dump: (u32, u32),
    /// Begin with the code cache that the last job left, if it is of the same guest, and leave it to the next.
    pub keep: bool,
    /// Physical address of the guest's memory.
    pub physical: u32,
    /// Physical address of the first-level page table, a multiple of 16 KiB.
    pub page_table: Option<u32>,
    /// Devices that guest code reaches.
    pub devices: Vec<Device>,
    /// Words that the small core's devices get first: host addresses and values.
    pub presets: Vec<(u32, u32)>,
}

impl Job {
    /// A call of this function with default settings.
    pub fn new(entry: u32, arguments: [u32; 4]) -> Job {
        Job {
            board: Board::Mps2An385,
            entry,
            arguments,
            registers: [0; 9],
            link: 0,
            // SVC mode.
            control: 0x13,
            thread: [0; 3],
            stack: None,
            runs: 1,
            cache_bytes: 256 << 10,
            tick: 0xf_ffff,
            budget: 1000,
            options: ALL_OPTIONS,
            scratch: SCRATCH,
            irq_handler: 0,
            time_ns: 0,
            natives: Vec::new(),
            dump: (0, 0),
            keep: false,
            physical: 0x8000_0000,
            page_table: None,
            devices: Vec::new(),
            presets: Vec::new(),
        }
    }

    /// The structure's bytes.
    pub fn bytes(&self, guest: &Guest) -> Vec<u8> {
        let (top, bottom, guard) = self.stack.unwrap_or_else(|| guest.stack());
        let natives = &self.natives[..self.natives.len().min(MAX_NATIVES)];
        let mut words = vec![
            guest.base,
            guest.memory.len() as u32,
            self.board.memory(),
            guest.text_start,
            guest.text_end,
            // The target table is of the instruction set that the guest begins in.
            self.entry & 1,
            self.board.table(),
            self.board.state(),
            self.options,
            self.scratch,
            self.physical,
            // 1: all of memory is linear-mapped, there is nothing else.
            self.page_table.unwrap_or(1),
            self.entry,
        ];
        words.extend(self.arguments);
        words.extend(self.registers);
        words.push(self.link);
        words.push(self.control);
        words.extend(self.thread);
        words.extend([top, bottom, guard]);
        // The arena: between the file's end and the stack's guard.
        words.extend(match self.stack {
            Some(_) => [guest.end; 2],
            None => [guest.end, guard.max(guest.end)],
        });
        let devices = &self.devices[..self.devices.len().min(MAX_DEVICES)];
        words.push(self.irq_handler);
        words.extend([self.time_ns as u32, (self.time_ns >> 32) as u32]);
        words.extend([natives.len() as u32, devices.len() as u32]);
        for index in 0..MAX_NATIVES {
            let (address, kind) = natives.get(index).copied().unwrap_or_default();
            words.extend([address, kind]);
        }
        for index in 0..MAX_DEVICES {
            let device = devices.get(index);
            words.extend(device.map_or([0; 3], |d| [d.physical, d.bytes, d.host]));
        }
        let bytes = 4 * (18 + words.len() as u32);
        let presets = &self.presets[..self.presets.len().min(MAX_PRESETS)];
        let mut head = vec![
            MAGIC,
            bytes,
            self.runs,
            self.cache_bytes,
            self.board.ticks(self.tick),
            self.budget,
            self.dump.0,
            self.dump.1,
            u32::from(self.keep),
            presets.len() as u32,
        ];
        for index in 0..MAX_PRESETS {
            let (host, value) = presets.get(index).copied().unwrap_or_default();
            head.extend([host, value]);
        }
        head.append(&mut words);
        head.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_without_memory_at_address_0_refuses_what_needs_it_and_has_no_table() {
        let board = Board::Netduinoplus2;
        let table = option_bit("table");
        assert_eq!(
            options_on(board, ALL_OPTIONS).unwrap(),
            ALL_OPTIONS & !table
        );
        for name in PROTECTING {
            let options = ALL_OPTIONS & !option_bit(name);
            let refused = options_on(board, options).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
            assert_eq!(options_on(Board::Mps2An385, options).unwrap(), options);
        }
    }
}
