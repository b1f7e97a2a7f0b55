//! What was measured so far: one JSON line for each run of `dormouse lab cycle`, so that a benchmark
//! that was interrupted goes on where it stood. Runs of other inputs stay in the file and do not
//! count.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use dormouse_tests::Cycle;

/// One run of the command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Digest of everything that the machine is built from.
    pub inputs: String,
    pub date: String,
    /// What it ran on.
    pub machine: Value,
    pub case: String,
    pub words: Vec<String>,
    pub seconds: f64,
    pub exit_code: i32,
    /// The last line on stderr, where the command failed.
    pub error: String,
    /// The lines of `lab cycle --json`.
    pub cycles: Vec<Value>,
}

impl Entry {
    /// Cycles that can be read; the others are as good as failed.
    pub fn read_cycles(&self) -> impl Iterator<Item = Cycle> + '_ {
        self.cycles
            .iter()
            .filter_map(|line| serde_json::from_value(line.clone()).ok())
    }

    /// Whether the machine lacks what the case needs: it is not tried again.
    pub fn is_lacking(&self) -> bool {
        self.exit_code == 3
    }
}

/// The file, and its entries of these inputs.
pub struct Journal {
    path: PathBuf,
    inputs: String,
    pub entries: Vec<Entry>,
}

impl Journal {
    /// Reads what is there; a line that power cut short is left out.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(path: &Path, inputs: &str) -> std::io::Result<Journal> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Journal {
            path: path.to_owned(),
            inputs: inputs.to_owned(),
            entries: parse(&text, inputs),
        })
    }

    /// What was measured last, whatever its inputs.
    ///
    /// # Errors
    /// There is no journal, or nothing in it.
    pub fn last(path: &Path) -> std::io::Result<Journal> {
        let text = fs::read_to_string(path)?;
        let mut entries = text.lines().rev();
        let last = entries.find_map(|line| serde_json::from_str::<Entry>(line).ok());
        let inputs = last.map(|entry| entry.inputs).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::NotFound, "nothing was measured yet")
        })?;
        Journal::open(path, &inputs)
    }

    pub fn inputs(&self) -> &str {
        &self.inputs
    }

    pub fn of<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.case == case)
    }

    /// Keeps a run; it is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: Entry) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        // After a line that was cut short there may be no line end.
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?;
        if !ends_with_newline(&self.path)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line)?;
        file.sync_data()?;
        self.entries.push(entry);
        Ok(())
    }
}

fn parse(text: &str, inputs: &str) -> Vec<Entry> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Entry>(line).ok())
        .filter(|entry| entry.inputs == inputs)
        .collect()
}

fn ends_with_newline(path: &Path) -> std::io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inputs: &str, case: &str) -> Entry {
        Entry {
            inputs: inputs.into(),
            date: "2026-01-01".into(),
            machine: Value::Null,
            case: case.into(),
            words: vec!["--fill=1M".into()],
            seconds: 1.5,
            exit_code: 0,
            error: String::new(),
            cycles: vec![serde_json::json!({"cycle": 1})],
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_where_it_stood() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut journal = Journal::open(&path, "a").unwrap();
        journal.add(entry("a", "x")).unwrap();
        journal.add(entry("a", "y")).unwrap();
        // Power was cut in the middle of a line.
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"inputs\":\"a\",\"ca");
        fs::write(&path, text).unwrap();

        let mut journal = Journal::open(&path, "a").unwrap();
        assert_eq!(journal.entries.len(), 2);
        journal.add(entry("a", "x")).unwrap();
        let journal = Journal::open(&path, "a").unwrap();
        assert_eq!(journal.of("x").count(), 2);
    }

    #[test]
    fn what_another_build_measured_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        Journal::open(&path, "old")
            .unwrap()
            .add(entry("old", "x"))
            .unwrap();
        assert!(Journal::open(&path, "new").unwrap().entries.is_empty());
        assert_eq!(Journal::open(&path, "old").unwrap().entries.len(), 1);
        assert_eq!(Journal::last(&path).unwrap().inputs(), "old");
        assert!(Journal::last(&folder.path().join("none")).is_err());
    }
}
