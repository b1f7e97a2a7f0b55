//! Measurements so far: one JSON line for each visit, so that an interrupted benchmark can
//! continue. Visits of other inputs stay in the file and do not count.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What every line of a journal begins with.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Head {
    /// Digest of everything that the measured things are built from.
    pub inputs: String,
    /// When it was measured.
    pub date: String,
    /// What it ran on.
    pub machine: Value,
    /// What was measured.
    pub case: String,
}

/// One line of a journal.
pub trait Entry: Serialize + DeserializeOwned {
    /// Digest of everything that the measured things are built from.
    fn inputs(&self) -> &str;
    /// What was measured.
    fn case(&self) -> &str;
}

/// A line that begins with a [`Head`].
pub trait Headed: Serialize + DeserializeOwned {
    /// What it begins with.
    fn head(&self) -> &Head;
}

impl<E: Headed> Entry for E {
    fn inputs(&self) -> &str {
        &self.head().inputs
    }

    fn case(&self) -> &str {
        &self.head().case
    }
}

/// The file, and its entries of these inputs.
pub struct Journal<E> {
    path: PathBuf,
    inputs: String,
    /// Entries of this run.
    pub entries: Vec<E>,
}

impl<E: Entry> Journal<E> {
    /// Reads what is there; a line that power cut short is left out.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(path: &Path, inputs: &str) -> std::io::Result<Self> {
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
    pub fn last(path: &Path) -> std::io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let mut entries = text.lines().rev();
        let last = entries.find_map(|line| serde_json::from_str::<E>(line).ok());
        let inputs = last.map(|entry| entry.inputs().to_owned()).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::NotFound, "nothing was measured yet")
        })?;
        Self::open(path, &inputs)
    }

    /// The digest that its entries have.
    pub fn inputs(&self) -> &str {
        &self.inputs
    }

    /// The entries of one case.
    pub fn of<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a E> {
        self.entries
            .iter()
            .filter(move |entry| entry.case() == case)
    }

    /// Keeps a visit; it is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, entry: E) -> std::io::Result<()> {
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

fn parse<E: Entry>(text: &str, inputs: &str) -> Vec<E> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<E>(line).ok())
        .filter(|entry| entry.inputs() == inputs)
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

    impl Headed for Head {
        fn head(&self) -> &Head {
            self
        }
    }

    fn entry(inputs: &str, case: &str) -> Head {
        Head {
            inputs: inputs.into(),
            case: case.into(),
            ..Head::default()
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
        let journal: Journal<Head> = Journal::open(&path, "a").unwrap();
        assert_eq!(journal.of("x").count(), 2);
    }

    #[test]
    fn what_another_build_measured_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let open = |inputs| Journal::<Head>::open(&path, inputs).unwrap();
        open("old").add(entry("old", "x")).unwrap();
        assert!(open("new").entries.is_empty());
        assert_eq!(open("old").entries.len(), 1);
        assert_eq!(Journal::<Head>::last(&path).unwrap().inputs(), "old");
        assert!(Journal::<Head>::last(&folder.path().join("none")).is_err());
    }
}
