//! `dormouse bandwidth top`: shows the daemon's status file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::time::Duration;

use dormouse_report::output;
use rustix::fs::{FlockOperation, flock};

use super::arguments::TopArguments;
use super::{CliError, DONE, screen};
use crate::daemon::config::Config;
use crate::daemon::status::{DeviceStatus, Status};

/// Users shown as text; JSON contains all of them.
const MAX_USERS: usize = 20;

pub fn run(arguments: &TopArguments) -> Result<u8, CliError> {
    let config = Config::read(&arguments.config)?;
    if !arguments.once && !arguments.json && std::io::stdout().is_terminal() {
        let look = || read(&config).ok();
        screen::show(read(&config)?, look)
            .map_err(|error| CliError::Failed(format!("the terminal: {error}")))?;
        return Ok(DONE);
    }
    loop {
        let status = read(&config)?;
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

fn read(config: &Config) -> Result<Status, CliError> {
    let path = config.status();
    let failed = |why: String| {
        CliError::Failed(format!("{}: {why}; is the daemon running?", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let status: Status = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    if !is_running(&config.ledger(), status.pid) {
        return Err(CliError::Failed(format!(
            "no daemon is running: {} was left by one that was killed",
            path.display()
        )));
    }
    Ok(status)
}

/// Whether a daemon holds the ledger, which stays locked while it lives. Without permission to
/// open it, checks whether the process exists.
fn is_running(ledger: &Path, pid: u32) -> bool {
    match File::open(ledger) {
        // The lock is released with the file; a daemon that starts meanwhile retries.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Path::new("/proc").join(pid.to_string()).exists()
        }
        Err(_) => false,
    }
}

fn rendered(status: &Status) -> String {
    let mut text = format!(
        "{:.2} of {:.2} GiB/s{}{}{}   {} passes of {:.0} µs, {} limits written\n\n",
        status.total_gib_s,
        status.threshold_gib_s,
        status
            .latency_ns
            .map_or(String::new(), |ns| format!(", an access takes {ns:.0} ns")),
        if status.derated {
            format!(", {}", status.derating())
        } else {
            String::new()
        },
        if status.trusted {
            ""
        } else {
            ", counters at fault"
        },
        status.passes,
        status.pass_us,
        status.writes,
    );
    if status.devices.len() > 1 {
        text.push_str(&devices(&status.devices));
    }
    if let Some(tiering) = &status.tiering {
        let limit = tiering.limit_gib_s;
        let limit = limit.map_or(String::new(), |gib_s| format!(", limited to {gib_s:.2}"));
        let _ = writeln!(text, "memory tiering: {:.2} GiB/s{limit}\n", tiering.gib_s);
    }
    let _ = writeln!(
        text,
        "{:>8} {:>6} {:>8} {:>9} {:>7}  cgroup",
        "GiB/s", "CPUs", "limit", "on CXL", "weight"
    );
    for user in status.users.iter().take(MAX_USERS) {
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
            user.label()
        );
    }
    if status.users.len() > MAX_USERS {
        let _ = writeln!(text, "and {} more", status.users.len() - MAX_USERS);
    }
    text
}

/// A line for each device.
fn devices(devices: &[DeviceStatus]) -> String {
    let mut text = format!(
        "{:>8} {:>9} {:>8} {:>8}  device\n",
        "GiB/s", "threshold", "ns", "p99, ns"
    );
    for device in devices {
        let ns = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{ns:.0}"));
        let state = match (device.trusted, device.derated) {
            (false, _) => "   counters at fault",
            (true, true) => "   derated",
            (true, false) => "",
        };
        let _ = writeln!(
            text,
            "{:>8.2} {:>9.2} {:>8} {:>8}  {}{state}",
            device.total_gib_s,
            device.threshold_gib_s,
            ns(device.latency_ns),
            ns(device.latency_quantiles_ns.map(|[.., slow]| slow)),
            device.name,
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::ledger::{Ledger, Wait};

    #[test]
    fn the_status_of_a_killed_daemon_is_not_shown_as_running() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bandwidth.toml");
        let text = format!(
            "nodes = [1]\nthreshold_gib_s = 4.0\ncgroups = [\"a\"]\nstate = \"{}\"\n\
             [counter]\nkind = \"text\"\npath = \"/nowhere\"\n",
            folder.path().display()
        );
        std::fs::write(&file, text).unwrap();
        let config = Config::read(&file).unwrap();
        let said = |config: &Config| read(config).unwrap_err().to_string();
        assert!(said(&config).contains("is the daemon running?"));
        Status::example().write(&config.status()).unwrap();
        assert!(said(&config).contains("no daemon is running"));
        let (ledger, _) = Ledger::open(&config.ledger(), Wait::Briefly).unwrap();
        assert_eq!(read(&config).unwrap(), Status::example());
        drop(ledger);
        assert!(said(&config).contains("no daemon is running"));
        let once = TopArguments {
            config: file,
            once: true,
            json: true,
        };
        assert!(run(&once).is_err());
    }
}
