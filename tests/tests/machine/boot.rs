//! `lab boot`: a machine to run one's own programs in.

use std::fs;
use std::process::Command;

use dormouse_tests::guest;

#[test]
fn a_folder_is_copied_to_a_disk_that_the_machine_can_write_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let below = folder.path().join("a folder/below");
    fs::create_dir_all(&below).expect("folders");
    fs::write(below.join("words"), "copied\n").expect("a file");
    let share = folder.path().to_str().expect("a UTF-8 path");
    let said = guest(
        "share",
        &["--dram", "512M", "--cxl", "256M", "--share", share],
        "cd '/mnt/scratch/a folder/below' && cat words && echo written > words && cat words",
    );
    assert_eq!(said, "copied\nwritten\n");
    let here = fs::read_to_string(below.join("words")).expect("a file");
    assert_eq!(here, "copied\n", "it is a copy");
}

/// An interrupt saves the flags and loads them again: wrong ones are the end of a kernel now and then.
#[test]
fn the_flags_of_a_program_are_those_that_hardware_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let share = folder.path().to_str().expect("a UTF-8 path");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machine/flags.c");
    let compiled = Command::new("gcc")
        .args(["-O1", "-Wall", "-Werror", "-static", "-o"])
        .arg(folder.path().join("flags"))
        .arg(source)
        .status()
        .expect("gcc can be started");
    assert!(compiled.success(), "{source} does not compile");
    let said = guest(
        "flags",
        &["--dram", "512M", "--cxl", "256M", "--share", share],
        "/mnt/scratch/flags",
    );
    assert_eq!(said, "as on hardware\n");
}
