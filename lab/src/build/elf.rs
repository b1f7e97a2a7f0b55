//! Checks that the programs of a root file system find all their libraries in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn, FileHeader};

use super::BuildError;

/// Folders of programs, below the root.
const PROGRAMS: [&str; 2] = ["usr/bin", "usr/sbin"];
/// Where the distribution's loader looks without a cache or a search path in the program.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib"];

/// The libraries that programs, or libraries of theirs, need and the root file system lacks:
/// `library (needed by file)`.
pub(crate) fn missing_libraries(root: &Path) -> Result<Vec<String>, BuildError> {
    let mut waiting = Vec::new();
    for folder in PROGRAMS.map(|folder| root.join(folder)) {
        for entry in fs::read_dir(&folder)
            .map_err(BuildError::io("read", &folder))?
            .flatten()
        {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                waiting.push(entry.path());
            }
        }
    }
    Ok(follow(root, waiting)?.missing.into_iter().collect())
}

/// These programs and libraries below the root, and all libraries that they need.
pub(crate) fn with_libraries(root: &Path, files: &[&str]) -> Result<Vec<PathBuf>, BuildError> {
    let start = files.iter().map(|file| root.join(file)).collect();
    let found = follow(root, start)?;
    if let Some(library) = found.missing.first() {
        return Err(BuildError::Unexpected(format!("there is no {library}")));
    }
    Ok(found.seen.into_iter().collect())
}

struct Followed {
    seen: BTreeSet<PathBuf>,
    /// `library (needed by file)`.
    missing: BTreeSet<String>,
}

fn follow(root: &Path, mut waiting: Vec<PathBuf>) -> Result<Followed, BuildError> {
    let mut seen: BTreeSet<PathBuf> = waiting.iter().cloned().collect();
    let mut missing = BTreeSet::new();
    while let Some(file) = waiting.pop() {
        for library in needed(&file)? {
            let found = LIBRARIES
                .iter()
                .map(|folder| root.join(folder).join(&library))
                .find(|path| path.exists());
            match found {
                Some(path) if seen.insert(path.clone()) => waiting.push(path),
                Some(_) => {}
                None => {
                    let user = file.strip_prefix(root).unwrap_or(&file);
                    missing.insert(format!("{library} (needed by {})", user.display()));
                }
            }
        }
    }
    Ok(Followed { seen, missing })
}

/// The libraries that a file names; none for scripts and static programs.
fn needed(path: &Path) -> Result<Vec<String>, BuildError> {
    let bytes = fs::read(path).map_err(BuildError::io("read", path))?;
    if !bytes.starts_with(&elf::ELFMAG) {
        return Ok(Vec::new());
    }
    needed_by(&bytes)
        .map_err(|error| BuildError::Unexpected(format!("{}: {error}", path.display())))
}

fn needed_by(bytes: &[u8]) -> Result<Vec<String>, object::read::Error> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let Some((entries, strings)) = sections.dynamic(endian, bytes)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, bytes, strings)?;
    let mut names = Vec::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED))
    {
        let name = entry.string(endian, strings)?;
        names.push(String::from_utf8_lossy(name).into_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_one_of_its_libraries_is_reported_with_both_names() {
        let root = tempfile::tempdir().unwrap();
        for folder in PROGRAMS.iter().chain(&LIBRARIES) {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::copy("/bin/sh", root.path().join("usr/bin/program")).unwrap();
        fs::write(root.path().join("usr/bin/script"), "#!/bin/sh\n").unwrap();
        let missing = missing_libraries(root.path()).unwrap();
        let libc = missing
            .iter()
            .find(|line| line.starts_with("libc.so"))
            .unwrap();
        assert!(libc.contains("usr/bin/program"), "{libc}");
        for line in &missing {
            let library = line.split(' ').next().unwrap();
            fs::write(root.path().join("usr/lib").join(library), "").unwrap();
        }
        assert!(missing_libraries(root.path()).unwrap().is_empty());
    }
}
