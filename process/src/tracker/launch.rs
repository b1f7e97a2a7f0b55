//! Starting the program.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};

/// Starts it. It has the tracker's environment, directory and descriptors 0, 1 and 2, and stands
/// in the tracker's process group, so that the terminal's keys reach it.
///
/// # Errors
/// It cannot be executed.
pub fn start(command: &[OsString]) -> io::Result<Child> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // What the program leaves behind when it ends becomes the tracker's child: the tree is all
    // of the tracker's descendants.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Command::new(program).args(arguments).spawn()
}
