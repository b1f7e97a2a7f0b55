//! `dormouse bandwidth top`: what the daemon does, from its status file.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use dormouse_report::output;

use super::arguments::TopArguments;
use super::{CliError, DONE, screen};
use crate::daemon::config::Config;
use crate::daemon::status::Status;

/// Users shown without --all.
const MOST_USERS: usize = 20;

pub fn run(arguments: &TopArguments) -> Result<u8, CliError> {
    let config = Config::read(&arguments.config)?;
    let path = config.status();
    if !arguments.once && !arguments.json && std::io::stdout().is_terminal() {
        let look = || read(&path).ok();
        screen::show(read(&path)?, look)
            .map_err(|error| CliError::Failed(format!("the terminal: {error}")))?;
        return Ok(DONE);
    }
    loop {
        let status = read(&path)?;
        if arguments.json {
            output::json(&status)?;
        } else {
            output::text(&rendered(&status))?;
        }
        if arguments.once {
            return Ok(DONE);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn read(path: &Path) -> Result<Status, CliError> {
    let failed = |why: String| {
        CliError::Failed(format!("{}: {why}; is the daemon running?", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

fn rendered(status: &Status) -> String {
    let mut text = format!(
        "{:.2} of {:.2} GiB/s{}{}   {} passes of {:.0} µs, {} limits written\n\n",
        status.total_gib_s,
        status.threshold_gib_s,
        status
            .latency_ns
            .map_or(String::new(), |ns| format!(", an access takes {ns:.0} ns")),
        if status.trusted {
            ""
        } else {
            ", counters at fault"
        },
        status.passes,
        status.pass_us,
        status.writes,
    );
    let _ = writeln!(
        text,
        "{:>8} {:>6} {:>8} {:>9} {:>7}  cgroup",
        "GiB/s", "CPUs", "limit", "on CXL", "weight"
    );
    for user in status.users.iter().take(MOST_USERS) {
        let limit = match (user.limit_cpus, user.protected) {
            (Some(cpu), _) => format!("{cpu:.3}"),
            (None, true) => "protected".to_owned(),
            (None, false) => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "{:>8.3} {:>6.2} {limit:>8} {:>5} MiB {:>7.2}  {}",
            user.gib_s,
            user.cpus,
            user.resident_bytes >> 20,
            user.weight,
            user.cgroup
        );
    }
    if status.users.len() > MOST_USERS {
        let _ = writeln!(text, "and {} more", status.users.len() - MOST_USERS);
    }
    text
}
