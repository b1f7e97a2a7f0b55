//! The peer: CRIU, built from the newest source package of the distribution that builds here.
//!
//! The tarball comes through the machine's own apt configuration, as the lab's sources do, and
//! stays with the program made from it in the cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_lab::apt::{Apt, ArchiveFile};
use dormouse_lab::cache::{Cache, Key, sha256_of_file};
use dormouse_tests::bench::first_line;
use serde::{Deserialize, Serialize};

/// The newest first: an older one is taken where a newer one does not build or does not run.
const SUITES: [&str; 3] = ["unstable", "testing", "stable"];
/// How long an answer of the archive is used before it is asked again.
const VALID: Duration = Duration::from_secs(24 * 3600);
/// Changes when something is built in another way.
const RECIPE: &str = "1";

/// A CRIU that runs here.
#[derive(Debug, Clone)]
pub struct Criu {
    pub program: PathBuf,
    pub version: String,
}

/// A suite's source package.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Package {
    suite: String,
    archive: String,
    version: String,
    tarball: ArchiveFile,
}

/// What the archive said last.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    asked_s: u64,
    packages: Vec<Package>,
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The newest one that builds and runs here.
///
/// # Errors
/// There is none, and why the newest is not.
pub fn build() -> Result<Criu, String> {
    let cache = Cache::open().map_err(words)?;
    let _lock = cache
        .lock(|| eprintln!("bench: waiting for another build to finish"))
        .map_err(words)?;
    let packages = packages(&cache)?;
    let mut first_error = None;
    for package in &packages {
        match made(&cache, package).and_then(|program| usable(program, package)) {
            Ok(criu) => return Ok(criu),
            Err(error) => {
                eprintln!("bench: criu {}: {error}", package.version);
                first_error.get_or_insert(format!("criu {}: {error}", package.version));
            }
        }
    }
    Err(first_error.unwrap_or_else(|| "no source package of CRIU in the archive".into()))
}

fn usable(program: PathBuf, package: &Package) -> Result<Criu, String> {
    let check = Command::new(&program)
        .arg("check")
        .output()
        .map_err(words)?;
    if !check.status.success() {
        let text = String::from_utf8_lossy(&check.stderr);
        return Err(text
            .lines()
            .last()
            .unwrap_or("`criu check` fails")
            .to_owned());
    }
    let said = first_line(Command::new(&program).arg("--version"));
    let version = format!("{} ({}, {})", said, package.version, package.suite);
    Ok(Criu { program, version })
}

