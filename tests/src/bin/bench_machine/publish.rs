//! Puts tables and figures where the documentation has them.

use std::fs;
use std::path::Path;

use dormouse_tests::workspace;

use crate::figures::FIGURES;

const PAGE: &str = "docs/evaluation.md";
const FIGURES_FOLDER: &str = "docs/figures";
/// What is between these lines of the page is replaced.
const BEGIN: &str = "<!-- begin: make bench-machine -->";
const END: &str = "<!-- end: make bench-machine -->";

/// Copies the figures out of `folder` and replaces the tables of the page.
///
/// # Errors
/// A file cannot be read or written, or the page has no place for tables.
pub fn publish(folder: &Path, tables: &str) -> Result<(), String> {
    let figures = workspace().join(FIGURES_FOLDER);
    fs::create_dir_all(&figures).map_err(|error| format!("{}: {error}", figures.display()))?;
    for name in FIGURES {
        fs::copy(folder.join(name), figures.join(name))
            .map_err(|error| format!("copy {name}: {error}"))?;
    }
    let page = workspace().join(PAGE);
    let says = |error: std::io::Error| format!("{}: {error}", page.display());
    let text = fs::read_to_string(&page).map_err(says)?;
    let text = replaced(&text, tables)
        .ok_or_else(|| format!("{}: {BEGIN} and {END} are not there", page.display()))?;
    fs::write(&page, text).map_err(says)
}

fn replaced(page: &str, tables: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        tables.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let once = replaced(&page, "new\n").unwrap();
        assert_eq!(once, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replaced(&once, "new\n").unwrap(), once);
        assert_eq!(replaced("a page without marks", "new"), None);
    }

    #[test]
    fn the_page_has_a_place_for_the_tables() {
        let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
        assert!(replaced(&page, "x").is_some());
    }
}
