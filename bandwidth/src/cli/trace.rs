//! The measurements and decisions of each pass as a table, for plotting and debugging.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::CliError;
use crate::daemon::{Daemon, Pass};

const MIB: f64 = 1048576.0;
/// The columns, in the units of their names; `level` is the bandwidth for a weight of 1 (`inf`: no
/// user is slowed), `trim` the integral term, relative to the threshold.
const COLUMNS: &str =
    "pass\ts\ttotal_mib_s\tlevel_mib_s\ttrim\tcgroup\tmib_s\tcpus\tlimit_cpus\theld_back";

/// A file of tab-separated values: a line for each user in each pass.
pub struct Trace(BufWriter<File>);

impl Trace {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, CliError> {
        let create = || {
            let mut file = BufWriter::new(File::create(path)?);
            writeln!(file, "{COLUMNS}")?;
            Ok(Self(file))
        };
        create().map_err(|error: std::io::Error| {
            CliError::Failed(format!("--trace: {}: {error}", path.display()))
        })
    }

    /// Adds the pass with this number, `s` seconds after the start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(
        &mut self,
        number: u64,
        s: f64,
        daemon: &Daemon,
        pass: &Pass,
    ) -> std::io::Result<()> {
        let (total, level) = (pass.total / MIB, pass.level / MIB);
        for user in daemon.users() {
            let limit = user.limit.unwrap_or(f64::INFINITY);
            writeln!(
                self.0,
                "{number}\t{s:.3}\t{total:.3}\t{level:.3}\t{:.4}\t{}\t{:.3}\t{:.4}\t{limit:.4}\t{}",
                pass.trim,
                user.cgroup.path.display(),
                user.bandwidth / MIB,
                user.cpu,
                u8::from(user.held_back()),
            )?;
        }
        self.0.flush()
    }
}
