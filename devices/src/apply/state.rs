//! The state file of `apply`: what each switch was, and to what it was set.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ApplyError;

/// The version that is written and read.
const VERSION: u32 = 1;

/// What was changed since the machine booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// The kernel's boot_id at that time.
    pub boot: String,
    /// In the order in which they were first changed.
    pub entries: Vec<Entry>,
}

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below /sys.
    pub path: String,
    /// Before the first change.
    pub original: String,
    /// After the last one.
    pub applied: String,
}

impl State {
    /// Nothing changed yet.
    pub fn new(boot: &str) -> State {
        State {
            version: VERSION,
            boot: boot.to_owned(),
            entries: Vec::new(),
        }
    }

    /// A switch is going to be changed.
    pub fn remember(&mut self, path: &str, from: &str, to: &str) {
        match self.entries.iter_mut().find(|entry| entry.path == path) {
            Some(entry) => to.clone_into(&mut entry.applied),
            None => self.entries.push(Entry {
                path: path.to_owned(),
                original: from.to_owned(),
                applied: to.to_owned(),
            }),
        }
    }

    /// Reads the file; none where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is not what this program writes; it is never guessed at.
    pub fn load(path: &Path) -> Result<Option<State>, ApplyError> {
        let failed = |what: String| ApplyError::State {
            path: path.to_owned(),
            what,
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(format!("cannot be read: {error}"))),
        };
        let state: State = serde_json::from_slice(&bytes).map_err(|error| {
            failed(format!(
                "is damaged: {error}; put the switches back by hand (a reboot does) and remove it"
            ))
        })?;
        if state.version != VERSION {
            let version = state.version;
            return Err(failed(format!(
                "has version {version}; this program reads {VERSION}"
            )));
        }
        // A path that leads out of /sys would be written to.
        let leads_out = |entry: &&Entry| {
            entry.path.starts_with('/') || entry.path.split('/').any(|part| part == "..")
        };
        if let Some(entry) = state.entries.iter().find(leads_out) {
            return Err(failed(format!(
                "names {:?}, which is not below /sys",
                entry.path
            )));
        }
        Ok(Some(state))
    }

    /// Writes the file so that it is whole on the disk when this returns.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), ApplyError> {
        let failed = |error: io::Error| ApplyError::State {
            path: path.to_owned(),
            what: format!("cannot be written: {error}; nothing was changed"),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let partial = path.with_extension("partial");
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let mut file = fs::File::create(&partial).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&partial, path).map_err(failed)?;
        // The new name, too, must be on the disk before a switch is changed.
        fs::File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn remove(path: &Path) -> Result<(), ApplyError> {
        fs::remove_file(path).map_err(|error| ApplyError::State {
            path: path.to_owned(),
            what: format!("cannot be removed: {error}"),
        })
    }
}
