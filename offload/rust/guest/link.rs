//! A relocatable object (a kernel module, say) becomes an executable: linked with the project's
//! script, what it lacks and the function pruner serves in its place.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile32, FileHeader};
use object::{Object, ObjectSymbol};

use crate::error::{OffloadError, io};
use crate::guest::natives::{MAX_STUBS, STUBS, native_names};
use crate::parts::Parts;

/// The undefined functions of an object that the function pruner serves; `None`: it is no object.
fn served(data: &[u8]) -> Option<Vec<String>> {
    let file: ElfFile32 = ElfFile32::parse(data).ok()?;
    if file.elf_header().e_type(file.endian()) != object::elf::ET_REL {
        return None;
    }
    let known = native_names();
    Some(
        file.symbols()
            .filter(ObjectSymbol::is_undefined)
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
            .filter(|name| known.contains(name))
            .take(MAX_STUBS)
            .collect(),
    )
}

/// The file itself if it is linked; else what it is linked to, in `folder`. `pruned`: functions of
/// `isa/natives.def` need not be there.
///
/// # Errors
/// The linker is missing or refuses: undefined symbols, relocations it does not know.
pub fn linked(
    parts: &Parts,
    path: &Path,
    folder: &Path,
    pruned: bool,
) -> Result<PathBuf, OffloadError> {
    let data = std::fs::read(path).map_err(io("read", path))?;
    let Some(served) = served(&data) else {
        return Ok(path.to_owned());
    };
    let output = folder.join("linked.elf");
    let mut command = Command::new("arm-none-eabi-ld");
    command.args(["--no-warn-rwx-segments", "--defsym", "BASE=0xc0000000"]);
    for (index, name) in served.iter().enumerate().filter(|_| pruned) {
        command.arg(format!("--defsym={name}={STUBS}+{}", 4 * index));
    }
    let linker = command
        .arg("-T")
        .arg(parts.file("guest.ld"))
        .arg(path)
        .arg("-o")
        .arg(&output)
        .output()
        .map_err(|source| OffloadError::MissingTool {
            program: "arm-none-eabi-ld".into(),
            source,
        })?;
    if linker.status.success() {
        return Ok(output);
    }
    let mut reason = String::from_utf8_lossy(&linker.stderr).trim().to_owned();
    if !pruned && !served.is_empty() {
        reason.push_str(&format!("\n--prune serves {}", served.join(", ")));
    }
    Err(OffloadError::BadElf {
        path: path.to_owned(),
        reason,
    })
}
