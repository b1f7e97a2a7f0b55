//! Turns distribution packages and this project's sources into a bootable emulated machine.

mod bandwidth;
mod binaries;
mod cmdline;
pub(crate) mod command;
mod context;
mod cpio;
mod devices;
mod devices_drivers;
mod devices_stock;
mod elf;
mod error;
mod ext4;
mod firmware;
mod initrd;
mod kernel;
mod module;
mod modules;
mod packages;
mod payload;
mod plan;
mod progress;
mod rom;
mod rootfs;
mod sources;
mod stock;
mod tools;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

pub use bandwidth::{BandwidthArtefacts, BandwidthKernel, build_bandwidth};
pub use devices::{Checked, DevicesArtefacts, build_devices, initrd_with};
pub use devices_stock::{
    build_devices_drivers, build_devices_folder, build_devices_stock, build_graph_module,
};
pub use error::BuildError;
pub use progress::{BuildEvent, BuildProgress, Quiet, Step, StepReport};
pub use sources::source_root;
pub use stock::{StockKernel, build_stock, stock_kernels};

use crate::apt::{AptError, ArchiveFile};
use context::Context;
use packages::KernelPackages;
use plan::Plan;

/// What the scripts that build the firmware and the kernel of graph order read, in the sources.
const PATCHED_BUILD: &str = "scripts/lib/patched-build.sh";

/// Which of the distribution's 6.12 kernels the machine runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Flavour {
    /// The small kernel for virtual machines.
    #[default]
    Cloud,
    /// The kernel for any machine.
    Generic,
}

impl Flavour {
    /// Both, for options that list them.
    pub const ALL: [Flavour; 2] = [Flavour::Cloud, Flavour::Generic];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Flavour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Flavour::ALL
            .into_iter()
            .find(|flavour| flavour.name() == text)
            .ok_or_else(|| format!("{text:?} is no kernel flavour: cloud or generic"))
    }
}

/// What to build, and how.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Flavour of the kernel.
    pub flavour: Flavour,
    /// Further words for the kernel's command line.
    pub cmdline: String,
    /// Compilers at a time.
    pub jobs: usize,
    /// Never touch the network; what is not cached is an error.
    pub offline: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            flavour: Flavour::default(),
            cmdline: String::new(),
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            offline: false,
        }
    }
}

/// The parts of an emulated machine; all paths are in the cache and must not be written to.
#[derive(Debug, Clone, Serialize)]
pub struct Artefacts {
    /// Flavour of the kernel.
    pub flavour: Flavour,
    /// Flash image for `-bios`: coreboot with kernel and initrd as its payload.
    pub firmware_rom: PathBuf,
    /// For `-kernel` under the emulator's own firmware.
    pub kernel: PathBuf,
    /// That kernel's configuration.
    pub kernel_config: PathBuf,
    /// For `-initrd` under the emulator's own firmware.
    pub initrd: PathBuf,
    /// The same with what wakes a machine under stock firmware.
    pub wake_initrd: PathBuf,
    /// Raw ext4 image, the read-only base of the root disk.
    pub rootfs: PathBuf,
    /// A further part of an initrd: what talks to a TPM.
    pub tpm_tools: PathBuf,
    /// Raw ext4 image, read-only: `dormouse`, `dormouse.ko`, the dax modules.
    pub payload: PathBuf,
    /// Our kernel module.
    pub module: PathBuf,
    /// All of that kernel's modules, as its package has them: what is in `/lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// For example `6.12.1+deb12-cloud-amd64`.
    pub kernel_release: String,
    /// The command line in the flash image; use the same with `-kernel`.
    pub cmdline: String,
    /// What was cached, what was built, and how long each took.
    pub steps: Vec<StepReport>,
}

/// Builds what is not in the cache yet and returns where everything is.
///
/// # Errors
/// See [`BuildError`]; nothing half-built is ever taken for complete.
pub fn build(
    options: &BuildOptions,
    progress: &dyn BuildProgress,
) -> Result<Artefacts, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (mut plan, mut new) = plan::plan(&context, false)?;
    let mut artefacts = match make_usual(&context, &plan) {
        // A file that the archive had yesterday is replaced by its next version today.
        Err(BuildError::Apt(AptError::Failed { .. })) if !new && !options.offline => {
            context.take_reports();
            (plan, new) = plan::plan(&context, true)?;
            make_usual(&context, &plan)
        }
        made => made,
    }?;
    if new {
        plan.forget_other_files(&context.cache)?;
    }
    artefacts.steps = context.end()?;
    Ok(artefacts)
}

/// The kernel of the machine that sleeps, alone; it is in the cache wherever that machine was built.
fn stock_kernel(
    options: &BuildOptions,
    progress: &dyn BuildProgress,
) -> Result<PathBuf, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (plan, _) = plan::plan(&context, false)?;
    let kernel = kernel::kernel(&context, plan.kernel(options.flavour)?)?;
    Ok(kernel.image())
}

