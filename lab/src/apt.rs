//! Fetches distribution packages through the machine's own apt configuration, without root and
//! without touching the system's own package state.
//!
//! Sources, keys, proxies and preferences are the machine's; package lists, the package cache
//! and the (empty) list of installed packages are private, in a folder of our cache. On other
//! distributions than Debian, [`ARCHIVE_VARIABLE`] names Debian's archive.

pub(crate) mod parse;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use thiserror::Error;

pub use parse::{ArchiveFile, Stanza};

/// The key that signs Debian's archive, from package debian-archive-keyring.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where Debian's archive is, for a machine whose own configuration does not have it.
pub const ARCHIVE_VARIABLE: &str = "DORMOUSE_DEBIAN_ARCHIVE";
/// What is taken from there: the release whose kernel is the lab's.
const ARCHIVE_SUITE: &str = "trixie";

/// Why the package archive did not give what was asked for.
#[derive(Debug, Error)]
pub enum AptError {
    /// There is no apt.
    #[error("{program} cannot be run ({source}): the lab needs a Debian system")]
    NoApt {
        /// The program.
        program: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// No Debian archive is configured.
    #[error(
        "no Debian archive in this machine's apt configuration ({detail}): see /etc/apt, or set \
         {ARCHIVE_VARIABLE} to the address of one (docs/howto/distributions.md)"
    )]
    NoArchive {
        /// What is missing.
        detail: String,
    },
    /// apt said no.
    #[error("{what}: {program} failed:\n{message}")]
    Failed {
        /// What was tried.
        what: String,
        /// The program.
        program: &'static str,
        /// The message of the program.
        message: String,
    },
    /// The configured suites do not have a package.
    #[error("the configured archives have none of these packages: {}", .0.join(", "))]
    NoPackage(Vec<String>),
    /// apt printed something that is not understood.
    #[error("{what}: cannot parse apt's line {line:?}")]
    Parse {
        /// What was tried.
        what: String,
        /// The line.
        line: String,
    },
    /// A fetched file is not what the signed index promised.
    #[error("{path} is not the file that the archive's index names: delete it and try again", path = .0.display())]
    WrongFile(PathBuf),
    /// Not cached, and the network is not to be used.
    #[error("{0} is not cached, and this build is offline")]
    Offline(String),
    /// A file could not be read or written.
    #[error("{action} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> AptError {
    let path = path.into();
    move |source| AptError::Io {
        action,
        path,
        source,
    }
}

/// Nothing where the variable is empty: that is how it is taken back in a shell.
fn named_archive(variable: Option<String>) -> Option<String> {
    variable.filter(|archive| !archive.trim().is_empty())
}

/// One private apt state.
#[derive(Debug, Clone)]
pub struct Apt {
    state: PathBuf,
    /// A source list of our own instead of the machine's.
    source_list: Option<PathBuf>,
    /// The suite whose versions are preferred, where the source list has several.
    preferred: Option<String>,
}

