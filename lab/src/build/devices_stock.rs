//! Builds the machine whose devices suspend and resume under a distribution's own kernel: that
//! kernel, an initrd with our init, the loadable module of graph order (`devices/kernel/module`) and
//! the made-up devices.

use std::fs;
use std::path::PathBuf;

use super::context::{Context, Made};
use super::devices::{Checked, DevicesArtefacts, add_init};
use super::devices_drivers::DRIVERS;
use super::initrd::add_modules;
use super::kernel::Kernel;
use super::module::{self, Recipe};
use super::modules::{Wanted, install};
use super::packages::KernelPackages;
use super::{BuildError, BuildOptions, BuildProgress, Step, StockKernel};
use super::{binaries, cpio, kernel, plan, tools};
use crate::apt::ArchiveFile;
use crate::cache::Key;

/// What the initrd has in `/modules`.
pub const DEVICES_MODULES: [&str; 2] = ["dormouse_dpm", "pm_graph_test"];

/// Builds what is not in the cache yet, for this kernel or else for that of the machine that sleeps.
///
/// # Errors
/// See [`BuildError`]; nothing half-built is ever taken for complete.
pub fn build_devices_stock(
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    progress: &dyn BuildProgress,
) -> Result<DevicesArtefacts, BuildError> {
    build(options, stock, &[], progress)
}

/// The same with the drivers of a machine with many devices; the options' flavour must have them.
///
/// # Errors
/// As above.
pub fn build_devices_drivers(
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    progress: &dyn BuildProgress,
) -> Result<DevicesArtefacts, BuildError> {
    build(options, stock, &DRIVERS, progress)
}

fn build(
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    drivers: &[Wanted],
    progress: &dyn BuildProgress,
) -> Result<DevicesArtefacts, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (kernel, modules) = kernel_and_modules(&context, stock)?;
    let initrd = initrd(&context, &modules, &kernel, drivers)?;
    let steps = context.end()?;
    Ok(DevicesArtefacts {
        kernel: kernel.image(),
        initrd: initrd.path.join("initrd.cpio"),
        kernel_release: kernel.release,
        checked: Checked::No,
        acpi: true,
        steps,
    })
}

/// What that initrd has in `/modules` and `/drivers`, as a folder: for a machine with an initrd of
/// its own.
///
/// # Errors
/// As above.
pub fn build_devices_folder(
    options: &BuildOptions,
    stock: Option<&StockKernel>,
    progress: &dyn BuildProgress,
) -> Result<PathBuf, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (kernel, modules) = kernel_and_modules(&context, stock)?;
    let mut key = Key::new();
    key.text("modules", &modules.key)
        .text("drivers", &format!("{DRIVERS:?}"))
        .text("recipe", "1");
    let made = context.make(Step::DevicesDrivers, &key, &kernel.release, |_, work| {
        install(&kernel.modules(), &DRIVERS, &work.join("drivers"))?;
        let ours = work.join("modules");
        fs::create_dir_all(&ours).map_err(BuildError::io("create", &ours))?;
        for name in DEVICES_MODULES {
            let file = format!("{name}.ko");
            let from = modules.path.join(&file);
            fs::copy(&from, ours.join(file)).map_err(BuildError::io("copy", from))?;
        }
        Ok(())
    })?;
    context.end()?;
    Ok(made.path)
}

/// This kernel, or else that of the machine that sleeps, and our modules for it.
fn kernel_and_modules(
    context: &Context<'_>,
    stock: Option<&StockKernel>,
) -> Result<(Kernel, Made), BuildError> {
    let (packages, programs) = match stock {
        Some(stock) => (stock.packages().clone(), stock.tools()),
        None => {
            let (plan, _) = plan::plan(context, false)?;
            (plan.kernel(context.options.flavour)?.clone(), None)
        }
    };
    let kernel = kernel::kernel(context, &packages)?;
    let tools = tools_of(context, &packages, programs)?;
    let modules = modules(context, &kernel, tools.as_ref())?;
    Ok((kernel, modules))
}

/// The module of graph order for this kernel.
///
/// # Errors
/// As above.
pub fn build_graph_module(
    options: &BuildOptions,
    stock: &StockKernel,
    progress: &dyn BuildProgress,
) -> Result<PathBuf, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (_, modules) = kernel_and_modules(&context, Some(stock))?;
    Ok(modules.path.join(format!("{}.ko", DEVICES_MODULES[0])))
}

fn tools_of(
    context: &Context<'_>,
    packages: &KernelPackages,
    programs: Option<&[ArchiveFile]>,
) -> Result<Option<Made>, BuildError> {
    match (programs, &packages.origin) {
        (Some(files), Some(suites)) => Ok(Some(tools::tools(context, files, suites)?)),
        _ => Ok(None),
    }
}

fn modules(
    context: &Context<'_>,
    kernel: &Kernel,
    tools: Option<&Made>,
) -> Result<Made, BuildError> {
    let sources = context.sources.join("devices/kernel");
    let mut key = Key::new();
    key.tree("module", &sources.join("module"), &super::is_source)?
        .tree("series", &sources.join("files"), &super::is_source)?
        .file("script", &context.sources.join("machine/kernel/build.sh"))?;
    let recipe = Recipe {
        step: Step::DevicesModule,
        detail: &format!("dormouse_dpm.ko, {}", kernel.release),
        script: &sources.join("module/build.sh"),
        modules: &DEVICES_MODULES,
    };
    module::compile(context, kernel, tools, key, &recipe)
}

fn initrd(
    context: &Context<'_>,
    modules: &Made,
    kernel: &Kernel,
    drivers: &[Wanted],
) -> Result<Made, BuildError> {
    let guest = binaries::guest(context)?;
    let mut key = Key::new();
    key.file("guest", &guest)?
        .text("modules", &modules.key)
        .text("drivers", &format!("{drivers:?}"))
        .text("recipe", "2");
    context.make(Step::DevicesInitrd, &key, "init, modules", |_, work| {
        let mut archive = cpio::Archive::default();
        add_init(&mut archive, &guest)?;
        archive.folder("modules");
        for name in DEVICES_MODULES {
            let path = modules.path.join(format!("{name}.ko"));
            let bytes = fs::read(&path).map_err(BuildError::io("read", &path))?;
            archive.file(&format!("modules/{name}.ko"), 0o644, &bytes);
        }
        if !drivers.is_empty() {
            archive.folder("drivers");
            add_modules(&mut archive, "drivers", kernel, drivers, work)?;
        }
        let path = work.join("initrd.cpio");
        fs::write(&path, archive.finish()).map_err(BuildError::io("write", path))
    })
}
