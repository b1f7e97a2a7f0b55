//! `dormouse wake` as a small program of its own, for an initramfs.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(dormouse_machine::snapshot::wake::main())
}
