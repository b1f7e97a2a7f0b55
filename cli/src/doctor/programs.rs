//! Helpers of the probes: programs on a search path, free space.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program's path, if a directory of `search_path` has it and it can be run.
pub fn find_program(name: &str, search_path: &[PathBuf]) -> Option<PathBuf> {
    search_path
        .iter()
        .map(|directory| directory.join(name))
        .find(|path| {
            path.metadata()
                .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
        })
}

/// `PATH`, and the folders of system programs, which are on root's path only.
pub fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if let Some(home) = std::env::var_os("HOME") {
        directories.push(Path::new(&home).join(".cargo/bin"));
    }
    directories
}

/// Bytes that an ordinary user may still write below the nearest existing parent of `path`.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|parent| parent.exists())?;
    let facts = rustix::fs::statvfs(existing).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_can_be_run_are_programs() {
        let directory = tempfile::tempdir().unwrap();
        let search = [directory.path().to_owned()];
        let path = directory.path().join("tool");
        std::fs::write(&path, "").unwrap();
        assert_eq!(find_program("tool", &search), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("tool", &search), Some(path));
    }
}
