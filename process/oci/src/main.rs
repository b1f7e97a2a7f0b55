//! `dormouse-oci`: an OCI runtime whose containers survive power loss. It changes the configuration
//! of containers that ask for it by annotation, and hands everything to runc or crun.

mod annotations;
mod command_line;
mod log;
mod node;
mod settings;
mod spec;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use command_line::CommandLine;
use settings::{Settings, SettingsError};
use spec::SpecError;

const HELP: &str = "\
dormouse-oci: an OCI runtime whose containers survive power loss

It takes the command line of runc and crun, and starts one of them for everything. A container with
the annotation org.dormouse.persist=NAME gets `dormouse process run NAME` as its init; any other
container is none of its business.

  podman run --runtime dormouse-oci --annotation org.dormouse.persist=cache redis

Annotations: org.dormouse.persist[.CONTAINER], store, epoch-interval, budget, deadline,
             throttle, pause, on-power-loss, then, lease, data, changed-files
Settings:    /etc/dormouse/oci.toml (runtime, command, store, store_roots)
Exit codes:  those of the wrapped runtime; 1 with a reason in its log when a container cannot be
             persisted as it asks

What follows is the help of the wrapped runtime.
";

/// Why a container is not created.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{path}: {source}")]
    Config { path: PathBuf, source: SpecError },
    #[error("{path}: cannot {doing}: {source}")]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: std::io::Error,
    },
    #[error(transparent)]
    Node(#[from] node::NodeError),
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let line = CommandLine::parse(&arguments);
    let error = match prepare(&line) {
        Ok(runtime) => {
            let error = Command::new(&runtime).args(&arguments).exec();
            let path = runtime;
            let doing = "execute it";
            Error::Io {
                path,
                doing,
                source: error,
            }
        }
        Err(error) => error,
    };
    log::report(&line, &error.to_string());
    ExitCode::FAILURE
}

/// Changes the configuration where that is asked for; returns the runtime that does the rest.
fn prepare(line: &CommandLine) -> Result<PathBuf, Error> {
    let asks_for_help = std::env::args().nth(1);
    if matches!(asks_for_help.as_deref(), Some("--help" | "-h" | "help")) && line.log.is_none() {
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), "{HELP}");
    }
    let settings = Settings::read()?;
    if line.creates() {
        change(&line.config_path(), &settings)?;
    }
    Ok(settings.runtime)
}

fn change(path: &Path, settings: &Settings) -> Result<(), Error> {
    let io = |doing| {
        let path = path.to_owned();
        move |source| Error::Io {
            path,
            doing,
            source,
        }
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // The wrapped runtime says it as the engine expects.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("read it")(error)),
    };
    // Another runtime's business, and its errors.
    if !text.contains(annotations::PREFIX) {
        return Ok(());
    }
    let bundle = path.parent().unwrap_or(Path::new("."));
    let home = |user| node::home(bundle, &text, user);
    let changed = spec::change(&text, &settings.node, home).map_err(|source| Error::Config {
        path: path.to_owned(),
        source,
    })?;
    let Some(changed) = changed else {
        return Ok(());
    };
    node::check(&settings.node)?;
    if let Some(store) = &changed.host_store {
        node::make_store(store)?;
    }
    let text = changed.config.to_string();
    node::replace(path, text.as_bytes()).map_err(io("change it"))
}
