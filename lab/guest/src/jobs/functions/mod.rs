//! Uses real devices as programs do: what a device must do after each suspend and resume.

mod chips;
mod disks;
mod network;
mod nodes;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dormouse_guest::protocol::real_devices::{Bound, Function};

use crate::error::GuestError;

const GLANCE: Duration = Duration::from_millis(50);

/// What is of no use when the time is over, and why: the kernel brings some devices back in the
/// background.
pub fn use_all(functions: &[Function], limit: Duration) -> Vec<(Function, String)> {
    let begin = Instant::now();
    let mut left: Vec<&Function> = functions.iter().collect();
    // Differs each time, so that what an earlier one wrote is not taken for this one's.
    let mut nonce = 0;
    loop {
        let mut useless = Vec::new();
        for function in std::mem::take(&mut left) {
            nonce += 1;
            if let Err(error) = use_one(function, unique(nonce)) {
                useless.push((function, error.to_string()));
            }
        }
        if useless.is_empty() || begin.elapsed() > limit {
            let owned = useless.into_iter();
            return owned.map(|(one, error)| (one.clone(), error)).collect();
        }
        left = useless.into_iter().map(|(function, _)| function).collect();
        thread::sleep(GLANCE);
    }
}

fn unique(number: u64) -> [u8; 16] {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(now.unwrap_or_default().as_nanos() as u64).to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn use_one(function: &Function, nonce: [u8; 16]) -> Result<(), GuestError> {
    match function {
        Function::Disk { name, digest } => disks::keeps(name, digest, &nonce),
        Function::Network { card, peer } => network::echoes(card, peer, &nonce),
        Function::Sound { devices } => nodes::all_open("/dev/snd", "pcm", "p", *devices),
        Function::Input { devices } => nodes::all_open("/dev/input", "event", "", *devices),
        Function::UsbSerial => nodes::all_open("/dev", "ttyUSB", "", 1),
        Function::Serial { lines } => nodes::serial_loops(*lines, &nonce),
        Function::Clock => chips::clock(),
        Function::Tpm => chips::tpm(),
        Function::Entropy => chips::entropy(),
        Function::Ipmi => chips::ipmi(),
        Function::Smbus => chips::smbus(nonce[8]),
    }
}

/// All devices with a driver, by bus and name.
pub fn bound() -> Result<Vec<Bound>, GuestError> {
    let mut found = Vec::new();
    for bus in folder("/sys/bus")? {
        let Ok(devices) = folder(bus.join("devices")) else {
            continue;
        };
        for device in devices {
            if let Ok(driver) = std::fs::read_link(device.join("driver")) {
                found.push(Bound {
                    bus: last(&bus),
                    device: last(&device),
                    driver: last(&driver),
                });
            }
        }
    }
    Ok(found)
}

/// What the folder holds, in the order of its names.
fn folder(path: impl AsRef<std::path::Path>) -> Result<Vec<PathBuf>, GuestError> {
    let path = path.as_ref();
    let what = format!("read {}", path.display());
    let entries = std::fs::read_dir(path).map_err(|error| other(&what, &error))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| other(&what, &error))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn last(path: &std::path::Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn other(what: &str, error: &dyn std::fmt::Display) -> GuestError {
    GuestError::Other(format!("{what}: {error}"))
}
