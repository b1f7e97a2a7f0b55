//! Makes names that the program had removed, for as long as the restore takes.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::Error;
use crate::state::{Ghost, GhostKind, Tree};

/// Names that are there for the time of a restore. Dropped, they are removed.
#[derive(Debug, Default)]
pub struct Ghosts {
    /// And whether each is a directory.
    made: Vec<(String, bool)>,
}

impl Ghosts {
    /// Makes them all.
    ///
    /// # Errors
    /// Something is in the place of one, or it cannot be made.
    pub fn make(tree: &Tree) -> Result<Self, Error> {
        let mut ghosts = Self::default();
        for ghost in &tree.ghosts {
            make(ghost).map_err(|source| Error::Open {
                path: ghost.path.clone(),
                source,
            })?;
            let directory = ghost.kind == GhostKind::Directory;
            ghosts.made.push((ghost.path.clone(), directory));
            own(ghost).map_err(|source| Error::Open {
                path: ghost.path.clone(),
                source,
            })?;
        }
        Ok(ghosts)
    }
}

impl Drop for Ghosts {
    fn drop(&mut self) {
        for (path, directory) in self.made.drain(..).rev() {
            let removed = match directory {
                true => fs::remove_dir(&path),
                false => fs::remove_file(&path),
            };
            if let Err(error) = removed {
                tracing::warn!("{path}, which was made for the restore, stays: {error}");
            }
        }
    }
}

fn make(ghost: &Ghost) -> io::Result<()> {
    let node = |kind: u32, device: u64| {
        let path = std::ffi::CString::new(ghost.path.clone())?;
        // SAFETY: the path lives.
        match unsafe { libc::mknod(path.as_ptr(), kind | 0o600, device) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match &ghost.kind {
        GhostKind::Directory => fs::create_dir(&ghost.path),
        GhostKind::Pipe => node(libc::S_IFIFO, 0),
        GhostKind::Device(number) => node(libc::S_IFCHR, *number),
        GhostKind::Link(target) => symlink(target, &ghost.path),
        GhostKind::Other(name) => fs::hard_link(name, &ghost.path),
    }
}

fn own(ghost: &Ghost) -> io::Result<()> {
    let (user, group) = (Some(ghost.owner.0), Some(ghost.owner.1));
    match ghost.kind {
        // It has those of its file.
        GhostKind::Other(_) => Ok(()),
        GhostKind::Link(_) => std::os::unix::fs::lchown(&ghost.path, user, group),
        _ => {
            std::os::unix::fs::lchown(&ghost.path, user, group)?;
            // A change of the owner takes the set-user bit away.
            let mode = fs::Permissions::from_mode(ghost.mode);
            fs::set_permissions(Path::new(&ghost.path), mode)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghost(path: &Path, kind: GhostKind) -> Ghost {
        let own = fs::metadata("/proc/self").expect("ours");
        use std::os::unix::fs::MetadataExt;
        Ghost {
            path: path.display().to_string(),
            kind,
            mode: 0o700,
            owner: (own.uid(), own.gid()),
        }
    }

    #[test]
    fn names_are_there_during_a_restore_only_and_replace_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("other"), "text").expect("written");
        let other = at("other").display().to_string();
        let tree = Tree {
            ghosts: vec![
                ghost(&at("gone"), GhostKind::Directory),
                ghost(&at("gone/pipe"), GhostKind::Pipe),
                ghost(&at("link"), GhostKind::Link("to/nowhere".to_owned())),
                ghost(&at("name"), GhostKind::Other(other)),
            ],
            ..Tree::empty()
        };
        let ghosts = Ghosts::make(&tree).expect("made");
        assert_eq!(fs::read_to_string(at("name")).expect("there"), "text");
        assert_eq!(
            fs::read_link(at("link")).expect("there"),
            Path::new("to/nowhere")
        );
        drop(ghosts);
        let left: Vec<_> = fs::read_dir(directory.path())
            .expect("there")
            .flatten()
            .collect();
        assert_eq!(left.len(), 1, "{left:?}");

        // The last of them is taken: the others go again, and it stays.
        fs::write(at("name"), "another program's").expect("written");
        let refused = Ghosts::make(&tree).expect_err("it is taken").to_string();
        assert!(refused.contains("name"), "{refused}");
        assert_eq!(
            fs::read_to_string(at("name")).expect("there"),
            "another program's"
        );
        assert!(!at("gone").exists() && fs::symlink_metadata(at("link")).is_err());
    }
}
