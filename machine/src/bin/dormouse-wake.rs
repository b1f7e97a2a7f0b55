//! `dormouse wake` as a small program of its own, for an initramfs; as process 1 it is all of the boot
//! entry's.

use std::process::ExitCode;

use dormouse_machine::snapshot::boot_entry;
use dormouse_machine::snapshot::wake::{self, Place};

fn main() -> ExitCode {
    // The kernel gives process 1 the words of its command line that it does not know.
    if std::process::id() == 1 && boot_entry::is_in_its_image() {
        boot_entry::run_as_init();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => ExitCode::from(wake::main(Place::AfterUdev)),
        ["--before-udev"] => ExitCode::from(wake::main(Place::BeforeUdev)),
        _ => {
            eprintln!("dormouse-wake: {words:?}: it takes `--before-udev` or nothing");
            ExitCode::from(2)
        }
    }
}
