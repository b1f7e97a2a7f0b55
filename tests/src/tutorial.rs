//! Follows a tutorial of `docs/tutorials` to the letter.
//!
//! A page's `sh` blocks are what the reader types, in this order, in one shell. Comments of the form
//! `<!-- check … -->` hold commands that the reader does not see; each must succeed at its place.
//! Blocks of another language (`console`, `text`) are not run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{dormouse_path, workspace};

/// The script that a page's reader would have typed, with the checks at their places.
///
/// # Panics
/// The page has no command, or a block or check does not end.
pub fn script_of(page: &str) -> String {
    let mut script = String::from("set -euo pipefail\n");
    let mut commands = 0;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let (end, is_check) = match line {
            "```sh" => ("```", false),
            "<!-- check" => ("-->", true),
            _ => continue,
        };
        if is_check {
            let _ = writeln!(script, "echo '--- check' >&2");
        } else {
            commands += 1;
            let _ = writeln!(script, "echo '--- step {commands}' >&2");
        }
        loop {
            let line = lines.next().expect("a block of a tutorial ends");
            if line == end {
                break;
            }
            let _ = writeln!(script, "{line}");
        }
    }
    assert!(commands > 0, "a tutorial has commands");
    script
}

/// Longer than any tutorial takes on a busy machine, in seconds. What waits for ever is a failure.
const MAX_SECONDS: &str = "3600";

/// Follows the tutorial `name` in `folder`, with `dormouse` in the search path.
///
/// # Panics
/// A command or a check fails; the message has the whole output.
pub fn follow(name: &str, folder: &Path) {
    let page = workspace().join("docs/tutorials").join(name);
    let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page:?}: {error}"));
    let bin = dormouse_path();
    let bin = bin.parent().expect("the folder of the command");
    let path = std::env::var("PATH").expect("a search path");
    let output = Command::new("timeout")
        .args([MAX_SECONDS, "bash", "-c", &script_of(&text)])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", bin.display()))
        .output()
        .expect("timeout can be started");
    assert!(
        output.status.success(),
        "{}: {}\n--- stdout\n{}\n--- stderr\n{}{}",
        page.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        logs(folder)
    );
}

/// What the commands wrote into `*.log` in their folder.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = path.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let log = fs::read_to_string(&path).unwrap_or_default();
            let _ = write!(text, "\n--- {}\n{log}", path.display());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_checks_are_taken_in_order_and_others_are_not() {
        let page = "# A\n\n```sh\none\n```\ntext\n```text\nno\n```\n<!-- check\ntwo\n-->\n```console\n# no\n```\n```sh\nthree\n```\n";
        let script = script_of(page);
        let kept: Vec<&str> = script
            .lines()
            .filter(|line| !line.starts_with("echo '---"))
            .collect();
        assert_eq!(kept, ["set -euo pipefail", "one", "two", "three"]);
    }

    #[test]
    #[should_panic(expected = "a tutorial has commands")]
    fn a_page_without_commands_is_no_tutorial() {
        script_of("# A\n");
    }
}
