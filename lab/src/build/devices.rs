//! Builds the machine whose devices suspend and resume: the distribution's Linux source with our
//! hooks and files (`devices/kernel`), and an initrd with our init.
//!
//! It has its own part of the cache and its own lock: other machines are built and booted during
//! the minutes that compiling a kernel takes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::command::find_program;
use super::context::{Context, Made, Running};
use super::{BuildError, BuildOptions, BuildProgress, Step, StepReport, binaries, cpio};
use crate::apt::{Apt, AptError, ArchiveFile};
use crate::cache::Key;

const SOURCES: &str = "devices/kernel";
/// The distribution's source package, built as a binary package.
const PACKAGE: &str = "linux-source-6.12";
/// How long the archive's answer is used before it is asked again.
const VALID: Duration = Duration::from_secs(24 * 3600);
/// Programs of the build and their packages; each decides what comes out.
const PROGRAMS: [(&str, &str); 5] = [
    ("gcc", "build-essential"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
];
/// How the script marks a line that says what it does.
const ACTIVITY: &str = "==> ";

/// The parts of that machine; all paths are in the cache.
#[derive(Debug, Clone, Serialize)]
pub struct DevicesArtefacts {
    /// For `-kernel`.
    pub kernel: PathBuf,
    /// For `-initrd`, with a job appended.
    pub initrd: PathBuf,
    /// Release of the kernel.
    pub kernel_release: String,
    /// Lockdep, KASAN and KCSAN, or none of them.
    pub checked: Checked,
    /// Whether the kernel finds its processors by ACPI; our own one has no ACPI.
    pub acpi: bool,
    /// The steps of the build.
    pub steps: Vec<StepReport>,
}

/// Which checks are compiled into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Checked {
    /// None: for timing
    #[default]
    No,
    /// Lock order (lockdep), memory accesses (KASAN), undefined behaviour (UBSAN)
    Memory,
    /// Data races (KCSAN)
    Races,
}

impl Checked {
    fn name(self) -> &'static str {
        match self {
            Checked::No => "plain",
            Checked::Memory => "memory",
            Checked::Races => "races",
        }
    }

    fn fragment(self, sources: &Path) -> Option<PathBuf> {
        let name = format!("config-{}", self.name());
        (self != Checked::No).then(|| sources.join(SOURCES).join(name))
    }
}

/// Builds what is not in the cache yet.
///
/// # Errors
/// See [`BuildError`]; nothing half-built is ever taken for complete. An interrupted compilation
/// goes on where it was.
pub fn build_devices(
    options: &BuildOptions,
    checked: Checked,
    progress: &dyn BuildProgress,
) -> Result<DevicesArtefacts, BuildError> {
    let context = Context::open(options, progress, Some("devices"))?;
    let kernel = kernel(&context, checked)?;
    let initrd = initrd(&context)?;
    let release_file = kernel.path.join("release");
    let release =
        fs::read_to_string(&release_file).map_err(BuildError::io("read", release_file))?;
    let steps = context.end()?;
    Ok(DevicesArtefacts {
        kernel: kernel.path.join("bzImage"),
        initrd: initrd.path.join("initrd.cpio"),
        kernel_release: release.trim().to_owned(),
        checked,
        acpi: false,
        steps,
    })
}

/// The newest source that the machine's archives have; yesterday's answer serves without asking.
fn source_package(context: &Context<'_>) -> Result<ArchiveFile, BuildError> {
    context.remembered(PACKAGE, VALID, || {
        let apt = Apt::machine(&context.cache.state_folder("apt/machine"))?;
        apt.update()?;
        let found = apt.files_of(&[PACKAGE.into()])?.into_iter().next();
        found.ok_or_else(|| AptError::NoPackage(vec![PACKAGE.into()]))
    })
}

fn kernel(context: &Context<'_>, checked: Checked) -> Result<Made, BuildError> {
    let source = source_package(context)?;
    let sources = context.sources.join(SOURCES);
    let fragment = checked.fragment(&context.sources);
    let mut key = Key::new();
    key.text(&source.name, &source.sha256)
        .text("checked", checked.name())
        .file("script", &sources.join("build.sh"))?
        .file("shared", &context.sources.join(super::PATCHED_BUILD))?
        .file("config", &sources.join("config"))?
        .tree("hooks", &sources.join("hooks"), &|_| true)?
        .tree("files", &sources.join("files"), &|_| true)?;
    if let Some(fragment) = &fragment {
        key.file("fragment", fragment)?;
    }
    for (program, package) in PROGRAMS {
        key.program(&find_program(program, package)?)?;
    }
    let detail = format!("{}, {}", source.name, checked.name());
    context.make(Step::DevicesKernel, &key, &detail, |running, work| {
        let package = running.files(&[source], |missing, folder, percent| {
            Apt::machine(&context.cache.state_folder("apt/machine"))?
                .download(missing, folder, percent)
        })?;
        // Kept from build to build, one tree for each kind: make compiles what changed.
        let build = context.cache.folder(&format!("build-{}", checked.name()))?;
        let mut command = Command::new(sources.join("build.sh"));
        command
            .arg(&package[0])
            .arg(&build)
            .arg(work)
            .arg(format!("-j{}", context.options.jobs.max(1)))
            .args(&fragment);
        run_script(&mut command, running)
    })
}

/// Runs the script; what it says that it does is this step's activity.
fn run_script(command: &mut Command, running: &Running<'_>) -> Result<(), BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let log_path = running.log()?;
    let log = fs::File::create(&log_path).map_err(BuildError::io("create", &log_path))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(BuildError::io("run", &program))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(activity) = line.strip_prefix(ACTIVITY) {
                running.activity(activity);
            }
        }
    }
    let status = child.wait().map_err(BuildError::io("run", &program))?;
    if status.success() {
        return Ok(());
    }
    Err(BuildError::Command {
        what: "building the kernel".into(),
        program,
        status: status.to_string(),
        tail: fs::read_to_string(&log_path).unwrap_or_default(),
        log: log_path,
    })
}

/// Init alone: the machine has no disk.
fn initrd(context: &Context<'_>) -> Result<Made, BuildError> {
    let guest = binaries::guest(context)?;
    let mut key = Key::new();
    key.file("guest", &guest)?.text("recipe", "1");
    context.make(Step::DevicesInitrd, &key, "init", |_, work| {
        let mut archive = cpio::Archive::default();
        add_init(&mut archive, &guest)?;
        let path = work.join("initrd.cpio");
        fs::write(&path, archive.finish()).map_err(BuildError::io("write", path))
    })
}

/// Init, and the folders in which it mounts.
pub(super) fn add_init(archive: &mut cpio::Archive, guest: &Path) -> Result<(), BuildError> {
    for folder in ["dev", "proc", "sys", "sys/kernel", "sys/kernel/debug"] {
        archive.folder(folder);
    }
    archive.character_device("dev/console", 5, 1);
    let init = fs::read(guest).map_err(BuildError::io("read", guest))?;
    archive.file("init", 0o755, &init);
    Ok(())
}

/// The initrd with a file in its root folder: the kernel unpacks one archive after the other.
pub fn initrd_with(initrd: &Path, name: &str, contents: &[u8]) -> Result<Vec<u8>, BuildError> {
    let mut bytes = fs::read(initrd).map_err(BuildError::io("read", initrd))?;
    let mut archive = cpio::Archive::default();
    archive.file(name.trim_start_matches('/'), 0o600, contents);
    bytes.extend(archive.finish());
    Ok(bytes)
}
