//! Runs the programs that a build needs, with their output in a log file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::BuildError;

/// Where system programs may be although a user's search path lacks it.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// How much of a log an error shows.
const TAIL_LINES: usize = 40;
const TAIL_BYTES: u64 = 16 << 10;

/// Finds a program; `package` is the one that has it.
pub(crate) fn find_program(program: &str, package: &'static str) -> Result<PathBuf, BuildError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| BuildError::MissingTool {
            program: program.to_string(),
            package,
        })
}

/// Runs a program to its end; what it prints is appended to `log`.
pub(crate) fn run(command: &mut Command, what: &str, log: &Path) -> Result<(), BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut file = File::options()
        .create(true)
        .append(true)
        .read(true)
        .open(log)
        .map_err(BuildError::io("open", log))?;
    let start = file.metadata().map_err(BuildError::io("read", log))?.len();
    let output = || file.try_clone().map_err(BuildError::io("open", log));
    let status = command
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .status()
        .map_err(BuildError::io("run", &program))?;
    if status.success() {
        return Ok(());
    }
    Err(BuildError::Command {
        what: what.to_string(),
        program,
        status: status.to_string(),
        log: log.to_path_buf(),
        tail: tail(&mut file, start),
    })
}

/// The last lines that were written after `start`.
fn tail(file: &mut File, start: u64) -> String {
    let end = file.metadata().map_or(start, |facts| facts.len());
    let from = start.max(end.saturating_sub(TAIL_BYTES));
    let mut bytes = Vec::new();
    if file
        .seek(SeekFrom::Start(from))
        .and_then(|_| file.read_to_end(&mut bytes))
        .is_err()
    {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_program_its_status_and_its_last_words() {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&log, "words of an earlier program\n").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "seq 1000; echo the hook does not apply >&2; exit 7"]);
        let error = run(&mut command, "build the firmware", log.path())
            .unwrap_err()
            .to_string();
        for part in [
            "build the firmware",
            "sh",
            "7",
            "1000\nthe hook does not apply",
        ] {
            assert!(error.contains(part), "{part:?} is missing in {error}");
        }
        assert!(!error.contains("earlier"));
        assert!(error.lines().count() <= TAIL_LINES + 1);
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = find_program("no-such-program-at-all", "some-package").unwrap_err();
        assert!(error.is_lacking());
        assert!(error.to_string().contains("some-package"));
    }
}
