//! Pseudo-terminals of which the tree has the master side.

use serde::{Deserialize, Serialize};

use super::check::{Invalid, index, number};
use super::{FileKind, Tree};

/// Length of `struct termios2`.
pub const SETTINGS_BYTES: usize = 44;
/// The kernel has no more (`kernel.pty.max` is at most this).
const TERMINALS_MAX: i32 = 1 << 20;

/// A pseudo-terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its number: the slave side is /dev/pts/NUMBER.
    pub number: i32,
    /// Where its master side was opened: /dev/ptmx.
    pub multiplexer: String,
    /// `struct termios2`.
    pub settings: Vec<u8>,
    /// Rows, columns, and the same in pixels.
    pub window: [u16; 4],
    /// Its slave side cannot be opened (`TIOCSPTLCK`).
    pub locked: bool,
    /// Packet mode (`TIOCPKT`).
    pub packets: bool,
    /// The slave side was opened, and all have closed it.
    pub closed: bool,
    /// Permissions of the slave side.
    pub mode: u32,
    /// Owner of the slave side: user, group.
    pub owner: (u32, u32),
}

/// Checks numbers and references.
pub(super) fn validate(tree: &Tree) -> Result<(), Invalid> {
    let count = tree.terminals.len();
    for terminal in &tree.terminals {
        number("pseudo-terminal", terminal.number, 0, TERMINALS_MAX)?;
        if terminal.settings.len() != SETTINGS_BYTES {
            return Err(Invalid::Bad {
                what: format!("pseudo-terminal {}", terminal.number),
                why: "with settings of an unknown length",
            });
        }
        super::check::path(&terminal.multiplexer, "path of a terminal multiplexer")?;
    }
    let files = tree.files.iter().filter_map(|file| match file.kind {
        FileKind::Master(terminal) | FileKind::Slave(terminal) => Some(terminal),
        _ => None,
    });
    let controlling = tree.processes.iter().filter_map(|p| p.terminal);
    for terminal in files.chain(controlling.map(|(terminal, _)| terminal)) {
        index(count, "pseudo-terminal", terminal, || {
            "something".to_owned()
        })?;
    }
    Ok(())
}
