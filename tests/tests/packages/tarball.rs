//! The static tarball: install.sh and uninstall.sh.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::built::{built, succeeds};

struct Unpacked {
    folder: tempfile::TempDir,
    scripts: PathBuf,
}

impl Unpacked {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        succeeds(
            Command::new("tar")
                .arg("-xf")
                .arg(built().tarball())
                .arg("-C")
                .arg(folder.path()),
        );
        let mut entries = fs::read_dir(folder.path()).expect("it was made");
        let scripts = entries.next().expect("one folder").expect("it").path();
        fs::create_dir(folder.path().join("root")).expect("it can be made");
        Self { folder, scripts }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn run(&self, script: &Path, options: &[&str]) -> String {
        let mut command = Command::new(script);
        command.arg("--destdir").arg(self.root()).args(options);
        succeeds(&mut command)
    }

    fn install(&self, options: &[&str]) -> String {
        self.run(&self.scripts.join("install.sh"), options)
    }

    fn uninstall(&self, options: &[&str]) -> String {
        let script = self.root().join("usr/local/share/dormouse/uninstall.sh");
        self.run(&script, options)
    }

    /// Everything below the root, files and folders.
    fn everything(&self) -> Vec<String> {
        let list = succeeds(
            Command::new("find")
                .arg(self.root())
                .arg("-mindepth")
                .arg("1"),
        );
        let mut lines: Vec<String> = list.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

#[test]
#[ignore = "make test-packages: it needs the packages"]
fn a_dry_run_changes_nothing_and_names_each_file() {
    let unpacked = Unpacked::new();
    let text = unpacked.install(&["--dry-run"]);
    assert!(unpacked.everything().is_empty());
    for file in ["usr/local/bin/dormouse", "etc/dormouse/dormouse.conf"] {
        let line = format!("install {}", unpacked.root().join(file).display());
        assert!(text.lines().any(|it| it == line), "{file} in\n{text}");
    }
}

#[test]
#[ignore = "make test-packages: it needs the packages"]
fn what_was_installed_runs_and_is_removed_without_a_trace() {
    let unpacked = Unpacked::new();
    unpacked.install(&[]);
    let command = unpacked.root().join("usr/local/bin/dormouse");
    let version = succeeds(Command::new(command).arg("--version"));
    assert!(version.starts_with("dormouse "), "{version}");
    let units = unpacked.root().join("usr/local/lib/systemd/system");
    let unit = fs::read_to_string(units.join("dormouse-suspend.service")).expect("a unit");
    assert!(
        unit.contains("ExecStart=/usr/local/bin/dormouse "),
        "{unit}"
    );
    // Twice: the second run knows what the first one made.
    unpacked.install(&[]);
    unpacked.uninstall(&[]);
    assert_eq!(unpacked.everything(), Vec::<String>::new());
}

#[test]
#[ignore = "make test-packages: it needs the packages"]
fn files_of_others_and_a_changed_configuration_stay() {
    let unpacked = Unpacked::new();
    let other = unpacked.root().join("usr/local/bin/other");
    fs::create_dir_all(other.parent().expect("a folder")).expect("it can be made");
    fs::write(&other, "").expect("it can be written");
    unpacked.install(&[]);
    let conf = unpacked.root().join("etc/dormouse/dormouse.conf");
    fs::write(&conf, "DORMOUSE_RATE=1G\n").expect("it can be written");
    unpacked.install(&[]);
    assert_eq!(fs::read_to_string(&conf).expect("it"), "DORMOUSE_RATE=1G\n");
    unpacked.uninstall(&[]);
    assert!(conf.exists());
    assert!(other.exists());
    assert!(!other.with_file_name("dormouse").exists());
}
