//! Errors that must stop the firmware's build.

use std::fs;
use std::process::Command;

use dormouse_tests::workspace;

/// Another coreboot than the one that our hooks fit: here one that has only what marks it as such.
#[test]
fn a_hook_that_does_not_apply_stops_the_build_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("coreboot");
    fs::create_dir_all(source.join("src")).unwrap();
    fs::write(source.join("src/Kconfig"), "").unwrap();
    fs::write(source.join("Makefile"), "").unwrap();
    let said = Command::new(workspace().join("machine/firmware/build.sh"))
        .arg(&source)
        .arg(folder.path().join("work"))
        .arg(folder.path().join("output"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success(), "{stderr}");
    assert!(
        stderr.contains("hooks/01-q35-smi.patch does not apply"),
        "{stderr}"
    );
    assert!(!folder.path().join("output/coreboot.rom").exists());
}
