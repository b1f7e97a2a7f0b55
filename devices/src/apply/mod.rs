//! Sets a machine's switches for suspend, notes their former values, and puts them back.
//!
//! ```text
//! plan (pure: current and wanted) ─▶ state file: the former values ─▶ write, one by one
//!                                           │
//! undo: switches still as they were set ◀───┘
//! ```
//!
//! The state file is complete on the disk before the first switch is changed, so a crash at any
//! point can be undone. It keeps the value from before the first `apply`, however many follow. It
//! names the boot: a reboot resets all switches, and the file is then out of date.

pub mod module;
mod plan;
mod snippet;
mod state;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use plan::{Change, Wanted, plan};
pub use snippet::{tmpfiles, udev_rules};
pub use state::State;

use dormouse_system::settings::chosen;

/// Why switches could not be set.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A switch refuses. Those before it are set; `--undo` puts them back.
    #[error("{}: cannot be {doing}: {source}{hint}", path.display())]
    Switch {
        /// The switch, below /sys.
        path: PathBuf,
        /// What was tried, as a participle.
        doing: &'static str,
        /// What the system reported.
        source: io::Error,
        /// What to do about it, if known.
        hint: &'static str,
    },
    /// The machine has no such switch, or it does not take the value.
    #[error("{0}")]
    Lacking(String),
    /// The state file.
    #[error("{}: {what}", path.display())]
    State {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

fn switch(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> ApplyError {
    let path = path.to_owned();
    move |source| ApplyError::Switch {
        hint: match source.kind() {
            io::ErrorKind::PermissionDenied => "; run it as root",
            _ => "",
        },
        path,
        doing,
        source,
    }
}

/// The value that a switch has: of several in brackets, the chosen one.
pub fn value_of(sys: &Path, name: &str) -> Result<String, ApplyError> {
    let path = sys.join(name);
    let text = fs::read_to_string(&path).map_err(switch(&path, "read"))?;
    Ok(chosen(&text).to_owned())
}

/// Notes the former values on the disk, then makes the changes.
///
/// # Errors
/// The state file cannot be written (nothing was changed), or a switch refuses (those before it
/// were).
pub fn apply(
    sys: &Path,
    state_path: &Path,
    boot: &str,
    changes: &[Change],
) -> Result<(), ApplyError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut state = State::load(state_path)?
        .filter(|state| state.boot == boot)
        .unwrap_or_else(|| State::new(boot));
    for change in changes {
        state.remember(&change.path, &change.from, &change.to);
    }
    state.save(state_path)?;
    for change in changes {
        let path = sys.join(&change.path);
        fs::write(&path, &change.to).map_err(switch(&path, "written"))?;
        let now = value_of(sys, &change.path)?;
        if now != change.to {
            return Err(ApplyError::Lacking(format!(
                "{}: does not take {:?} and stays {now:?}; `--undo` puts back what was changed",
                path.display(),
                change.to
            )));
        }
    }
    Ok(())
}

/// Loads the module of graph order, and notes on the disk before that it does.
///
/// # Errors
/// The state file cannot be written, or the module cannot be loaded; nothing was changed.
pub fn load_module(
    sys: &Path,
    state_path: &Path,
    boot: &str,
    file: Option<&Path>,
) -> Result<(), ApplyError> {
    let known = State::load(state_path)?.filter(|state| state.boot == boot);
    let mut state = known.clone().unwrap_or_else(|| State::new(boot));
    state.module = true;
    state.save(state_path)?;
    let loaded = module::load(sys, file);
    if loaded.is_err() && !module::is_loaded(sys) {
        match known {
            Some(known) => known.save(state_path)?,
            None => State::remove(state_path)?,
        }
    }
    loaded
}

/// What an undo did with one switch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undone {
    /// Put back.
    Restored(Change),
    /// It was back already, or never changed.
    WasBack(String),
    /// It was changed by others since; it stays.
    LeftAlone {
        /// The switch, below /sys.
        path: String,
        /// Its present value.
        now: String,
        /// The value that `apply` wrote.
        set: String,
    },
    /// The device or switch is gone.
    Gone(String),
    /// The module of graph order was unloaded.
    Unloaded(String),
}

/// Puts back what `apply` changed, last first; none if there is no state file. With `dry_run`,
/// changes nothing.
///
/// # Errors
/// The state file cannot be read, or a switch refuses; the state file then remains.
pub fn undo(
    sys: &Path,
    state_path: &Path,
    boot: &str,
    dry_run: bool,
) -> Result<Option<Vec<Undone>>, ApplyError> {
    let Some(state) = State::load(state_path)? else {
        return Ok(None);
    };
    let mut done = Vec::new();
    if state.boot == boot {
        for entry in state.entries.iter().rev() {
            done.push(undo_one(sys, entry, dry_run)?);
        }
        if state.module && module::is_loaded(sys) {
            if !dry_run {
                module::unload(sys)?;
            }
            done.push(Undone::Unloaded(module::NAME.to_owned()));
        }
    } else {
        // The reboot put everything back; what sets it at each boot is to be removed by hand.
        let paths = state.entries.iter().map(|entry| entry.path.clone());
        done.extend(paths.map(Undone::WasBack));
    }
    if !dry_run {
        State::remove(state_path)?;
    }
    Ok(Some(done))
}

fn undo_one(sys: &Path, entry: &state::Entry, dry_run: bool) -> Result<Undone, ApplyError> {
    let path = sys.join(&entry.path);
    if !path.exists() {
        return Ok(Undone::Gone(entry.path.clone()));
    }
    let now = value_of(sys, &entry.path)?;
    if now == entry.original {
        return Ok(Undone::WasBack(entry.path.clone()));
    }
    if now != entry.applied {
        return Ok(Undone::LeftAlone {
            path: entry.path.clone(),
            now,
            set: entry.applied.clone(),
        });
    }
    if !dry_run {
        fs::write(&path, &entry.original).map_err(switch(&path, "written"))?;
    }
    Ok(Undone::Restored(Change {
        path: entry.path.clone(),
        from: now,
        to: entry.original.clone(),
        why: "as it was".to_owned(),
    }))
}

#[cfg(test)]
mod tests;