fn make_usual(context: &Context<'_>, plan: &Plan) -> Result<Artefacts, BuildError> {
    make(context, plan, plan.kernel(context.options.flavour)?, None)
}

/// Makes all parts for this kernel, those at the same time that do not need each other; its module
/// is built with `tools`, or else with this machine's own programs.
fn make(
    context: &Context<'_>,
    plan: &Plan,
    packages: &KernelPackages,
    tools: Option<&[ArchiveFile]>,
) -> Result<Artefacts, BuildError> {
    let cmdline = cmdline::cmdline(&context.options.cmdline);
    thread::scope(|scope| {
        let binaries = scope.spawn(|| binaries::binaries(context));
        let kernel_and_module = scope.spawn(|| {
            let kernel = kernel::kernel(context, packages)?;
            let tools = match (tools, &packages.origin) {
                (Some(files), Some(suites)) => Some(tools::tools(context, files, suites)?),
                _ => None,
            };
            let module = module::module(context, &kernel, tools.as_ref())?;
            Ok::<_, BuildError>((kernel, module))
        });
        let firmware = scope.spawn(|| firmware::firmware(context, plan));
        let rootfs = scope.spawn(|| rootfs::rootfs(context, &plan.rootfs));

        let (kernel, module) = join(kernel_and_module)?;
        let binaries = join(binaries)?;
        let initrd = initrd::initrd(context, &kernel, &binaries)?;
        let wake_initrd = initrd::wake_initrd(context, &kernel, &initrd, &binaries)?;
        let payload = payload::payload(context, &kernel, &module, &binaries)?;
        let firmware = join(firmware)?;
        let rom = rom::rom(context, &firmware, &kernel, &initrd, &cmdline)?;
        let rootfs = join(rootfs)?;
        Ok(Artefacts {
            flavour: packages.flavour,
            firmware_rom: rom::file(&rom.path),
            kernel: kernel.image(),
            kernel_config: kernel.config(),
            initrd: initrd::file(&initrd.path),
            wake_initrd: initrd::file(&wake_initrd.path),
            rootfs: rootfs::image(&rootfs.path),
            tpm_tools: rootfs::tpm_tools(&rootfs.path),
            payload: payload::image(&payload.path),
            module: module::file(&module),
            modules: kernel.modules(),
            kernel_release: kernel.release,
            cmdline,
            steps: Vec::new(),
        })
    })
}

/// An archive of an initrd with these files, and the folders that they lie in.
pub(crate) fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = cpio::Archive::default();
    let mut folders = std::collections::BTreeSet::new();
    for (name, _) in files {
        let parts: Vec<_> = Path::new(name).ancestors().skip(1).collect();
        folders.extend(
            parts
                .into_iter()
                .rev()
                .filter(|path| *path != Path::new("")),
        );
    }
    for folder in folders {
        archive.folder(&folder.to_string_lossy());
    }
    for (name, contents) in files {
        archive.file(name, 0o600, contents);
    }
    archive.finish()
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T, BuildError>>) -> Result<T, BuildError> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether a file of a folder with C sources and scripts can change what is built from it.
fn is_source(path: &Path) -> bool {
    let kind = path
        .extension()
        .and_then(|kind| kind.to_str())
        .unwrap_or_default();
    let tests = path.components().any(|part| part.as_os_str() == "tests");
    !tests
        && !matches!(
            kind,
            "md" | "o" | "ko" | "a" | "mod" | "cmd" | "symvers" | "order" | "rs"
        )
}

/// Whether a file belongs to the C library that firmware and module compile.
fn is_c_source(path: &Path) -> bool {
    let kind = path.extension().and_then(|kind| kind.to_str());
    matches!(kind, Some("c" | "h")) && (path.starts_with("src") || path.starts_with("include"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_change_a_build_is_an_input_of_it() {
        for input in [
            "build.sh",
            "Kbuild",
            "hooks/01-q35-smi.patch",
            "driver/save.c",
            "config",
        ] {
            assert!(is_source(Path::new(input)), "{input}");
        }
        for other in [
            "README.md",
            "tests/mark.c",
            "mark.o",
            "dormouse.ko",
            "dormouse.mod.c.md",
        ] {
            assert!(!is_source(Path::new(other)), "{other}");
        }
        assert!(is_c_source(Path::new("src/plan.c")));
        assert!(is_c_source(Path::new("include/dormouse_image.h")));
        for other in [
            "tests/plan.c",
            "rust/lib.rs",
            "examples/fuzz.c",
            "src/lib.rs",
        ] {
            assert!(!is_c_source(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn a_flavour_is_read_as_it_is_written() {
        for flavour in Flavour::ALL {
            assert_eq!(flavour.to_string().parse(), Ok(flavour));
        }
        assert!("tiny".parse::<Flavour>().is_err());
    }
}
