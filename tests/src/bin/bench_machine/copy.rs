//! The rows of the image crate's own benchmark: firmware's copy routine against memcpy.

use std::fs;
use std::path::Path;
use std::process::Command;

use dormouse_tests::dormouse_path;
use serde_json::Value;

const FILE: &str = "copy.json";

/// Runs it; its rows are kept in `folder`.
///
/// # Errors
/// It was not built, or failed.
pub fn run(folder: &Path) -> Result<(), String> {
    let program = dormouse_path().with_file_name("examples/copy_bench");
    let status = Command::new(&program)
        .arg("--json")
        .arg(folder.join(FILE))
        .status()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{} ended with {status}", program.display()))
}

/// What the last run measured; nothing where there was none.
///
/// # Errors
/// The file is damaged.
pub fn rows(folder: &Path) -> Result<Vec<Value>, String> {
    let path = folder.join(FILE);
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(Vec::new());
    };
    let says = |why: &str| format!("{}: {why}", path.display());
    let result: Value = serde_json::from_str(&text).map_err(|error| says(&error.to_string()))?;
    let rows = result.get("rows").unwrap_or(&result).as_array().cloned();
    rows.ok_or_else(|| says("no rows"))
}
