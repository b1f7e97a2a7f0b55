//! `lab boot`: a machine to run one's own programs in.

use std::fs;

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
