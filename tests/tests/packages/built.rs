//! What `make packages` built, and a second build with a higher version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use dormouse_tests::{dormouse_path, test_folder, workspace};

/// Appended to the version of the second build.
const NEWER: &str = "+next";

/// A folder with packages of one version.
pub struct Packages {
    pub folder: PathBuf,
}

impl Packages {
    /// The package's file.
    pub fn deb(&self, name: &str) -> PathBuf {
        let prefix = format!("{name}_");
        self.file(|file| file.starts_with(&prefix) && file.ends_with(".deb"))
    }

    pub fn tarball(&self) -> PathBuf {
        self.file(|file| file.starts_with("dormouse-") && file.ends_with("-x86_64.tar.xz"))
    }

    /// The version of all of them.
    pub fn version(&self) -> String {
        let words = ["--field", "Version"];
        let output = Command::new("dpkg-deb")
            .args(&words[..1])
            .arg(self.deb("dormouse"))
            .arg(words[1])
            .output()
            .expect("dpkg-deb can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn file(&self, is_wanted: impl Fn(&str) -> bool) -> PathBuf {
        let entries = fs::read_dir(&self.folder)
            .unwrap_or_else(|error| panic!("{}: {error}: make packages", self.folder.display()));
        entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| is_wanted(&path.file_name().unwrap_or_default().to_string_lossy()))
            .unwrap_or_else(|| panic!("{} lacks a package: make packages", self.folder.display()))
    }
}

/// What `make packages` built of this tree.
pub fn built() -> Packages {
    Packages {
        folder: workspace().join("out/packages"),
    }
}

/// The same with a higher version, built once.
pub fn newer() -> Packages {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = test_folder("packages-newer");
        let build = workspace().join("packaging/build.sh");
        succeeds(
            Command::new(build)
                .arg(&folder)
                .env("PACKAGE_SUFFIX", NEWER)
                .env("DORMOUSE", dormouse_path()),
        );
        folder
    });
    Packages {
        folder: folder.clone(),
    }
}

/// Runs a script of packaging/tests; its last line of output.
pub fn script(name: &str, arguments: &[&Path]) -> PathBuf {
    let path = workspace().join("packaging/tests").join(name);
    let output = succeeds(Command::new(path).args(arguments));
    PathBuf::from(output.lines().last().unwrap_or_default())
}

/// Runs a command to its end; what it printed.
///
/// # Panics
/// It fails.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?} failed ({})\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
