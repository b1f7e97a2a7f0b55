//! Programs that must not outlive the lab: emulators, and what serves them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::LabError;

/// Starts a program in a process group of its own, because Ctrl-C on the terminal is for the lab,
/// which ends it in its own order. It is killed when the lab's thread that calls this ends.
///
/// # Errors
/// It is not installed, or does not start.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, LabError> {
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: between fork and exec only system calls that take numbers happen.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The lab may have ended before the line above.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::other("the lab has ended"));
            }
            Ok(())
        });
    }
    command.spawn().map_err(|source| {
        let program = command.get_program().to_string_lossy();
        match source.kind() {
            io::ErrorKind::NotFound => LabError::MissingTool {
                program: program.into(),
            },
            _ => LabError::Io {
                what: format!("start {program}"),
                source,
            },
        }
    })
}

/// Lets the program that is started keep these descriptors, under the same numbers.
pub(crate) fn keep_open<const N: usize>(command: &mut Command, descriptors: [OwnedFd; N]) {
    // SAFETY: between fork and exec only system calls on inherited descriptors happen.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &descriptors {
                fcntl_setfd(descriptor.as_fd(), FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_installed_is_named() {
        let error = spawn(&mut Command::new("dormouse-no-such-program")).unwrap_err();
        assert!(
            error.to_string().contains("dormouse-no-such-program"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_starts_leads_a_group() {
        let mut child = spawn(Command::new("sleep").arg("1000")).unwrap();
        let group = rustix::process::getpgid(rustix::process::Pid::from_raw(child.id() as i32));
        assert_eq!(group.unwrap().as_raw_nonzero().get() as u32, child.id());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
