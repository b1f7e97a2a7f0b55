//! Output of every benchmark: results for programs, tables for people.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::page;

/// A benchmark that has come to its end.
pub struct Outcome<'a> {
    /// Of the files: NAME.json, NAME.md.
    pub name: &'a str,
    /// What a user types.
    pub command: &'a str,
    /// When it was measured.
    pub date: &'a str,
    /// Where.
    pub machine: &'a Value,
    /// One for each figure with its goal.
    pub rows: &'a [Value],
    /// Markdown.
    pub tables: &'a str,
    /// Plots that lie in the folder.
    pub figures: &'a [&'a str],
}

impl Outcome<'_> {
    /// Writes the results, prints the tables, and puts them into docs/ if asked.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn put(&self, folder: &Path, publish: bool) -> Result<(), String> {
        let says = |error: std::io::Error| format!("{}: {error}", folder.display());
        let Self { name, command, .. } = *self;
        let result = json!({
            "name": name,
            "date": self.date,
            "command": command,
            "machine": self.machine,
            "rows": self.rows,
        });
        let text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
        fs::write(folder.join(format!("{name}.json")), text).map_err(says)?;
        fs::write(folder.join(format!("{name}.md")), self.tables).map_err(says)?;
        println!("{}", self.tables);
        eprintln!("bench: {name}.json and {name}.md in {}", folder.display());
        if publish {
            page::publish(command, folder, self.figures, self.tables)?;
        }
        Ok(())
    }
}

/// The exit code of a benchmark; says why it failed.
pub fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}
