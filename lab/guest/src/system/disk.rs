//! Virtio disks, found by their serial numbers.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::GuestError;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The kernel's name of a disk that it has found already.
pub fn present(serial: &str) -> Option<String> {
    ('a'..='h')
        .map(|letter| format!("vd{letter}"))
        .find(|name| {
            fs::read_to_string(format!("/sys/block/{name}/serial"))
                .is_ok_and(|found| found.trim() == serial)
        })
}

/// The device file of a disk, as soon as the kernel has found it.
///
/// # Errors
/// It does not find it in time.
pub fn wait_for(serial: &str) -> Result<String, GuestError> {
    let started = Instant::now();
    loop {
        if let Some(name) = present(serial) {
            return Ok(format!("/dev/{name}"));
        }
        if started.elapsed() > TIMEOUT {
            return Err(GuestError::Other(format!("there is no disk {serial}")));
        }
        sleep(Duration::from_millis(10));
    }
}
