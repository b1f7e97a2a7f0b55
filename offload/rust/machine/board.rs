//! The small cores' boards: `target/boards`, one header each.

use clap::ValueEnum;

use crate::error::OffloadError;
use crate::guest::Guest;

/// A board that QEMU has and the executor is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Board {
    /// A Cortex-M3 with 16 MiB for guests.
    #[value(name = "mps2-an385")]
    Mps2An385,
    /// A Cortex-M4 with 128 KiB of SRAM, of which guests have 64.
    #[value(name = "netduinoplus2")]
    Netduinoplus2,
}

impl Board {
    /// Its name, which is QEMU's name of the machine.
    pub fn machine(self) -> &'static str {
        match self {
            Board::Mps2An385 => "mps2-an385",
            Board::Netduinoplus2 => "netduinoplus2",
        }
    }

    /// The executor for it, in the folder of what is built.
    pub fn executor(self) -> &'static str {
        match self {
            Board::Mps2An385 => "offload.elf",
            Board::Netduinoplus2 => "offload-netduinoplus2.elf",
        }
    }

    /// Host address of the job: `TARGET_JOB`.
    pub fn job(self) -> u32 {
        match self {
            Board::Mps2An385 => 0x2038_0000,
            Board::Netduinoplus2 => 0x2000_1800,
        }
    }

    /// Host address of guest memory: `TARGET_MEMORY`.
    pub fn memory(self) -> u32 {
        match self {
            Board::Mps2An385 => 0x2100_0000,
            Board::Netduinoplus2 => 0x2001_0000,
        }
    }

    /// Host address of the executor's state: `TARGET_STATE`.
    pub fn state(self) -> u32 {
        match self {
            Board::Mps2An385 => 0x7900,
            Board::Netduinoplus2 => 0x2000_1100,
        }
    }

    /// Host address of the target table: `TARGET_TABLE`.
    pub fn table(self) -> u32 {
        match self {
            Board::Mps2An385 => 0,
            Board::Netduinoplus2 => 0x2000_1000,
        }
    }

    /// Bytes of code cache that there are: `TARGET_CACHE_MAX`.
    pub fn max_cache_bytes(self) -> u32 {
        match self {
            Board::Mps2An385 => 1 << 20,
            Board::Netduinoplus2 => 24 << 10,
        }
    }

    /// Bytes of guest memory that there are: `TARGET_MEMORY_MAX`.
    pub fn max_memory_bytes(self) -> u32 {
        match self {
            Board::Mps2An385 => 16 << 20,
            Board::Netduinoplus2 => 64 << 10,
        }
    }

    /// Ticks of SysTick for so many of 40 ns.
    pub fn ticks(self, ticks: u32) -> u32 {
        match self {
            Board::Mps2An385 => ticks,
            // It counts at 168 MHz, not 25.
            Board::Netduinoplus2 => (u64::from(ticks) * 168 / 25).clamp(64, 0xff_ffff) as u32,
        }
    }

    /// A guest in as much memory as there is.
    ///
    /// # Errors
    /// It needs more.
    pub fn fit(self, guest: Guest) -> Result<Guest, OffloadError> {
        match self {
            Board::Mps2An385 => Ok(guest),
            Board::Netduinoplus2 => {
                guest
                    .in_less_memory(self.max_memory_bytes())
                    .map_err(|reason| {
                        OffloadError::Usage(format!(
                            "the guest does not fit on {}: {reason}; run it on {}",
                            self.machine(),
                            Board::Mps2An385.machine()
                        ))
                    })
            }
        }
    }
}
