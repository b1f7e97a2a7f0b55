//! The command line of an OCI runtime, as far as it must be understood: which verb, which bundle,
//! where the engine reads errors. Everything goes on to the wrapped runtime as it is.
//!
//! ```text
//!  dormouse-oci [--root DIR] [--log FILE] [--log-format json] … create --bundle DIR … ID
//!               └──────────── global options ───────────────┘ verb   └── its options ──┘
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Global options of runc and crun that take a value.
const GLOBAL_WITH_VALUE: [&str; 8] = [
    "log",
    "log-format",
    "log-level",
    "root",
    "criu",
    "rootless",
    "cgroup-manager",
    "l",
];

/// What this runtime must know of its command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `create`, `start`, …; none for `--version` and the like.
    pub verb: Option<String>,
    /// The container's bundle, as `create` and `run` have it; none: the current directory.
    pub bundle: Option<PathBuf>,
    /// The name of the configuration in the bundle, where it is not `config.json` (crun).
    pub config: Option<PathBuf>,
    /// Where the engine reads errors.
    pub log: Option<PathBuf>,
    /// The engine reads JSON there.
    pub log_json: bool,
}

impl CommandLine {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: &[OsString]) -> Self {
        let mut line = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some((name, value)) = option(argument) else {
                line.verb = Some(argument.to_string_lossy().into_owned());
                break;
            };
            let value = match value {
                None if GLOBAL_WITH_VALUE.contains(&name.as_str()) => arguments.next().cloned(),
                value => value,
            };
            match (name.as_str(), value) {
                ("log", Some(value)) => line.log = Some(value.into()),
                ("log-format", Some(value)) => line.log_json = value == "json",
                _ => {}
            }
        }
        while let Some(argument) = arguments.next() {
            let Some((name, value)) = option(argument) else {
                continue;
            };
            let mut value = || value.clone().or_else(|| arguments.next().cloned());
            match name.as_str() {
                "bundle" | "b" => line.bundle = value().map(PathBuf::from),
                "config" | "f" => line.config = value().map(PathBuf::from),
                _ => {}
            }
        }
        // crun's way to name a place with a scheme; a bare path is a file.
        let file = line.log.as_deref().and_then(|log| log.to_str());
        if let Some(path) = file.and_then(|log| log.strip_prefix("file:")) {
            line.log = Some(path.into());
        }
        line
    }

    /// Whether it makes a container, and its configuration matters.
    pub fn creates(&self) -> bool {
        matches!(self.verb.as_deref(), Some("create" | "run"))
    }

    /// The container's configuration.
    pub fn config_path(&self) -> PathBuf {
        let bundle = self.bundle.clone().unwrap_or_else(|| PathBuf::from("."));
        let config = self.config.clone();
        bundle.join(config.unwrap_or_else(|| PathBuf::from("config.json")))
    }
}

/// An option's name without dashes, and its value if it is attached; none for anything else.
fn option(argument: &OsString) -> Option<(String, Option<OsString>)> {
    let bytes = argument.as_bytes();
    let bare = bytes.strip_prefix(b"--").or(bytes.strip_prefix(b"-"))?;
    if bare.is_empty() {
        return None;
    }
    let equals = bare.iter().position(|byte| *byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&bare[..at], Some(&bare[at + 1..])),
        None => (bare, None),
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let value = value.map(|value| std::ffi::OsStr::from_bytes(value).to_owned());
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CommandLine {
        let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        CommandLine::parse(&arguments)
    }

    #[test]
    fn the_command_lines_of_engines_are_understood() {
        let containerd = parse(
            "--root /run/containerd/runc/k8s.io --log /run/b/log.json --log-format json create \
             --bundle /run/b --pid-file /run/b/init.pid 0123",
        );
        assert!(containerd.creates() && containerd.log_json);
        assert_eq!(
            containerd.config_path(),
            PathBuf::from("/run/b/config.json")
        );
        assert_eq!(containerd.log, Some("/run/b/log.json".into()));
        let conmon = parse("--systemd-cgroup --root=/r create -b /b --no-pivot --pid-file p ID");
        assert_eq!(conmon.verb.as_deref(), Some("create"));
        assert_eq!(conmon.config_path(), PathBuf::from("/b/config.json"));
        let crun = parse("--log file:/l --log-format=json run --config my.json --bundle=/b ID");
        assert_eq!(crun.log, Some("/l".into()));
        assert_eq!(crun.config_path(), PathBuf::from("/b/my.json"));
    }

    #[test]
    fn a_value_is_never_taken_for_a_verb_nor_a_verb_for_a_value() {
        assert_eq!(
            parse("--root create state ID").verb.as_deref(),
            Some("state")
        );
        assert_eq!(parse("--debug create ID").verb.as_deref(), Some("create"));
        assert_eq!(parse("--version").verb, None);
        assert!(!parse("--root").creates());
        assert!(!parse("exec --bundle /b create").creates());
    }

    proptest::proptest! {
        #[test]
        fn no_command_line_is_a_panic(words in proptest::collection::vec("[-=a-z/]{0,8}", 0..8)) {
            let arguments: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            CommandLine::parse(&arguments).config_path();
        }
    }
}
