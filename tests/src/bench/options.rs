//! The options that every benchmark has.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

/// Flattened into a benchmark's own options.
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// Folder of results, and of what was measured
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    pub out: PathBuf,
    /// How often each case is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Put tables and figures into docs/
    #[arg(long)]
    pub publish: bool,
}

/// Those of a benchmark that keeps what it measures.
#[derive(Debug, Args)]
pub struct KeepingOptions {
    #[command(flatten)]
    common: BenchOptions,
    /// Measure nothing; make results of what was measured
    #[arg(long)]
    pub no_run: bool,
}

impl std::ops::Deref for KeepingOptions {
    type Target = BenchOptions;

    fn deref(&self) -> &BenchOptions {
        &self.common
    }
}

impl BenchOptions {
    /// The folder of the results, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self) -> Result<&Path, String> {
        match fs::create_dir_all(&self.out) {
            Ok(()) => Ok(&self.out),
            Err(error) => Err(format!("{}: {error}", self.out.display())),
        }
    }
}
