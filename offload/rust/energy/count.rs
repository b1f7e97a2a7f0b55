//! What an emulated Cortex-M3 executed, in cycles: reads the blocks that the plugin `model/count.c` counted.

use std::path::Path;

use serde::Serialize;

use crate::energy::timing::{CycleSpan, EXCEPTION, REFILL, Refill, of_block};
use crate::error::{OffloadError, io};

/// Where the executor itself is, and the vectors (`src/runtime/target.h`); elsewhere is translated code.
const EXECUTOR: [std::ops::Range<u32>; 2] = [0..0x8000, 0x2030_0000..0x2040_0000];
/// Wait states of flash for the executor's own code: none, as from SRAM, up to what an M3 at 120 MHz needs
/// (STM32F2). At least each refill waits for it, at most each word that is fetched. Translated code is in SRAM.
const WAIT_STATES: u64 = 3;

/// Executed instructions and their cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Cycles {
    /// Instructions.
    pub instructions: u64,
    /// Of these, translated code's.
    pub translated: u64,
    /// Exceptions: calls of the executor, faults, interrupts.
    pub exceptions: u64,
    /// Cycles at least.
    pub low: u64,
    /// Cycles at most.
    pub high: u64,
    /// Of the executor's own compiled code, without wait states: at least.
    pub own_low: u64,
    /// The same, at most.
    pub own_high: u64,
}

impl Cycles {
    /// Both.
    pub fn plus(self, other: Cycles) -> Cycles {
        Cycles {
            instructions: self.instructions + other.instructions,
            translated: self.translated + other.translated,
            exceptions: self.exceptions + other.exceptions,
            low: self.low + other.low,
            high: self.high + other.high,
            own_low: self.own_low + other.own_low,
            own_high: self.own_high + other.own_high,
        }
    }

    /// Of the sum of so many.
    pub fn mean(self, runs: u32) -> Cycles {
        let mean = |count: u64| count / u64::from(runs);
        Cycles {
            instructions: mean(self.instructions),
            translated: mean(self.translated),
            exceptions: mean(self.exceptions),
            low: mean(self.low),
            high: mean(self.high),
            own_low: mean(self.own_low),
            own_high: mean(self.own_high),
        }
    }

    /// Cycles for an instruction of compiled code; none if there was none.
    pub fn own_cpi(self) -> Option<super::Span> {
        let own = (self.instructions - self.translated) as f64;
        (own > 0.0).then(|| super::Span(self.own_low as f64 / own, self.own_high as f64 / own))
    }

    /// A block that was executed so often, and left so often for an address that does not follow it.
    fn add(&mut self, start: u32, bytes: &[u8], executed: u64, left: u64) -> Option<()> {
        let block = of_block(bytes)?;
        let CycleSpan { low, high } = block.cycles;
        let (refills, exceptions) = match block.refill {
            Refill::Always => (executed, 0),
            Refill::IfTaken => (left, 0),
            Refill::Never => (0, left),
            Refill::Unknown => (0, 0),
        };
        let own = EXECUTOR.iter().any(|range| range.contains(&start));
        let instructions = executed * block.instructions;
        self.instructions += instructions;
        self.exceptions += exceptions;
        // Nothing, a refill or an exception.
        let unknown = match block.refill {
            Refill::Unknown => left * EXCEPTION.high,
            _ => 0,
        };
        let (code_low, code_high) = (
            executed * low + refills * REFILL.low,
            executed * high + refills * REFILL.high + unknown,
        );
        self.low += code_low + exceptions * EXCEPTION.low;
        self.high += code_high + exceptions * EXCEPTION.high;
        if own {
            self.own_low += code_low;
            self.own_high += code_high;
            let words = (u64::from(start) % 4 + bytes.len() as u64).div_ceil(4);
            self.high += executed * words * WAIT_STATES;
        } else {
            self.translated += instructions;
        }
        Some(())
    }
}

