//! An undo journal: each change is on disk before it is made, so that it can be undone after any
//! crash.
//!
//! ```text
//!  dormouse-bandwidth 1␤              header
//!  9c…07 {"path":…,"ours":…}      ␤   a record of 1024 bytes for each cgroup, overwritten in place:
//!  41…e2 {"knob":…}               ␤   or knob: XXH3 of the text, and the text; all blanks: free
//! ```
//!
//! A record holds the original limit and our last two: a daemon that dies between writing the
//! record and the limit leaves one or the other in force. Any other value was set by another
//! program since, and is left alone. The file is locked while a daemon owns it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::EnforceError;
use super::cgroup::{Cgroup, Max, Version};
use super::knob::Knob;

const HEADER: &str = "dormouse-bandwidth 1\n";
const RECORD_BYTES: usize = 1024;
/// More than the cgroups worth limiting on any machine.
const MAX_RECORDS: usize = 65_536;

/// One changed cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    /// Distinguishes it from a later one of the same name.
    inode: u64,
    v2: bool,
    before: Max,
    ours: [Max; 2],
}

impl Record {
    fn cgroup(&self) -> Cgroup {
        let version = if self.v2 { Version::V2 } else { Version::V1 };
        Cgroup::new(&self.path, version)
    }

    /// Whether we have set this limit. Version 1 has separate files for quota and period: a daemon
    /// that dies between them leaves one value of the last limit and one of the new.
    fn is_ours(&self, now: Max) -> bool {
        let set = [self.before, self.ours[0], self.ours[1]];
        let half_set = !self.v2
            && set.iter().any(|max| max.quota_us == now.quota_us)
            && set.iter().any(|max| max.period_us == now.period_us);
        self.ours.contains(&now) || half_set
    }
}

/// One changed knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnobRecord {
    knob: Knob,
    before: String,
    ours: [String; 2],
}

/// What a record describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Change {
    Limit(Record),
    Knob(KnobRecord),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Self::Limit(record) => &record.path,
            Self::Knob(record) => &record.knob.path,
        }
    }

    fn limit(&self) -> Option<&Record> {
        match self {
            Self::Limit(record) => Some(record),
            Self::Knob(_) => None,
        }
    }

    fn undo(&self) -> Undone {
        match self {
            Self::Limit(record) => undo_limit(record),
            Self::Knob(record) => undo_knob(record),
        }
    }
}

/// The result of undoing a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The original limit is in force.
    Restored(PathBuf, Max),
    /// The original value of a knob is in force.
    Reset(PathBuf, String),
    /// Another program has set this value of a knob since.
    Kept(PathBuf, String),
    /// The cgroup is gone.
    Gone(PathBuf),
    /// Another program has set this limit since.
    LeftAlone(PathBuf, Max),
    /// It could not be undone.
    Failed(PathBuf, String),
}

/// The result of setting a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// What is in force now.
    pub max: Max,
    /// A limit that another program had set since our last one; it counts as the original from now
    /// on.
    pub foreign: Option<Max>,
}

/// How long to wait for another daemon's ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it is free.
    Forever,
    /// A second, more than the cleanup after a daemon that died takes.
    Briefly,
}

fn lock(file: &File, wait: Wait) -> Result<(), String> {
    if wait == Wait::Forever {
        return rustix::fs::flock(file, FlockOperation::LockExclusive)
            .map_err(|error| error.to_string());
    }
    for _ in 0..20 {
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err("another `dormouse bandwidth run` is running".to_owned())
}

/// The open ledger of a daemon.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    path: PathBuf,
    records: HashMap<PathBuf, (usize, Change)>,
    free: Vec<usize>,
    slots: usize,
}

