//! `dormouse bandwidth doctor --calibrate`: a counter is compared with known traffic before it is
//! trusted.

use std::fs;
use std::path::Path;

use dormouse_tests::{Said, dormouse};

/// The doctor's calibration of a counter in a text file.
fn calibrated(folder: &Path, text: Option<&str>, json: bool) -> Said {
    let (file, config) = (folder.join("counters"), folder.join("bandwidth.toml"));
    if let Some(text) = text {
        fs::write(&file, text).expect("written");
    }
    let settings = format!(
        "nodes = [0]\nthreshold_gib_s = 1.0\ncgroups = [\"a\"]\n\
         [counter]\nkind = \"text\"\npath = \"{}\"\n",
        file.display()
    );
    fs::write(&config, settings).expect("written");
    let path = config.to_str().expect("UTF-8");
    let mut arguments = vec!["bandwidth", "doctor", "--calibrate", "--config", path];
    arguments.extend(json.then_some("--json"));
    dormouse(&arguments)
}

#[test]
fn a_counter_that_counts_nothing_of_known_traffic_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = calibrated(folder.path(), Some("read write\n7 9\n"), false);
    assert_eq!(said.code, 4, "{}", said.all());
    for direction in [
        "reads: counted 0 of 256 MiB",
        "writes: counted 0 of 512 MiB",
    ] {
        assert!(said.stdout.contains(direction), "{}", said.all());
    }
    assert!(
        said.stdout.contains("off by more than 10 %"),
        "{}",
        said.all()
    );
    let said = calibrated(folder.path(), None, true);
    assert_eq!(said.code, 4, "{}", said.all());
    let found = said.report();
    assert_eq!(found["ready"], false, "{found}");
}

#[test]
fn a_counter_that_cannot_be_read_is_lacking_and_not_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = calibrated(folder.path(), None, false);
    assert_eq!(said.code, 3, "{}", said.all());
    assert!(said.stdout.contains("cannot be read"), "{}", said.all());
    let said = dormouse(&["bandwidth", "doctor", "--calibrate"]);
    assert_eq!(said.code, 2, "{}", said.all());
}
