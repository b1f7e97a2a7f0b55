//! Names that were removed while the program had what they led to open.

use serde::{Deserialize, Serialize};

use super::Tree;
use super::check::{Invalid, path};

/// A name that a restore makes for a moment, so that what it led to can be opened by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ghost {
    /// Where it was.
    pub path: String,
    /// What it led to.
    pub kind: GhostKind,
    /// Permissions.
    pub mode: u32,
    /// Owner: user, group.
    pub owner: (u32, u32),
}

/// What a [`Ghost`] led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GhostKind {
    /// A directory, which was empty.
    Directory,
    /// A named pipe.
    Pipe,
    /// A character device of this number.
    Device(u64),
    /// A symbolic link to this.
    Link(String),
    /// A file that still has this other name.
    Other(String),
}

impl Tree {
    /// The removed name at this path.
    pub fn ghost(&self, path: &str) -> Option<&Ghost> {
        self.ghosts.iter().find(|ghost| ghost.path == path)
    }
}

/// Checks paths, and that directories come before what is in them.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    for (at, ghost) in tree.ghosts.iter().enumerate() {
        path(&ghost.path, "path of a removed name")?;
        if let GhostKind::Other(name) = &ghost.kind {
            path(name, "other name of a file")?;
        }
        if tree.ghosts[..at]
            .iter()
            .any(|other| other.path == ghost.path)
        {
            return Err(Invalid::Bad {
                what: format!("the removed name {}", ghost.path),
                why: "there twice",
            });
        }
    }
    Ok(())
}
