//! Switching the machine off.

use std::thread::sleep;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};

/// Writes everything back and switches the machine off.
pub fn off() -> ! {
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        sleep(Duration::from_secs(1));
    }
}
