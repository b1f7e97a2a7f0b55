//! Puts tables and figures into the pages of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

const PAGES_FOLDER: &str = "docs/evaluation";
const FIGURES_FOLDER: &str = "docs/evaluation/figures";

/// The page of a command: `make bench-process` has its tables in `process.md`.
fn page_of(command: &str) -> PathBuf {
    let capability = match command.rsplit('-').next().unwrap_or(command) {
        "scale" => "machine",
        other => other,
    };
    workspace()
        .join(PAGES_FOLDER)
        .join(capability)
        .with_extension("md")
}

/// The lines of the page between which the results of this command stand.
fn marks(command: &str) -> (String, String) {
    (
        format!("<!-- begin: {command} -->"),
        format!("<!-- end: {command} -->"),
    )
}

/// Copies the figures out of `folder`, and replaces the tables of `command` in the page.
///
/// # Errors
/// A file cannot be read or written, or the page has no place for these tables.
pub fn publish(command: &str, folder: &Path, names: &[&str], tables: &str) -> Result<(), String> {
    let figures = workspace().join(FIGURES_FOLDER);
    fs::create_dir_all(&figures).map_err(|error| format!("{}: {error}", figures.display()))?;
    for name in names {
        fs::copy(folder.join(name), figures.join(name))
            .map_err(|error| format!("copy {name}: {error}"))?;
    }
    let page = page_of(command);
    let says = |error: std::io::Error| format!("{}: {error}", page.display());
    let text = fs::read_to_string(&page).map_err(says)?;
    let text = replaced(&text, command, tables)
        .ok_or_else(|| format!("{}: {:?} are not there", page.display(), marks(command)))?;
    fs::write(&page, text).map_err(says)
}

fn replaced(page: &str, command: &str, tables: &str) -> Option<String> {
    let (begin, end) = marks(command);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!(
        "{before}{begin}\n\n{}\n\n{end}{after}",
        tables.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let (begin, end) = marks("make x");
        let page = format!("a\n{begin}\nold\n{end}\nb\n");
        let once = replaced(&page, "make x", "new\n").unwrap();
        assert_eq!(once, format!("a\n{begin}\n\nnew\n\n{end}\nb\n"));
        assert_eq!(replaced(&once, "make x", "new\n").unwrap(), once);
        assert_eq!(replaced(&once, "make y", "new"), None);
        assert_eq!(replaced("a page without marks", "make x", "new"), None);
    }

    #[test]
    fn each_page_has_a_place_for_its_tables() {
        for name in [
            "machine",
            "scale",
            "process",
            "bandwidth",
            "devices",
            "offload",
        ] {
            let command = &format!("make bench-{name}");
            let page = fs::read_to_string(page_of(command)).unwrap();
            assert!(replaced(&page, command, "x").is_some(), "{command}");
        }
    }
}
