//! Sizes of a machine as options of a command.

use clap::Args;
use dormouse_system::arguments::Size;

use super::MachineConfig;
use crate::error::LabError;

/// How large the machine is.
#[derive(Debug, Clone, Copy, Args)]
pub struct SizeArgs {
    /// DRAM; powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub dram: Size,
    /// CXL memory; powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    pub cxl: Size,
    /// Processors
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,
}

impl SizeArgs {
    /// What such a machine is made of.
    ///
    /// # Errors
    /// There is no such machine.
    pub fn config(&self) -> Result<MachineConfig, LabError> {
        MachineConfig::new(self.dram, self.cxl, self.cpus)
    }
}
