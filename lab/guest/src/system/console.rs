//! Lines for people, on the console.

use std::fs;

/// Writes a line into the kernel's log, which goes to the console.
pub fn say(text: &str) {
    let line = format!("<5>dormouse-guest: {text}\n");
    if fs::write("/dev/kmsg", &line).is_err() {
        eprintln!("dormouse-guest: {text}");
    }
}
