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
/// Where the distribution's loader looks without a cache, after the search path of the file itself.
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

fn follow(root: &Path, start: Vec<PathBuf>) -> Result<Followed, BuildError> {
    let mut seen: BTreeSet<PathBuf> = start.iter().cloned().collect();
    let mut missing = BTreeSet::new();
    // With the search path of what loads a library: systemd's core finds its other library loaded, by
    // the path of systemd's programs.
    let mut waiting: Vec<(PathBuf, Vec<PathBuf>)> =
        start.into_iter().map(|file| (file, Vec::new())).collect();
    while let Some((file, mut folders)) = waiting.pop() {
        let needs = needed(&file)?;
        folders.extend(needs.own_folders(root, &file));
        let all = || {
            folders
                .iter()
                .cloned()
                .chain(LIBRARIES.map(|folder| root.join(folder)))
        };
        for library in needs.libraries {
            let found = all()
                .map(|folder| folder.join(&library))
                .find(|path| path.exists());
            match found {
                Some(path) if seen.insert(path.clone()) => waiting.push((path, folders.clone())),
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

/// What a file asks the loader for; nothing in scripts and static programs.
#[derive(Debug, Default)]
struct Needs {
    libraries: Vec<String>,
    /// `DT_RUNPATH` and `DT_RPATH`: folders, with colons between them.
    search_paths: Vec<String>,
}

impl Needs {
    /// Where the loader looks first, below the root: the merged `/lib` is `/usr/lib` there.
    fn own_folders(&self, root: &Path, file: &Path) -> Vec<PathBuf> {
        let paths = self.search_paths.iter().flat_map(|path| path.split(':'));
        let below = |path: &str| match path.strip_prefix("$ORIGIN") {
            Some(rest) => {
                let folder = file.parent().unwrap_or(root);
                folder.join(rest.trim_start_matches('/'))
            }
            None => root.join(path.trim_start_matches('/')),
        };
        paths.filter(|path| !path.is_empty()).map(below).collect()
    }
}

fn needed(path: &Path) -> Result<Needs, BuildError> {
    let bytes = fs::read(path).map_err(BuildError::io("read", path))?;
    if !bytes.starts_with(&elf::ELFMAG) {
        return Ok(Needs::default());
    }
    needed_by(&bytes)
        .map_err(|error| BuildError::Unexpected(format!("{}: {error}", path.display())))
}

fn needed_by(bytes: &[u8]) -> Result<Needs, object::read::Error> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let Some((entries, strings)) = sections.dynamic(endian, bytes)? else {
        return Ok(Needs::default());
    };
    let strings = sections.strings(endian, bytes, strings)?;
    let mut needs = Needs::default();
    for entry in entries {
        let texts = match entry.tag32(endian) {
            Some(elf::DT_NEEDED) => &mut needs.libraries,
            Some(elf::DT_RUNPATH | elf::DT_RPATH) => &mut needs.search_paths,
            _ => continue,
        };
        let text = entry.string(endian, strings)?;
        texts.push(String::from_utf8_lossy(text).into_owned());
    }
    Ok(needs)
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

    #[test]
    fn a_library_is_found_along_the_search_path_of_the_file_that_needs_it() {
        let needs = Needs {
            libraries: Vec::new(),
            search_paths: vec!["/usr/lib/x/systemd:$ORIGIN/../lib".into(), "$ORIGIN".into()],
        };
        let folders = needs.own_folders(Path::new("/root"), Path::new("/root/usr/bin/program"));
        let expected = [
            "/root/usr/lib/x/systemd",
            "/root/usr/bin/../lib",
            "/root/usr/bin",
        ];
        assert_eq!(folders, expected.map(PathBuf::from));
    }
}