impl Apt {
    /// The machine's configured sources, or those of [`ARCHIVE_VARIABLE`] where that is set.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn machine(state: &Path) -> Result<Self, AptError> {
        if let Some(archive) = named_archive(std::env::var(ARCHIVE_VARIABLE).ok()) {
            return Self::debian_packages(state, &archive, ARCHIVE_SUITE);
        }
        let apt = Apt {
            state: state.to_path_buf(),
            source_list: None,
            preferred: None,
        };
        apt.prepare()?;
        Ok(apt)
    }

    /// The source packages of one suite of Debian's archive, which is at `archive` (an address
    /// from the machine's configuration).
    pub fn debian_sources(state: &Path, archive: &str, suite: &str) -> Result<Self, AptError> {
        Self::of_suite(state, "deb-src", archive, suite)
    }

    /// The same, of its binary packages.
    pub fn debian_packages(state: &Path, archive: &str, suite: &str) -> Result<Self, AptError> {
        Self::of_suite(state, "deb", archive, suite)
    }

    /// The binary packages of several suites, each with the address of its archive; versions of
    /// the suite `preferred` are taken before those of the others, otherwise the newest ones.
    pub fn debian_suites(
        state: &Path,
        suites: &[(String, String)],
        preferred: Option<&str>,
    ) -> Result<Self, AptError> {
        let mut apt = Self::of_suites(state, "deb", suites)?;
        apt.preferred = preferred.map(str::to_string);
        Ok(apt)
    }

    fn of_suite(state: &Path, kind: &str, archive: &str, suite: &str) -> Result<Self, AptError> {
        Self::of_suites(state, kind, &[(archive.to_string(), suite.to_string())])
    }

    fn of_suites(state: &Path, kind: &str, suites: &[(String, String)]) -> Result<Self, AptError> {
        let list = state.join("sources.list");
        let apt = Apt {
            state: state.to_path_buf(),
            source_list: Some(list.clone()),
            preferred: None,
        };
        apt.prepare()?;
        // Without the keyring file apt uses the machine's trusted keys.
        let signed = if Path::new(DEBIAN_KEYRING).exists() {
            format!("[signed-by={DEBIAN_KEYRING}] ")
        } else {
            String::new()
        };
        let lines: String = suites
            .iter()
            .map(|(archive, suite)| format!("{kind} {signed}{archive} {suite} main\n"))
            .collect();
        fs::write(&list, lines).map_err(io("write", list))?;
        Ok(apt)
    }

    fn prepare(&self) -> Result<(), AptError> {
        for folder in ["lists/partial", "cache/archives/partial"] {
            let path = self.state.join(folder);
            fs::create_dir_all(&path).map_err(io("create", path))?;
        }
        let installed = self.state.join("status");
        fs::write(&installed, "").map_err(io("write", installed))
    }

    fn command(&self, program: &'static str) -> Command {
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &Path| {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        };
        option("Dir::State", &self.state);
        option("Dir::State::Lists", &self.state.join("lists"));
        option("Dir::State::status", &self.state.join("status"));
        option("Dir::Cache", &self.state.join("cache"));
        if let Some(list) = &self.source_list {
            option("Dir::Etc::SourceList", list);
            option("Dir::Etc::SourceParts", Path::new("/dev/null"));
        }
        if let Some(suite) = &self.preferred {
            option("APT::Default-Release", Path::new(suite));
        }
        for fixed in [
            // The sandbox user cannot read a private cache below a home folder.
            "APT::Sandbox::User=root",
            "APT::Install-Recommends=false",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
            // `install` prints MD5 sums otherwise.
            "Acquire::ForceHash=SHA256",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::CNF::DefaultEnabled=false",
        ] {
            command.arg("-o").arg(fixed);
        }
        command
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    fn output(
        &self,
        program: &'static str,
        arguments: &[&str],
        what: &str,
    ) -> Result<Output, AptError> {
        let output = self
            .command(program)
            .args(arguments)
            .output()
            .map_err(|source| AptError::NoApt { program, source })?;
        if output.status.success() {
            return Ok(output);
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
        Err(AptError::Failed {
            what: what.to_string(),
            program,
            message,
        })
    }

    /// Fetches the package lists.
    pub fn update(&self) -> Result<(), AptError> {
        self.output("apt-get", &["-q", "update"], "fetch the package lists")
            .map(drop)
    }

    /// Fetches the package lists; if all that is wrong with them is that they should have been
    /// renewed since, they are taken and apt's complaint is returned.
    ///
    /// A mirror that is not updated any more is the usual cause. Signatures are still checked:
    /// what such a list names is Debian's, only perhaps not the newest.
    pub fn update_even_if_stale(&self) -> Result<Option<String>, AptError> {
        match self.update() {
            Err(AptError::Failed { message, .. }) if parse::is_stale(&message) => {
                let accept = ["-q", "-o", "Acquire::Check-Valid-Until=false", "update"];
                self.output("apt-get", &accept, "fetch the package lists")?;
                Ok(Some(message))
            }
            result => result.map(|()| None),
        }
    }

    /// Where the machine's configuration finds Debian's own archive.
    pub fn debian_archive(&self) -> Result<String, AptError> {
        let output = self.output("apt-get", &["indextargets"], "list the configured archives")?;
        let targets = parse::stanzas(&String::from_utf8_lossy(&output.stdout));
        parse::debian_archive(&targets).ok_or_else(|| AptError::NoArchive {
            detail: format!(
                "{} index targets, none of Debian's main archive",
                targets.len()
            ),
        })
    }

    /// Where the machine's configuration finds Debian's security updates, if it has them.
    pub fn security_archive(&self) -> Option<String> {
        let what = "list the configured archives";
        let output = self.output("apt-get", &["indextargets"], what).ok()?;
        parse::security_archive(&parse::stanzas(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The record of a package's newest version; `None` if the archives do not have it.
    pub fn show(&self, package: &str) -> Option<Stanza> {
        let output = self
            .output(
                "apt-cache",
                &["show", "--no-all-versions", package],
                "show a package",
            )
            .ok()?;
        parse::stanzas(&String::from_utf8_lossy(&output.stdout))
            .into_iter()
            .next()
    }

    /// The files of these packages and of everything they depend on, as for an empty system.
    pub fn closure(&self, packages: &[&str]) -> Result<Vec<ArchiveFile>, AptError> {
        let mut arguments = vec!["-qq", "-y", "--print-uris", "install"];
        arguments.extend(packages);
        self.files(
            "apt-get",
            &arguments,
            "resolve the packages of the root file system",
        )
    }

    /// The files of exactly these packages.
    pub fn files_of(&self, packages: &[String]) -> Result<Vec<ArchiveFile>, AptError> {
        let mut arguments = vec!["-qq", "--print-uris", "download"];
        arguments.extend(packages.iter().map(String::as_str));
        self.files("apt-get", &arguments, "resolve the kernel packages")
    }

    /// The files of a source package.
    pub fn source_files(&self, package: &str) -> Result<Vec<ArchiveFile>, AptError> {
        let arguments = ["-qq", "--print-uris", "--download-only", "source", package];
        self.files("apt-get", &arguments, "resolve a source package")
    }

    fn files(
        &self,
        program: &'static str,
        arguments: &[&str],
        what: &str,
    ) -> Result<Vec<ArchiveFile>, AptError> {
        let output = self.output(program, arguments, what)?;
        let mut files = parse::uris(&String::from_utf8_lossy(&output.stdout)).map_err(|line| {
            AptError::Parse {
                what: what.to_string(),
                line,
            }
        })?;
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// Fetches binary packages into `folder`; `percent` receives the progress of all of them.
    pub fn download(
        &self,
        files: &[ArchiveFile],
        folder: &Path,
        percent: &dyn Fn(f64),
    ) -> Result<(), AptError> {
        let packages: Vec<String> = files
            .iter()
            .filter_map(ArchiveFile::package)
            .map(|(name, version, _)| format!("{name}={version}"))
            .collect();
        self.fetch("download", &packages, folder, percent)
    }

    /// Fetches the files of a source package into `folder` without unpacking them.
    pub fn download_source(
        &self,
        package: &str,
        folder: &Path,
        percent: &dyn Fn(f64),
    ) -> Result<(), AptError> {
        self.fetch(
            "source",
            &["--download-only".into(), package.into()],
            folder,
            percent,
        )
    }

    /// Fetches the upstream tarball of a source package into `folder`, and nothing else of it.
    pub fn download_tarball(&self, package: &str, folder: &Path) -> Result<(), AptError> {
        let words = ["--download-only", "--tar-only", package].map(String::from);
        self.fetch("source", &words, folder, &|_| {})
    }

    fn fetch(
        &self,
        verb: &str,
        arguments: &[String],
        folder: &Path,
        percent: &dyn Fn(f64),
    ) -> Result<(), AptError> {
        let program = "apt-get";
        let mut child = self
            .command(program)
            // Progress as lines on standard output, beside what apt prints there anyway.
            .args(["-qq", "-o", "APT::Status-Fd=1", verb])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| AptError::NoApt { program, source })?;
        let stderr = child.stderr.take();
        let errors = std::thread::spawn(move || {
            stderr
                .map(std::io::read_to_string)
                .and_then(Result::ok)
                .unwrap_or_default()
        });
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(value) = parse::download_percent(&line) {
                    percent(value);
                }
            }
        }
        let status = child
            .wait()
            .map_err(|source| AptError::NoApt { program, source })?;
        let message = errors.join().unwrap_or_default().trim().to_string();
        if status.success() {
            return Ok(());
        }
        Err(AptError::Failed {
            what: "fetch packages".into(),
            program,
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_names_no_archive() {
        let named = |text: &str| named_archive(Some(text.to_owned()));
        assert_eq!(
            named("http://example.org/debian").as_deref(),
            Some("http://example.org/debian")
        );
        assert_eq!(
            (named(""), named(" "), named_archive(None)),
            (None, None, None)
        );
    }
}
