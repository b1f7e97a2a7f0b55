//! Devices of which only opening is asked, and serial lines in their loop.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::{folder, last, other};
use crate::error::GuestError;

/// The line's own: what is sent comes back inside the chip.
const LOOP: libc::c_int = 0x8000;
const LIMIT: Duration = Duration::from_secs(2);

fn open(path: &Path) -> Result<File, GuestError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| other(&format!("open {}", path.display()), &error))
}

fn number(found: &[PathBuf], wanted: usize, what: &str) -> Result<(), GuestError> {
    if found.len() == wanted {
        return Ok(());
    }
    let count = found.len();
    Err(GuestError::Other(format!("{count} {what}, not {wanted}")))
}

/// As many as that have such a name, and all of them open.
pub fn all_open(at: &str, begin: &str, end: &str, wanted: usize) -> Result<(), GuestError> {
    let mut nodes = folder(at)?;
    nodes.retain(|node| last(node).starts_with(begin) && last(node).ends_with(end));
    number(&nodes, wanted, &format!("devices {at}/{begin}*{end}"))?;
    nodes.iter().try_for_each(|node| open(node).map(drop))
}

/// Every serial line of a PCI card gives back what it sends.
pub fn serial_loops(wanted: usize, nonce: &[u8; 16]) -> Result<(), GuestError> {
    let mut lines = folder("/sys/class/tty")?;
    lines.retain(|line| {
        let path = std::fs::canonicalize(line.join("device")).unwrap_or_default();
        last(line).starts_with("ttyS") && path.to_string_lossy().contains("/pci")
    });
    number(&lines, wanted, "serial lines of PCI cards")?;
    for line in lines {
        let node = PathBuf::from("/dev").join(last(&line));
        loops(&node, nonce).map_err(|error| other(&node.display().to_string(), &error))?;
    }
    Ok(())
}

fn loops(node: &Path, nonce: &[u8; 16]) -> Result<(), GuestError> {
    let mut line = open(node)?;
    let mut settings = tcgetattr(&line).map_err(|error| other("ask for its settings", &error))?;
    settings.make_raw();
    settings.control_modes |= rustix::termios::ControlModes::CLOCAL;
    tcsetattr(&line, OptionalActions::Flush, &settings)
        .map_err(|error| other("make it raw", &error))?;
    // SAFETY: the number lives until the call returns.
    if unsafe { libc::ioctl(line.as_raw_fd(), libc::TIOCMBIS, &LOOP) } != 0 {
        return Err(other("loop it", &std::io::Error::last_os_error()));
    }
    line.write_all(nonce)
        .map_err(|error| other("send", &error))?;
    let (begin, mut back) = (Instant::now(), Vec::new());
    while back.len() < nonce.len() && begin.elapsed() < LIMIT {
        let mut bytes = [0; 16];
        match line.read(&mut bytes) {
            Ok(count) => back.extend_from_slice(&bytes[..count]),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    match back == nonce {
        true => Ok(()),
        false => Err(GuestError::Other(format!("sent {nonce:x?}, got {back:x?}"))),
    }
}
