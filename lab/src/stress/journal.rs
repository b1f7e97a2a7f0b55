//! The journal of a run: one line a cycle, so that an interrupted run can continue.
//!
//! ```text
//! stress.jsonl   {"seed":1,"power_cuts":false,…}     which run this is
//!                {"cycle":1,"ok":true,…}             one line for each cycle that ended
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::line::StressLine;
use crate::emulator::qemu::Firmware;
use crate::error::{Doing, LabError};

/// What makes two runs the same: with another of these, cycles are others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    pub seed: u64,
    pub power_cuts: bool,
    pub dram_bytes: u64,
    pub cxl_bytes: u64,
    pub cpus: u32,
    pub flavour: String,
    /// Journals of earlier versions have none.
    #[serde(default = "coreboot")]
    pub firmware: String,
    pub inject: Option<String>,
}

fn coreboot() -> String {
    Firmware::default().name().to_owned()
}

/// The open journal.
pub struct Journal {
    file: File,
    lines: Vec<StressLine>,
}

impl Journal {
    /// Opens the journal at `path` and takes what an earlier run wrote.
    ///
    /// # Errors
    /// It is another run's, or it cannot be read or written.
    pub fn open(path: &Path, identity: &RunIdentity, restart: bool) -> Result<Journal, LabError> {
        let doing = format!("open {}", path.display());
        if restart {
            let _ = fs::remove_file(path);
        }
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).doing(doing),
        };
        // A line that was being written when the run was killed has no end: its cycle is run anew.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = whole.lines();
        let is_new = match lines.next() {
            None => true,
            Some(head) if serde_json::from_str(head).ok().as_ref() == Some(identity) => false,
            Some(_) => {
                return Err(LabError::Usage(format!(
                    "{} is the journal of a run with other options: give the same ones to go on \
                     with it, or --restart to begin anew",
                    path.display()
                )));
            }
        };
        let lines = lines
            .map(|line| {
                serde_json::from_str(line).map_err(|error| {
                    LabError::Unexpected(format!(
                        "{}: {error}: --restart begins anew",
                        path.display()
                    ))
                })
            })
            .collect::<Result<_, _>>()?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .doing(&doing)?;
        file.set_len(whole.len() as u64).doing(&doing)?;
        let mut journal = Journal { file, lines };
        if is_new {
            journal.write(&serde_json::to_string(identity).expect("plain data"))?;
        }
        Ok(journal)
    }

    /// The cycles that ended, in the order in which they did.
    pub fn lines(&self) -> &[StressLine] {
        &self.lines
    }

    /// The cycles of `1..=cycles` that are still to be run.
    pub fn missing(&self, cycles: u64) -> Vec<u64> {
        let done: BTreeSet<u64> = self.lines.iter().map(|line| line.cycle).collect();
        (1..=cycles).filter(|cycle| !done.contains(cycle)).collect()
    }

    /// Writes a cycle down.
    ///
    /// # Errors
    /// The file cannot be written: without a journal the run would have to begin anew.
    pub fn add(&mut self, line: StressLine) -> Result<(), LabError> {
        self.write(&serde_json::to_string(&line).expect("plain data"))?;
        self.lines.push(line);
        Ok(())
    }

    fn write(&mut self, line: &str) -> Result<(), LabError> {
        // One call, so that a kill leaves a whole line or one without its end.
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .doing("write the journal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u64) -> RunIdentity {
        RunIdentity {
            seed,
            power_cuts: false,
            dram_bytes: 1,
            cxl_bytes: 2,
            cpus: 2,
            flavour: "cloud".into(),
            firmware: "coreboot".into(),
            inject: None,
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_with_the_cycles_that_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stress.jsonl");
        let mut journal = Journal::open(&path, &identity(1), false).unwrap();
        assert_eq!(journal.missing(3), [1, 2, 3]);
        journal.add(StressLine::new(1)).unwrap();
        journal.add(StressLine::new(3)).unwrap();
        drop(journal);
        let journal = Journal::open(&path, &identity(1), false).unwrap();
        assert_eq!(journal.missing(4), [2, 4]);
        assert_eq!(journal.lines().len(), 2);
    }

    #[test]
    fn a_line_that_was_cut_off_by_a_kill_is_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stress.jsonl");
        let mut journal = Journal::open(&path, &identity(1), false).unwrap();
        journal.add(StressLine::new(1)).unwrap();
        journal.add(StressLine::new(2)).unwrap();
        drop(journal);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut journal = Journal::open(&path, &identity(1), false).unwrap();
        assert_eq!(journal.missing(2), [2]);
        journal.add(StressLine::new(2)).unwrap();
        drop(journal);
        let journal = Journal::open(&path, &identity(1), false).unwrap();
        assert_eq!(journal.missing(2), [] as [u64; 0]);
    }

    #[test]
    fn another_runs_journal_is_not_continued_unless_it_is_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stress.jsonl");
        Journal::open(&path, &identity(1), false)
            .unwrap()
            .add(StressLine::new(1))
            .unwrap();
        let Err(error) = Journal::open(&path, &identity(2), false) else {
            panic!("another seed has other cycles");
        };
        assert_eq!(error.exit_code(), 2);
        let journal = Journal::open(&path, &identity(2), true).unwrap();
        assert_eq!(journal.missing(1), [1]);
    }
}
