//! The second serial line: the control channel between the lab and this program.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::error::{Doing, GuestError};

/// The control channel.
pub const CONTROL: &str = "/dev/ttyS1";

/// Opens a terminal without making it this program's controlling one.
pub fn open(path: &str) -> Result<File, GuestError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
        .doing(format!("open {path}"))
}

/// Opens a serial line that carries bytes as they are.
pub fn open_raw(path: &str) -> Result<File, GuestError> {
    let file = open(path)?;
    let mut settings = tcgetattr(&file).doing(format!("read the settings of {path}"))?;
    settings.make_raw();
    settings
        .set_speed(115_200)
        .doing(format!("set the speed of {path}"))?;
    tcsetattr(&file, OptionalActions::Now, &settings).doing(format!("make {path} raw"))?;
    Ok(file)
}
