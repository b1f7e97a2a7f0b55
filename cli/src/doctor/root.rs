//! Helpers of the probes: programs on a search path, versions, free space.

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

/// The first version in a text, as major and minor: `… version 10.0.2 (…)` is (10, 0).
pub fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .find_map(|word| {
            let mut numbers = word.split('.');
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        })
}

/// Bytes that an ordinary user may still write below the nearest existing parent of `path`.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|parent| parent.exists())?;
    let facts = rustix::fs::statvfs(existing).ok()?;
    facts.f_bavail.checked_mul(facts.f_frsize)
}

/// A field of /proc/meminfo in bytes.
pub fn meminfo_bytes(text: &str, field: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_and_kernels_say() {
        for (text, version) in [
            (
                "QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7)",
                Some((7, 2)),
            ),
            ("6.12.57+deb12-cloud-amd64", Some((6, 12))),
            ("6.18-rc1", Some((6, 18))),
            ("", None),
            ("no numbers", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }

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

    #[test]
    fn meminfo_is_in_kibibytes() {
        let text = "MemTotal:  4000 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(meminfo_bytes(text, "MemAvailable"), Some(2000 * 1024));
        assert_eq!(meminfo_bytes(text, "Mem"), None);
    }
}
