//! The node's settings: `/etc/dormouse/oci.toml`, each of which a variable of the environment
//! replaces.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::spec::Node;

/// The settings file.
const FILE: &str = "/etc/dormouse/oci.toml";
/// Runtimes that are wrapped without a setting, the first one that is there.
const RUNTIMES: [&str; 2] = ["runc", "crun"];
/// Beside the directories of PATH: engines start runtimes with a short one.
const DIRECTORIES: [&str; 5] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
];

/// As in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The wrapped runtime: a path or a name.
    runtime: Option<PathBuf>,
    /// The static dormouse command.
    command: Option<PathBuf>,
    /// Where the stores of containers are.
    store: Option<PathBuf>,
    /// Directories below which an annotation may place a store.
    store_roots: Option<Vec<PathBuf>>,
}

/// The settings in force.
#[derive(Debug)]
pub struct Settings {
    /// The wrapped runtime.
    pub runtime: PathBuf,
    /// What the node gives to persisted containers.
    pub node: Node,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// There is no runtime.
    #[error(
        "no OCI runtime {0} is installed: install runc or crun, or set `runtime` in \
         /etc/dormouse/oci.toml"
    )]
    NoRuntime(String),
    /// It would start itself.
    #[error("the wrapped runtime {0} is dormouse-oci itself: set `runtime` to runc or crun")]
    Itself(PathBuf),
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// The file is wrong, or there is no runtime to wrap.
    pub fn read() -> Result<Self, SettingsError> {
        let path = variable("DORMOUSE_OCI_SETTINGS").unwrap_or_else(|| FILE.into());
        let file = file(&path)?;
        let runtime = runtime(variable("DORMOUSE_OCI_RUNTIME").or(file.runtime))?;
        let store = variable("DORMOUSE_OCI_STORE")
            .or(file.store)
            .unwrap_or_else(|| "/var/lib/dormouse/containers".into());
        let own = std::env::current_exe().unwrap_or_default();
        let beside = own.with_file_name("dormouse");
        let command = variable("DORMOUSE_OCI_COMMAND").or(file.command);
        let command = command.unwrap_or_else(|| match beside.exists() {
            true => beside,
            false => "/usr/bin/dormouse".into(),
        });
        let store_roots = file.store_roots.unwrap_or_else(|| vec![store.clone()]);
        Ok(Self {
            runtime,
            node: Node {
                command,
                store,
                store_roots,
            },
        })
    }
}

fn file(path: &Path) -> Result<File, SettingsError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => {
            return Err(SettingsError::File {
                path: path.to_owned(),
                why: error.to_string(),
            });
        }
    };
    toml::from_str(&text).map_err(|error| SettingsError::File {
        path: path.to_owned(),
        why: error.to_string().trim().replace('\n', " "),
    })
}

/// A path, or the first file of that name.
fn runtime(wanted: Option<PathBuf>) -> Result<PathBuf, SettingsError> {
    let found = match &wanted {
        Some(path) if path.components().count() > 1 => path.exists().then(|| path.clone()),
        Some(name) => find(name),
        None => RUNTIMES.iter().find_map(|name| find(Path::new(name))),
    };
    let found = found.ok_or_else(|| {
        SettingsError::NoRuntime(
            wanted.map_or_else(String::new, |path| format!("{}", path.display())),
        )
    })?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = std::env::current_exe().unwrap_or_default();
    if real(&found) == real(&own) {
        return Err(SettingsError::Itself(found));
    }
    Ok(found)
}

fn find(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = own.into_iter().chain(DIRECTORIES.map(PathBuf::from));
    all.map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_file_with_an_unknown_name_is_refused_by_that_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("oci.toml");
        std::fs::write(&path, "runtime = \"crun\"\nstores = \"/x\"\n").expect("written");
        let error = file(&path).expect_err("wrong").to_string();
        assert!(
            error.contains("stores") && error.contains("oci.toml"),
            "{error}"
        );
        std::fs::write(&path, "runtime = \"crun\"\nstore = \"/x\"\n").expect("written");
        let good = file(&path).expect("good");
        assert_eq!(
            (good.runtime, good.store),
            (Some("crun".into()), Some("/x".into()))
        );
    }

    #[test]
    fn a_runtime_that_is_not_there_is_named() {
        let error = runtime(Some("/nowhere/runc".into()))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("/nowhere/runc"), "{error}");
    }
}
