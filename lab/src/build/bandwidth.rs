//! The machine for bandwidth control: a distribution kernel (one with sched_ext, of a newer
//! suite than the machine's own kernels, or that of the machine that sleeps), an initrd with our
//! init and the `dormouse` command, and a memory device that counts (`lab/device`), which is
//! compiled as the emulator's plugin.
//!
//! Like the machine of [`super::devices`], it has its own part of the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::command::{find_program, run};
use super::context::{Context, Made};
use super::packages::unpack;
use super::{BuildError, BuildOptions, BuildProgress, Step, StepReport};
use super::{binaries, cpio};
use crate::apt::{Apt, AptError, ArchiveFile, parse};
use crate::cache::Key;

/// The first suite whose cloud kernels have sched_ext.
const SUITE: &str = "testing";
/// What depends on the newest one, and how packages with a kernel in them begin.
const NEWEST: &str = "linux-image-cloud-amd64";
const PREFIXES: [&str; 2] = ["linux-image-", "linux-binary-"];
/// The device: its source, its header, and the plugin built from them.
const SOURCE: &str = "lab/device/cxl_device.c";
const HEADER: &str = "lab/device/plugin.h";
const DEVICE: &str = "cxl_device.so";
const CFLAGS: &str = "-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -fPIC -shared \
                      -fvisibility=hidden";
/// How long the archive's answer is used before it is asked again.
const VALID: Duration = Duration::from_secs(24 * 3600);

/// The parts of that machine; all paths are in the cache.
#[derive(Debug, Clone, Serialize)]
pub struct BandwidthArtefacts {
    /// For `-kernel`.
    pub kernel: PathBuf,
    /// For `-initrd`, with a job appended.
    pub initrd: PathBuf,
    /// For `-plugin`.
    pub device: PathBuf,
    /// The steps of the build.
    pub steps: Vec<StepReport>,
}

/// Which kernel the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthKernel {
    /// The newest of the testing suite, which has sched_ext.
    Newest,
    /// The one that the machine that sleeps runs, without.
    Stock,
}

/// Where the kernel comes from.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Source {
    /// Address of the archive, from the machine's configuration.
    archive: String,
    file: ArchiveFile,
}

/// Builds what is not in the cache yet.
///
/// # Errors
/// See [`BuildError`].
pub fn build_bandwidth(
    options: &BuildOptions,
    which: BandwidthKernel,
    progress: &dyn BuildProgress,
) -> Result<BandwidthArtefacts, BuildError> {
    let stock = match which {
        BandwidthKernel::Stock => Some(super::stock_kernel(options, progress)?),
        BandwidthKernel::Newest => None,
    };
    let context = Context::open(options, progress, Some("bandwidth"))?;
    let kernel = match stock {
        Some(kernel) => kernel,
        None => kernel(&context)?.path.join("vmlinuz"),
    };
    let initrd = initrd(&context)?;
    let device = device(&context)?;
    let steps = context.end()?;
    Ok(BandwidthArtefacts {
        kernel,
        initrd: initrd.path.join("initrd.cpio"),
        device: device.path.join(DEVICE),
        steps,
    })
}

fn suite(context: &Context<'_>, archive: &str) -> Result<Apt, AptError> {
    Apt::debian_packages(&context.cache.state_folder("apt/packages"), archive, SUITE)
}

/// The package with the newest kernel; yesterday's answer serves without asking.
fn source(context: &Context<'_>) -> Result<Source, BuildError> {
    context.remembered(NEWEST, VALID, || ask(context))
}

fn ask(context: &Context<'_>) -> Result<Source, AptError> {
    let machine = Apt::machine(&context.cache.state_folder("apt/machine"))?;
    machine.update_even_if_stale()?;
    let archive = machine.debian_archive()?;
    let apt = suite(context, &archive)?;
    if let Some(complaint) = apt.update_even_if_stale()? {
        context.warn(complaint);
    }
    let none = |name: &str| AptError::NoPackage(vec![name.to_owned()]);
    // The kernel itself is in the last package of the chain: its name has the version.
    let mut name = NEWEST.to_owned();
    loop {
        let record = apt.show(&name).ok_or_else(|| none(&name))?;
        let depends = record.get("Depends").map_or("", String::as_str);
        let next = parse::depends(depends).into_iter().flatten().find(|next| {
            PREFIXES.iter().any(|prefix| next.starts_with(prefix)) && next.contains("-cloud-")
        });
        match next {
            Some(next) if next != name => name = next,
            _ => break,
        }
    }
    let file = apt
        .files_of(std::slice::from_ref(&name))?
        .into_iter()
        .next();
    let file = file.ok_or_else(|| none(&name))?;
    Ok(Source { archive, file })
}

fn kernel(context: &Context<'_>) -> Result<Made, BuildError> {
    let source = source(context)?;
    let mut key = Key::new();
    key.text(&source.file.name, &source.file.sha256);
    let name = source.file.name.clone();
    context.make(Step::BandwidthKernel, &key, &name, |running, work| {
        let files = running.files(&[source.file], |missing, folder, percent| {
            suite(context, &source.archive)?.download(missing, folder, percent)
        })?;
        let root = work.join("root");
        for file in &files {
            unpack(file, &root, &running.log()?)?;
        }
        let image = image(&root).ok_or_else(|| {
            BuildError::Unexpected(format!(
                "{name} has no kernel image where one is known to be"
            ))
        })?;
        let path = work.join("vmlinuz");
        fs::rename(image, &path).map_err(BuildError::io("rename", path))
    })
}

/// `/boot/vmlinuz-*`, or, in newer packages, `/usr/lib/modules/*/vmlinuz`.
fn image(root: &Path) -> Option<PathBuf> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let in_boot = entries(root.join("boot"))
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains("/vmlinuz-"));
    in_boot.or_else(|| {
        entries(root.join("usr/lib/modules"))
            .map(|entry| entry.path().join("vmlinuz"))
            .find(|path| path.is_file())
    })
}

/// Init and the command: the machine has no disk.
fn initrd(context: &Context<'_>) -> Result<Made, BuildError> {
    let programs = binaries::binaries(context)?;
    let mut key = Key::new();
    programs.add_to(&mut key);
    key.text("recipe", "1");
    context.make(Step::BandwidthInitrd, &key, "init, dormouse", |_, work| {
        let mut archive = cpio::Archive::default();
        for folder in ["dev", "proc", "sys", "run"] {
            archive.folder(folder);
        }
        archive.character_device("dev/console", 5, 1);
        for (name, path) in [("init", &programs.guest), ("dormouse", &programs.command)] {
            let bytes = fs::read(path).map_err(BuildError::io("read", path))?;
            archive.file(name, 0o755, &bytes);
        }
        let path = work.join("initrd.cpio");
        fs::write(&path, archive.finish()).map_err(BuildError::io("write", path))
    })
}

/// The emulator loads it, so it is no static program as the others.
fn device(context: &Context<'_>) -> Result<Made, BuildError> {
    let compiler = find_program("cc", "build-essential")?;
    let source = context.sources.join(SOURCE);
    let mut key = Key::new();
    key.file("source", &source)?
        .file("header", &context.sources.join(HEADER))?
        .text("flags", CFLAGS)
        .program(&compiler)?;
    context.make(Step::BandwidthDevice, &key, DEVICE, |running, work| {
        let mut command = Command::new(&compiler);
        command.args(CFLAGS.split_whitespace());
        command.arg("-o").arg(work.join(DEVICE)).arg(&source);
        run(&mut command, "building the memory device", &running.log()?)
    })
}
