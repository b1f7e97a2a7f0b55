//! Completion scripts and man pages, made from the command line's own definition.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::output;

/// `dormouse completions SHELL`.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "dormouse", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// `dormouse man DIR`: one page for the command and one for each verb.
///
/// # Errors
/// The directory cannot be made or written.
pub fn man_pages(directory: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    clap_mangen::generate_to(Arguments::command(), directory).with_context(|| {
        format!(
            "cannot write man pages into {}; check permissions",
            directory.display()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `dormouse man --markdown`: all commands as one page of the book, on standard output.
///
/// # Errors
/// Standard output cannot be written.
pub fn markdown_page() -> Result<ExitCode> {
    let options = clap_markdown::MarkdownOptions::new()
        .title("Command line".to_owned())
        .show_footer(false);
    let page = clap_markdown::help_markdown_command_custom(&Arguments::command(), &options);
    output::text(&page)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        man_pages(directory.path()).unwrap();
        for page in ["dormouse.1", "dormouse-sleep.1", "dormouse-image-verify.1"] {
            let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
            assert!(text.contains(".TH"), "{page}");
        }
    }
}
