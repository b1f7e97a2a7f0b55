//! A key sealed to a TPM, and the counter in it: on swtpm, a TPM in software.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dormouse_seal::{Counter, KeyError, KeySource, Tpm, TpmCounter};

/// A TPM of this test's own; gone with it.
struct SoftwareTpm {
    child: Child,
    folder: tempfile::TempDir,
}

impl SoftwareTpm {
    /// None, with the reason on standard error, where the packages are missing.
    fn start() -> Option<Self> {
        for program in ["swtpm", "tpm2"] {
            if Command::new(program).arg("--version").output().is_err() {
                eprintln!("skipped: {program} is not installed (packages swtpm, tpm2-tools)");
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let child = Self::run(folder.path());
        Some(Self { child, folder })
    }

    fn run(folder: &Path) -> Child {
        let at = |name: &str| folder.join(name).display().to_string();
        let _ = std::fs::remove_file(at("socket"));
        let child = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", folder.display())])
            .args(["--server", &format!("type=unixio,path={}", at("socket"))])
            .args(["--ctrl", &format!("type=unixio,path={}.ctrl", at("socket"))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while UnixStream::connect(format!("{}.ctrl", at("socket"))).is_err() {
            std::thread::yield_now();
        }
        child
    }

    fn tcti(&self) -> Option<String> {
        Some(format!(
            "swtpm:path={}",
            self.folder.path().join("socket").display()
        ))
    }

    /// Off and on again: what is not in its non-volatile memory is gone.
    fn power_cycle(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::run(self.folder.path());
    }
}

impl Drop for SoftwareTpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_key_of_the_tpm_comes_back_after_a_power_cycle_and_only_from_this_tpm() {
    let Some(mut tpm) = SoftwareTpm::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = Tpm::new(folder.path(), None, tpm.tcti());
    let (key, id) = source.create().unwrap();
    tpm.power_cycle();
    assert_eq!(source.unlock(&id).unwrap().bytes(), key.bytes());
    // The same key for the next image, too.
    assert_eq!(source.create().unwrap().1, id);

    let other = SoftwareTpm::start().unwrap();
    let stranger = Tpm::new(folder.path(), None, other.tcti());
    let refused = stranger.unlock(&id);
    assert!(
        matches!(refused, Err(KeyError::Command { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_key_bound_to_a_register_is_not_given_when_another_system_was_booted() {
    let Some(tpm) = SoftwareTpm::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = Tpm::new(folder.path(), Some("sha256:7".into()), tpm.tcti());
    let (_, id) = source.create().unwrap();
    source.unlock(&id).unwrap();
    let extend = format!("7:sha256={}", "ab".repeat(32));
    let tcti = tpm.tcti().unwrap();
    let status = Command::new("tpm2")
        .args(["pcrextend", &extend, "-T", &tcti])
        .status();
    assert!(status.unwrap().success());
    let refused = source.unlock(&id);
    assert!(
        matches!(refused, Err(KeyError::Command { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_counter_goes_up_only_and_outlives_power() {
    let Some(mut tpm) = SoftwareTpm::start() else {
        return;
    };
    let counter = TpmCounter::new(TpmCounter::DEFAULT_INDEX, tpm.tcti());
    assert!(
        counter.read().is_err(),
        "there is none before it is defined"
    );
    counter.define().unwrap();
    let first = counter.read().unwrap();
    assert_eq!(counter.increment().unwrap(), first + 1);
    tpm.power_cycle();
    // Defining it again leaves it as it is.
    TpmCounter::new(TpmCounter::DEFAULT_INDEX, tpm.tcti())
        .define()
        .unwrap();
    assert_eq!(counter.read().unwrap(), first + 1);
    assert_eq!(counter.increment().unwrap(), first + 2);
}

#[test]
fn without_a_tpm_the_error_says_what_the_tools_said() {
    if Command::new("tpm2").arg("--version").output().is_err() {
        eprintln!("skipped: tpm2 is not installed (package tpm2-tools)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nowhere = Some("swtpm:path=/nonexistent/socket".to_owned());
    let error = Tpm::new(folder.path(), None, nowhere)
        .create()
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("tpm2 createprimary: ERROR"), "{error}");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
}