impl Ledger {
    /// Takes over the ledger and undoes the changes of an earlier daemon.
    ///
    /// # Errors
    /// Another daemon has it, it cannot be written, or it is damaged; then nothing is changed.
    pub fn open(path: &Path, wait: Wait) -> Result<(Self, Vec<Undone>), EnforceError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(EnforceError::file(folder))?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(EnforceError::file(path))?;
        lock(&file, wait).map_err(|why| EnforceError::Ledger {
            path: path.to_owned(),
            why,
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(EnforceError::file(path))?;
        let mut ledger = Self {
            file,
            path: path.to_owned(),
            records: HashMap::new(),
            free: Vec::new(),
            slots: 0,
        };
        for (slot, record) in parse(&text).map_err(|why| ledger.damaged(why))? {
            ledger.slots = slot + 1;
            ledger
                .records
                .insert(record.path().to_owned(), (slot, record));
        }
        let undone = ledger.undo();
        // Changes that could not be undone stay in it.
        if ledger.records.is_empty() {
            ledger.start_anew()?;
        }
        Ok((ledger, undone))
    }

    fn damaged(&self, why: String) -> EnforceError {
        EnforceError::Ledger {
            path: self.path.clone(),
            why: format!("{why}; check the limits of your cgroups, then remove this file"),
        }
    }

    fn start_anew(&mut self) -> Result<(), EnforceError> {
        self.free.clear();
        self.slots = 0;
        self.file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(HEADER.as_bytes(), 0))
            .map_err(EnforceError::file(&self.path))
    }

    /// Limits a cgroup, but never above its original limit.
    ///
    /// # Errors
    /// The ledger or the cgroup cannot be written; the limit is unchanged.
    pub fn set(&mut self, cgroup: &Cgroup, wanted: Max) -> Result<Set, EnforceError> {
        let now = cgroup.max()?;
        let inode = fs::metadata(&cgroup.path)
            .map_err(EnforceError::file(&cgroup.path))?
            .ino();
        let known = self.records.get(&cgroup.path);
        let known = known.and_then(|(_, change)| change.limit());
        let known = known.filter(|record| record.inode == inode);
        let foreign = known.is_some_and(|record| !record.is_ours(now));
        let before = match known {
            Some(record) if !foreign => record.before,
            _ => now,
        };
        let max = if before.cpu().is_some_and(|cpu| Some(cpu) < wanted.cpu()) {
            before
        } else {
            wanted
        };
        let record = Record {
            path: cgroup.path.clone(),
            inode,
            v2: cgroup.version == Version::V2,
            before,
            ours: [now, max],
        };
        self.record(Change::Limit(record))?;
        if max != now {
            cgroup.set_max(max)?;
        }
        Ok(Set {
            max,
            foreign: foreign.then_some(now),
        })
    }

    /// Sets a knob; returns whether another program had set it since our last value, which counts
    /// as the original from now on.
    ///
    /// # Errors
    /// The ledger or the knob cannot be written; the value is unchanged.
    pub fn set_knob(&mut self, knob: &Knob, value: &str) -> Result<bool, EnforceError> {
        let now = knob.value()?;
        let known = match self.records.get(&knob.path) {
            Some((_, Change::Knob(record))) => Some(record),
            _ => None,
        };
        let foreign = known.is_some_and(|record| !record.is_ours(&now));
        let before = match known {
            Some(record) if !foreign => record.before.clone(),
            _ => now.clone(),
        };
        self.record(Change::Knob(KnobRecord {
            knob: knob.clone(),
            before,
            ours: [now, value.to_owned()],
        }))?;
        knob.write(value)?;
        Ok(foreign)
    }

    /// Writes a record before its change is made.
    fn record(&mut self, change: Change) -> Result<(), EnforceError> {
        let path = change.path().to_owned();
        let slot = self.slot_of(&path);
        self.write(slot, Some(&change))?;
        self.records.insert(path, (slot, change));
        Ok(())
    }

