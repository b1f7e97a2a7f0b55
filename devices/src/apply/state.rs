//! The state file of `apply`: the former and the new value of each switch.

use std::fs;
use std::io;
use std::path::Path;

use dormouse_system::file::{Durability, read_json, replace_json};
use serde::{Deserialize, Serialize};

use super::ApplyError;

/// The version that is written and read.
const VERSION: u32 = 1;
/// More than the switches of all devices of a large machine take.
const MAX_BYTES: u64 = 64 << 20;

/// What was changed since the machine booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// The kernel's boot_id at that time.
    pub boot: String,
    /// In the order in which they were first changed.
    pub entries: Vec<Entry>,
    /// The module of graph order was loaded for it.
    #[serde(default)]
    pub module: bool,
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
            module: false,
        }
    }

    /// Notes that a switch is about to be changed.
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
    /// It cannot be read, or is damaged; a damaged file is refused whole.
    pub fn load(path: &Path) -> Result<Option<State>, ApplyError> {
        let failed = |what: String| ApplyError::State {
            path: path.to_owned(),
            what,
        };
        let read = read_json(path, MAX_BYTES).map_err(|error| match error.source.kind() {
            io::ErrorKind::InvalidData => failed(format!(
                "{}; put the switches back by hand (a reboot does) and remove it",
                error.source
            )),
            _ => failed(format!("cannot be read: {}", error.source)),
        })?;
        let Some(state): Option<State> = read else {
            return Ok(None);
        };
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
        replace_json(path, self, Durability::Disk).map_err(|error| ApplyError::State {
            path: error.path,
            what: format!(
                "cannot be {}: {}; nothing was changed",
                error.doing, error.source
            ),
        })
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