/// What the plugin wrote; none if that breaks off.
fn cycles_of(mut data: &[u8]) -> Option<Cycles> {
    let mut cycles = Cycles::default();
    while !data.is_empty() {
        let (record, rest) = data.split_at_checked(24)?;
        let word = |at: usize| Some(u32::from_le_bytes(record[at..at + 4].try_into().ok()?));
        let double = |at: usize| Some(u64::from_le_bytes(record[at..at + 8].try_into().ok()?));
        let (bytes, rest) = rest.split_at_checked(usize::try_from(word(4)?).ok()?)?;
        cycles.add(word(0)?, bytes, double(8)?, double(16)?)?;
        data = rest;
    }
    Some(cycles)
}

/// Reads the plugin's file.
///
/// # Errors
/// It is not there: this emulator has no plugins. Or it breaks off.
pub fn read(blocks: &Path) -> Result<Cycles, OffloadError> {
    let data = std::fs::read(blocks).map_err(io("read", blocks))?;
    cycles_of(&data)
        .filter(|cycles| cycles.instructions > 0)
        .ok_or_else(|| OffloadError::Machine("counted no whole blocks of instructions".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(start: u32, halfwords: &[u16], executed: u64, left: u64) -> Vec<u8> {
        let bytes: Vec<u8> = halfwords.iter().flat_map(|h| h.to_le_bytes()).collect();
        let mut data = start.to_le_bytes().to_vec();
        data.extend((bytes.len() as u32).to_le_bytes());
        data.extend(executed.to_le_bytes());
        data.extend(left.to_le_bytes());
        data.extend(bytes);
        data
    }

    #[test]
    fn a_loop_takes_the_cycles_that_the_manual_gives() {
        // ldr r0, [r1]; subs r2, #1; bne: 10 times, taken 9 times. At least 3 each and 9 refills of 1, at most 5
        // each and 9 refills of 3.
        let data = record(0x2020_0000, &[0x6808, 0x3a01, 0xd1fc], 10, 9);
        let expected = Cycles {
            instructions: 30,
            translated: 30,
            exceptions: 0,
            low: 30 + 9,
            high: 50 + 27,
            own_low: 0,
            own_high: 0,
        };
        assert_eq!(cycles_of(&data), Some(expected));
        // The same in flash: 2 words each time, 3 wait states.
        let data = record(0x2030_0000, &[0x6808, 0x3a01, 0xd1fc], 10, 9);
        let high = expected.high + 10 * 2 * 3;
        let expected = Cycles {
            translated: 0,
            high,
            own_low: 39,
            own_high: 77,
            ..expected
        };
        assert_eq!(cycles_of(&data), Some(expected));
    }

    #[test]
    fn what_leaves_a_block_without_a_branch_is_an_exception() {
        // svc, five times.
        let data = record(0x2020_0000, &[0xdf01], 5, 5);
        let cycles = cycles_of(&data).unwrap();
        assert_eq!(cycles.exceptions, 5);
        assert_eq!((cycles.low, cycles.high), (5 * 21, 5 * (28 + 1)));
    }

    #[test]
    fn a_block_that_ends_with_half_an_instruction_has_both_ends() {
        // adds, and the first half of a branch or a list at the end of a page; left 3 times of 10.
        let data = record(0x2020_0000, &[0x1840, 0xf000], 10, 3);
        let cycles = cycles_of(&data).unwrap();
        assert_eq!((cycles.instructions, cycles.exceptions), (20, 0));
        assert_eq!((cycles.low, cycles.high), (20, 10 * 19 + 3 * 28));
    }

    #[test]
    fn a_file_that_breaks_off_is_refused() {
        let data = record(0x2020_0000, &[0x4770], 1, 1);
        assert!(cycles_of(&data).is_some());
        for end in 1..data.len() {
            assert_eq!(cycles_of(&data[..end]), None, "{end}");
        }
    }
}
