//! What application processors execute while SeaBIOS resumes from S3.
//!
//! SeaBIOS 1.16.2 starts them at a jump to the firmware that it writes to [`AP_BOOT_ADDRESS`], and means to wait until
//! each has counted itself. By the sources of other versions its counter is in memory that has been read-only since the
//! first start, and still has the number of then: it waits for none, and puts back what was in the page before.
//! Processors that are later than that execute what the emulator's boot loader left there, the header of the kernel,
//! until Linux starts them, while the first one still uses the firmware's stack. With Linux 7.3 neither came out of that:
//! the second one was seen in that page, the first one in a wrong place of the firmware.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use dormouse_guest::protocol::device_job::AP_BOOT_ADDRESS;

use crate::error::{Doing, GuestError};

/// `cli; hlt; jmp` to the `hlt`.
const HALT: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];

/// Lets them wait there for Linux.
pub fn hold() -> Result<(), GuestError> {
    let memory = OpenOptions::new().write(true).open("/dev/mem");
    memory
        .and_then(|memory| memory.write_all_at(&HALT, AP_BOOT_ADDRESS))
        .doing("hold processors while the firmware resumes")
}
