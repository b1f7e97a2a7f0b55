//! Errors of the emulated machine, and their exit codes.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::build::BuildError;

/// What went wrong in the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The options do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The machine's parts could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A program is not installed.
    #[error("{program} is not installed: run scripts/setup.sh")]
    MissingTool {
        /// The program.
        program: String,
    },
    /// Two runs must not share one machine's disk and memory.
    #[error("the machine {} is in use by another run", path.display())]
    Busy {
        /// Its folder.
        path: PathBuf,
    },
    /// The machine's kernel cannot do what was asked for.
    #[error("{0}")]
    Lacking(String),
    /// A file or device did not work.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {} s\n{console}", timeout.as_secs())]
    Timeout {
        /// What was tried.
        what: String,
        /// The time limit.
        timeout: Duration,
        /// The last lines of the console.
        console: String,
    },
    /// The emulator ended while something was awaited.
    #[error("the machine stopped ({how}) while waiting for {what}\n{console}")]
    Stopped {
        /// What was tried.
        what: String,
        /// How the machine stopped.
        how: String,
        /// The last lines of the console.
        console: String,
    },
    /// The agent in the machine answered with an error.
    #[error("in the machine: {0}")]
    Guest(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The emulator or its control socket said something unexpected.
    #[error("{0}")]
    Unexpected(String),
}

impl LabError {
    /// On one line, for a table: what was awaited, and the last that the console had.
    pub fn brief(&self) -> String {
        let (what, console) = match self {
            LabError::Timeout {
                what,
                timeout,
                console,
            } => (
                format!("{what} did not happen within {} s", timeout.as_secs()),
                console,
            ),
            LabError::Stopped { what, how, console } => (
                format!("the machine stopped ({how}) while waiting for {what}"),
                console,
            ),
            other => return other.to_string(),
        };
        let lines = console.lines().rev().map(|line| line.trim_start());
        let mut seen = lines.filter_map(|line| line.strip_prefix("| "));
        match seen.find(|line| !line.trim().is_empty()) {
            Some(last) => format!("{what}; the console's last line: {}", last.trim()),
            None => format!("{what}; the console is empty"),
        }
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            LabError::Usage(_) => 2,
            LabError::MissingTool { .. } | LabError::Lacking(_) => 3,
            LabError::Build(error) if error.is_lacking() => 3,
            LabError::Interrupted => 130,
            _ => 1,
        }
    }
}

/// One of a table's entries, by its name.
pub(crate) fn named<T: Copy>(
    table: &[T],
    name_of: impl Fn(&T) -> &str,
    name: &str,
    what: &str,
    option: &str,
) -> Result<T, LabError> {
    let mut entries = table.iter();
    let found = entries.find(|entry| name_of(entry) == name).copied();
    found
        .ok_or_else(|| LabError::Usage(format!("{name:?} is no {what}; {option} list prints them")))
}

/// Adds what was being done to an error of the system.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io {
            what: what.into(),
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::console::Tail;
    use std::path::Path;

    #[test]
    fn a_timeout_on_one_line_has_the_last_line_of_the_console() {
        let timeout = |tail: &Tail| LabError::Timeout {
            what: "devices".into(),
            timeout: Duration::from_secs(600),
            console: tail.describe(Path::new("console-1.log")),
        };
        let mut tail = Tail::default();
        let silent = timeout(&tail).brief();
        assert!(silent.ends_with("the console is empty"), "{silent}");
        tail.push("[   9.1] PM: suspend entry (s2idle)");
        tail.push("[   9.2] printk: Suspending console(s)");
        tail.push("");
        let text = timeout(&tail).brief();
        assert!(text.contains("600 s") && text.ends_with("printk: Suspending console(s)"));
        assert_eq!(text.lines().count(), 1);
    }
}
