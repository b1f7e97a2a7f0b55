//! What each pass found and decided, as a table for plotting: why is this one slowed, and by how
//! much?

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::CliError;
use crate::daemon::{Daemon, Pass};

const MIB: f64 = 1048576.0;
/// What the columns are, in the units of their names; `level` is the bandwidth for a weight of 1
/// (`inf`: nobody is slowed), `trim` the integral, relative to the threshold.
const COLUMNS: &str =
    "pass\ts\ttotal_mib_s\tlevel_mib_s\ttrim\tcgroup\tmib_s\tcpus\tlimit_cpus\theld_back";

/// A file of tab-separated values: a line for each user in each pass.
pub struct Trace(BufWriter<File>);

impl Trace {
    /// # Errors
    /// The file cannot be made.
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

    /// After the pass of this number, so many seconds since the daemon began.
    ///
    /// # Errors
    /// It cannot be written.
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
