//! What a machine has for sealed sleep images beside its devices: an initrd of its own, a TPM, a keyboard
//! that types a passphrase.
//!
//! ```text
//! out/lab/<name>/
//!   wake.initrd    the usual one, and what `dormouse setup-device --seal` left in /etc/dormouse
//!   tpm/           the memory of the TPM in software (swtpm)
//! ```

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::build::archive;
use crate::child;
use crate::error::{Doing, LabError};

/// What the console reads when `dormouse wake` waits for somebody to type.
pub const PROMPT: &str = "dormouse: asking for the passphrase";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Beside the machine's files; what is not there is not used.
#[derive(Debug, Default)]
pub struct Sealing {
    /// What is typed when the machine asks.
    pub types: Option<String>,
    /// The TPM is taken out for this power-on.
    pub tpm_is_out: bool,
}

/// The initrd of a machine that was set up for sealed images.
pub fn initrd(folder: &Path) -> PathBuf {
    folder.join("wake.initrd")
}

/// The folder of the TPM's memory; the machine has a TPM where it is there.
pub fn tpm_folder(folder: &Path) -> PathBuf {
    folder.join("tpm")
}

/// Writes the initrd: the usual one, further archives, and these files.
///
/// # Errors
/// A file cannot be read or written.
pub fn write_initrd(
    to: &Path,
    usual: &Path,
    more: &[&Path],
    files: &[(String, Vec<u8>)],
) -> Result<(), LabError> {
    let read = |path: &Path| fs::read(path).doing(format!("read {}", path.display()));
    let mut bytes = read(usual)?;
    let mut parts = Vec::new();
    for path in more {
        parts.push(read(path)?);
    }
    parts.push(archive(files));
    for part in parts {
        // The kernel takes archives one behind the other, each from a word's boundary.
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(part);
    }
    fs::write(to, bytes).doing(format!("write {}", to.display()))
}

/// A TPM in software; ends with the emulator that it serves, or when this is dropped.
pub struct SoftwareTpm {
    child: Child,
    socket: PathBuf,
}

impl SoftwareTpm {
    /// Starts it on its memory; `socket` is where the emulator finds it.
    ///
    /// # Errors
    /// swtpm is not installed or does not start.
    pub fn start(memory: &Path, socket: &Path, log: &Path) -> Result<SoftwareTpm, LabError> {
        let state = memory.canonicalize().doing("find the TPM's memory")?;
        let log = fs::File::create(log).doing(format!("create {}", log.display()))?;
        let mut command = Command::new("swtpm");
        command
            .args(["socket", "--tpm2", "--terminate", "--tpmstate"])
            .arg(format!("dir={}", state.display()))
            .arg("--ctrl")
            .arg(format!("type=unixio,path={}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().doing("share the TPM's log")?)
            .stderr(log);
        let child = child::spawn(&mut command)?;
        let mut tpm = SoftwareTpm {
            child,
            socket: socket.to_owned(),
        };
        tpm.wait_for_socket()?;
        Ok(tpm)
    }

    /// The socket is there as soon as it listens; connecting would end it (`--terminate`).
    fn wait_for_socket(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.socket.exists() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(LabError::Unexpected(format!("swtpm ended: {status}")));
            }
            if Instant::now() > deadline {
                return Err(LabError::Unexpected("swtpm does not start".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for SoftwareTpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Types a line on the machine's console.
pub(crate) fn type_line(mut console: &UnixStream, text: &str) {
    use std::io::Write;
    // A machine that is gone reads nothing: whoever waits for it finds out.
    let _ = console.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initrd_of_a_machine_is_the_usual_one_and_its_files_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("usual"), b"usual").unwrap();
        fs::write(at("more"), b"more").unwrap();
        let files = [("etc/dormouse/seal.key".to_owned(), vec![7; 32])];
        write_initrd(&at("to"), &at("usual"), &[&at("more")], &files).unwrap();
        let bytes = fs::read(at("to")).unwrap();
        assert!(bytes.starts_with(b"usual\0\0\0more070701"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("etc/dormouse/seal.key"));
    }
}
