//! `dormouse wake` as a small program of its own, for an initramfs.

use std::process::ExitCode;

use dormouse_machine::snapshot::wake::{self, Place};

fn main() -> ExitCode {
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
