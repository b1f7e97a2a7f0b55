//! Connects this terminal to a machine's serial console; Ctrl-] leaves.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::error::{Doing, LabError};

/// Ctrl-].
const ESCAPE: u8 = 0x1d;

/// A socket's path may have 107 bytes, a machine's folder more: so it is reached through its
/// open folder. The folder must stay open while the path is used.
fn short_path(path: &Path) -> std::io::Result<(File, String)> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let short = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok((folder, short))
}

/// Listens at a path of any length.
///
/// # Errors
/// The socket cannot be made there.
pub fn listen(path: &Path) -> Result<UnixListener, LabError> {
    let _ = std::fs::remove_file(path);
    short_path(path)
        .and_then(|(_folder, short)| UnixListener::bind(short))
        .doing(format!("listen at {}", path.display()))
}

/// Connects to a running machine's console; None where nothing listens.
pub fn connect(path: &Path) -> Option<UnixStream> {
    let (_folder, short) = short_path(path).ok()?;
    UnixStream::connect(short).ok()
}

/// Puts the terminal back as it was.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    /// Every key goes to the machine; without a terminal, nothing is changed.
    fn enter() -> RawTerminal {
        let stdin = std::io::stdin();
        let before = stdin
            .is_terminal()
            .then(|| tcgetattr(&stdin).ok())
            .flatten();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _ = tcsetattr(&stdin, OptionalActions::Now, &raw);
        }
        RawTerminal(before)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Passes keys and output until Ctrl-], the end of input, or the end of the machine.
///
/// # Errors
/// The console cannot be shared between reading and writing.
pub fn interact(console: UnixStream) -> Result<(), LabError> {
    let _terminal = RawTerminal::enter();
    let mut keys = console.try_clone().doing("share the console")?;
    thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut bytes) {
            let typed = &bytes[..count];
            let end = typed.iter().position(|&byte| byte == ESCAPE);
            let sent = keys.write_all(&typed[..end.unwrap_or(count)]);
            if end.is_some() || sent.is_err() {
                break;
            }
        }
        // Ends the other direction as well.
        let _ = keys.shutdown(std::net::Shutdown::Both);
    });
    let mut output = console;
    let mut stdout = std::io::stdout();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        if stdout
            .write_all(&bytes[..count])
            .and_then(|()| stdout.flush())
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_reached_in_a_folder_with_a_very_long_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("console.sock");
        assert!(connect(&path).is_none());
        let listener = listen(&path).unwrap();
        let mut ours = connect(&path).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(b"hi").unwrap();
        let mut bytes = [0; 2];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hi");
    }
}