/// The package of each suite, without doubles.
fn packages(cache: &Cache) -> Result<Vec<Package>, String> {
    let path = cache.folder("apt").map_err(words)?.join("criu.json");
    let known: Option<Answer> = fs::read(&path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    if let Some(answer) = &known
        && now_s.saturating_sub(answer.asked_s) < VALID.as_secs()
    {
        return Ok(answer.packages.clone());
    }
    match (ask(cache), known) {
        (Ok(packages), _) => {
            let answer = Answer {
                asked_s: now_s,
                packages,
            };
            let text = serde_json::to_vec_pretty(&answer).map_err(words)?;
            fs::write(&path, text).map_err(words)?;
            Ok(answer.packages)
        }
        (Err(error), Some(answer)) => {
            eprintln!("bench: the CRIU that is known is taken: {error}");
            Ok(answer.packages)
        }
        (Err(error), None) => Err(error),
    }
}

fn ask(cache: &Cache) -> Result<Vec<Package>, String> {
    let machine = Apt::machine(&cache.state_folder("apt/machine")).map_err(words)?;
    let archive = match machine.debian_archive() {
        Ok(archive) => archive,
        Err(_) => {
            machine.update_even_if_stale().map_err(words)?;
            machine.debian_archive().map_err(words)?
        }
    };
    let mut packages: Vec<Package> = Vec::new();
    let mut first_error = None;
    for suite in SUITES {
        match of_suite(cache, &archive, suite) {
            Ok(package) if packages.iter().any(|p| p.tarball == package.tarball) => {}
            Ok(package) => packages.push(package),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if packages.is_empty() => Err(error),
        _ => Ok(packages),
    }
}

fn sources(cache: &Cache, archive: &str, suite: &str) -> Result<Apt, String> {
    let state = cache.state_folder(&format!("apt/{suite}"));
    Apt::debian_sources(&state, archive, suite).map_err(words)
}

fn of_suite(cache: &Cache, archive: &str, suite: &str) -> Result<Package, String> {
    let sources = sources(cache, archive, suite)?;
    sources.update_even_if_stale().map_err(words)?;
    let files = sources.source_files("criu").map_err(words)?;
    let version = files
        .iter()
        .find_map(|file| file.name.strip_suffix(".dsc")?.strip_prefix("criu_"))
        .ok_or("its source package has no description")?
        .to_owned();
    let tarball = files
        .iter()
        .find(|file| file.name.contains(".orig.tar"))
        .ok_or("its source package has no tarball")?
        .clone();
    Ok(Package {
        suite: suite.to_owned(),
        archive: archive.to_owned(),
        version,
        tarball,
    })
}

/// The program, from the cache or made now.
fn made(cache: &Cache, package: &Package) -> Result<PathBuf, String> {
    let mut key = Key::new();
    key.text("recipe", RECIPE)
        .text(&package.tarball.name, &package.tarball.sha256)
        .text(
            "compiler",
            &first_line(Command::new("gcc").arg("--version")),
        );
    if let Some(path) = cache.artefact("criu", &key) {
        return Ok(path.join("criu"));
    }
    let tarball = fetched(cache, package)?;
    eprintln!("bench: building CRIU {}", package.version);
    let log = cache.folder("logs").map_err(words)?.join("criu.log");
    let path = cache.make("criu", &key, |work| {
        compile(cache, &tarball, work, &log).map_err(Failure)
    });
    Ok(path.map_err(|Failure(why)| why)?.join("criu"))
}

/// An error in words, for the cache's signature.
struct Failure(String);

impl From<dormouse_lab::cache::CacheError> for Failure {
    fn from(error: dormouse_lab::cache::CacheError) -> Self {
        Failure(error.to_string())
    }
}

fn fetched(cache: &Cache, package: &Package) -> Result<PathBuf, String> {
    // Not among the lab's downloads: its builds remove what they do not know there.
    let folder = cache.folder("downloads/criu").map_err(words)?;
    let path = folder.join(&package.tarball.name);
    let right = |path: &Path| {
        path.is_file() && sha256_of_file(path).is_ok_and(|sum| sum == package.tarball.sha256)
    };
    if !right(&path) {
        let _ = fs::remove_file(&path);
        sources(cache, &package.archive, &package.suite)?
            .download_tarball(&format!("criu={}", package.version), &folder)
            .map_err(words)?;
        if !right(&path) {
            return Err(format!("{} is not what the index names", path.display()));
        }
    }
    Ok(path)
}

fn compile(cache: &Cache, tarball: &Path, artefact: &Path, log: &Path) -> Result<(), String> {
    let work = cache.work_folder("criu-build").map_err(words)?;
    let output = File::create(log).map_err(words)?;
    let run = |command: &mut Command| -> Result<(), String> {
        let again = || output.try_clone().map_err(words);
        let status = command
            .stdin(Stdio::null())
            .stdout(again()?)
            .stderr(again()?)
            .status()
            .map_err(words)?;
        let program = command.get_program().to_string_lossy().into_owned();
        match status.success() {
            true => Ok(()),
            false => Err(format!("{program} failed; {} says why", log.display())),
        }
    };
    run(Command::new("tar")
        .arg("-xf")
        .arg(tarball)
        .arg("-C")
        .arg(work.path())
        .arg("--strip-components=1"))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    run(Command::new("make")
        .arg("-C")
        .arg(work.path())
        .arg(format!("-j{jobs}"))
        // Encrypted images are not measured.
        .args(["NO_GNUTLS=1", "WERROR=0", "criu"])
        .env_remove("MAKEFLAGS"))?;
    fs::copy(work.path().join("criu/criu"), artefact.join("criu")).map_err(words)?;
    Ok(())
}
