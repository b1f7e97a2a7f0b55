//! Which processes are the program.

use std::io;

use crate::procfs;

/// Roots of the program's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// All children of this process, the tracker; the first one gives the exit status.
    Children(i32),
    /// This process, which is not a child of the tracker.
    Attached(i32),
}

impl Roots {
    /// Their PIDs as they are now. Orphans become roots at any moment: a list that was made before
    /// something else was done is out of date.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn pids(self) -> io::Result<Vec<i32>> {
        match self {
            Self::Attached(pid) => Ok(vec![pid]),
            Self::Children(_) => {
                let mut children = procfs::children(std::process::id() as i32)?;
                let keeper = crate::lease::keeper_pid();
                children.retain(|child| Some(*child) != keeper);
                Ok(children)
            }
        }
    }
}
