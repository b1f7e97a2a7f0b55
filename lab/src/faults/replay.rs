//! An older image: what both devices held at an earlier sleep, put back at a later one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, LabError};
use crate::machine::Machine;

/// Beside the contents themselves: they may be links into a memory file system.
fn earlier(path: &Path) -> Result<(PathBuf, PathBuf), LabError> {
    let contents = path
        .canonicalize()
        .doing(format!("find what {} holds", path.display()))?;
    let copy = contents.with_extension("earlier");
    Ok((contents, copy))
}

fn devices(machine: &Machine) -> [PathBuf; 2] {
    [machine.head_file(), machine.cxl_file()]
}

/// Keeps what a sleeping machine's devices hold.
///
/// # Errors
/// There is no room for it.
pub fn keep(machine: &Machine) -> Result<(), LabError> {
    for device in devices(machine) {
        let (contents, copy) = earlier(&device)?;
        fs::copy(&contents, &copy).doing(format!("copy {}", contents.display()))?;
    }
    Ok(())
}

/// Puts back what [`keep`] kept.
///
/// # Errors
/// Nothing was kept.
pub fn put_back(machine: &Machine) -> Result<(), LabError> {
    for device in devices(machine) {
        let (contents, copy) = earlier(&device)?;
        fs::copy(&copy, &contents).doing(format!("put {} back", copy.display()))?;
    }
    Ok(())
}