    /// Restores the original limit of a cgroup or value of a knob; `None` if it was never changed.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn restore(&mut self, path: &Path) -> Result<Option<Undone>, EnforceError> {
        let Some((slot, record)) = self.records.remove(path) else {
            return Ok(None);
        };
        let undone = record.undo();
        if matches!(undone, Undone::Failed(..)) {
            self.records.insert(path.to_owned(), (slot, record));
        } else {
            self.write(slot, None)?;
            self.free.push(slot);
        }
        Ok(Some(undone))
    }

    /// Restores all limits; those that fail stay in the ledger.
    pub fn undo(&mut self) -> Vec<Undone> {
        let mut paths: Vec<PathBuf> = self.records.keys().cloned().collect();
        paths.sort();
        let undo = |path: &PathBuf| match self.restore(path) {
            Ok(undone) => undone,
            Err(error) => Some(Undone::Failed(path.clone(), error.to_string())),
        };
        paths.iter().filter_map(undo).collect()
    }

    fn slot_of(&mut self, path: &Path) -> usize {
        if let Some((slot, _)) = self.records.get(path) {
            return *slot;
        }
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn write(&self, slot: usize, record: Option<&Change>) -> Result<(), EnforceError> {
        let text = match record {
            Some(record) => {
                let text = serde_json::to_string(record).unwrap_or_default();
                format!("{:016x} {text}", xxh3_64(text.as_bytes()))
            }
            None => String::new(),
        };
        if text.len() >= RECORD_BYTES || slot >= MAX_RECORDS {
            return Err(EnforceError::Ledger {
                path: self.path.clone(),
                why: "a cgroup's path is too long, or there are too many".to_owned(),
            });
        }
        let line = format!("{text:<width$}\n", width = RECORD_BYTES - 1);
        let at = HEADER.len() + slot * RECORD_BYTES;
        self.file
            .write_all_at(line.as_bytes(), at as u64)
            .map_err(EnforceError::file(&self.path))
    }
}

#[cfg(test)]
impl Ledger {
    /// As if the daemon was killed: nothing is undone, the lock goes.
    pub(crate) fn die(self) {
        rustix::fs::flock(&self.file, FlockOperation::Unlock).unwrap();
        std::mem::forget(self);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.undo();
    }
}

fn undo_limit(record: &Record) -> Undone {
    let path = record.path.clone();
    let same = fs::metadata(&path).is_ok_and(|data| data.ino() == record.inode);
    if !same {
        return Undone::Gone(path);
    }
    let cgroup = record.cgroup();
    let result = cgroup.max().and_then(|now| {
        if now == record.before {
            Ok(Undone::Restored(path.clone(), now))
        } else if record.is_ours(now) {
            cgroup.set_max(record.before)?;
            Ok(Undone::Restored(path.clone(), record.before))
        } else {
            Ok(Undone::LeftAlone(path.clone(), now))
        }
    });
    result.unwrap_or_else(|error| match error.is_gone() {
        true => Undone::Gone(path),
        false => Undone::Failed(path, error.to_string()),
    })
}

impl KnobRecord {
    /// Whether we have set this value.
    fn is_ours(&self, now: &str) -> bool {
        self.before == now || self.ours.iter().any(|ours| ours == now)
    }
}

fn undo_knob(record: &KnobRecord) -> Undone {
    let path = record.knob.path.clone();
    let result = record.knob.value().and_then(|now| {
        if !record.is_ours(&now) {
            return Ok(Undone::Kept(path.clone(), now));
        }
        record.knob.write(&record.before)?;
        Ok(Undone::Reset(path.clone(), record.before.clone()))
    });
    result.unwrap_or_else(|error| match error.is_gone() {
        true => Undone::Gone(path),
        false => Undone::Failed(path, error.to_string()),
    })
}

/// Records and their slots. A last record that was cut short was never followed by a change.
fn parse(text: &str) -> Result<Vec<(usize, Change)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let records = text
        .strip_prefix(HEADER)
        .ok_or("this is no ledger of dormouse")?;
    let mut found = Vec::new();
    for (slot, bytes) in records.as_bytes().chunks(RECORD_BYTES).enumerate() {
        if bytes.len() < RECORD_BYTES || bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        found.push((
            slot,
            record_of(bytes).ok_or(format!("record {slot} is damaged"))?,
        ));
    }
    Ok(found)
}

/// `None` if the checksum does not match.
fn record_of(bytes: &[u8]) -> Option<Change> {
    let (digest, text) = std::str::from_utf8(bytes)
        .ok()?
        .trim_ascii_end()
        .split_once(' ')?;
    let digest = u64::from_str_radix(digest, 16).ok()?;
    if digest != xxh3_64(text.as_bytes()) {
        return None;
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
