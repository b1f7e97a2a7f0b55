//! Builds coreboot with our driver from the distribution's source package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::{find_program, run};
use super::context::{Context, Made};
use super::plan::{Plan, SourcePackage, next_coreboot, source_archive};
use super::{BuildError, Step};
use crate::cache::Key;

/// Our part of the firmware.
const SOURCES: &str = "machine/firmware";
/// Programs of the build, and their packages; each decides what comes out.
const PROGRAMS: [(&str, &str); 4] = [
    ("gcc", "build-essential"),
    ("ld", "binutils"),
    ("nasm", "nasm"),
    ("iasl", "acpica-tools"),
];

/// What the script says when a hook does not fit the source.
const HOOK_REFUSED: &str = "does not apply to this coreboot";
/// Kind of the artefacts that remember that.
const REFUSED: &str = "firmware-refused";

/// The newest coreboot of the archive that all our hooks apply to.
///
/// # Errors
/// When none can be built that way, what the script said about the newest: it names the hook.
pub(crate) fn firmware(context: &Context<'_>, plan: &Plan) -> Result<Made, BuildError> {
    let newest = plan.coreboot.first();
    let newest = newest.ok_or_else(|| BuildError::Unexpected("no coreboot in the plan".into()))?;
    match make_if_hooks_apply(context, newest)? {
        Ok(made) => Ok(made),
        Err(refusal) => {
            context.warn(format!("{refusal}\nan older coreboot is tried"));
            older(context, plan).map_err(|()| BuildError::Unexpected(refusal))
        }
    }
}

/// The newest but one, and so on. Why these fail is of no use to anybody: the hooks are meant for
/// the newest.
fn older(context: &Context<'_>, plan: &Plan) -> Result<Made, ()> {
    let mut plan = plan.clone();
    for attempt in 1.. {
        if attempt == plan.coreboot.len() && next_coreboot(context, &mut plan).is_err() {
            return Err(());
        }
        let coreboot = plan.coreboot.get(attempt).ok_or(())?;
        if let Ok(Ok(made)) = make_if_hooks_apply(context, coreboot) {
            return Ok(made);
        }
    }
    Err(())
}

/// Builds this coreboot; the inner error says which hook does not apply to it.
fn make_if_hooks_apply(
    context: &Context<'_>,
    coreboot: &SourcePackage,
) -> Result<Result<Made, String>, BuildError> {
    let key = inputs(context, coreboot)?;
    if let Some(path) = context.cache.artefact(REFUSED, &key) {
        let path = path.join("reason");
        return fs::read_to_string(&path)
            .map(Err)
            .map_err(BuildError::io("read", path));
    }
    match make(context, coreboot, &key) {
        Err(error @ BuildError::Command { .. }) if error.to_string().contains(HOOK_REFUSED) => {
            let reason = format!("coreboot {}: {error}", coreboot.version);
            context.cache.make(REFUSED, &key, |work| {
                let path = work.join("reason");
                fs::write(&path, &reason).map_err(BuildError::io("write", path))
            })?;
            Ok(Err(reason))
        }
        made => made.map(Ok),
    }
}

fn inputs(context: &Context<'_>, coreboot: &SourcePackage) -> Result<Key, BuildError> {
    let mut key = Key::new();
    for file in &coreboot.files {
        key.text(&file.name, &file.sha256);
    }
    let image = context.sources.join("machine/image");
    key.tree(
        "firmware",
        &context.sources.join(SOURCES),
        &super::is_source,
    )?
    .tree("image", &image, &super::is_c_source)?
    .file("shared", &context.sources.join(super::PATCHED_BUILD))?;
    for (program, package) in PROGRAMS {
        key.program(&find_program(program, package)?)?;
    }
    Ok(key)
}

fn make(context: &Context<'_>, coreboot: &SourcePackage, key: &Key) -> Result<Made, BuildError> {
    let script = context.sources.join(SOURCES).join("build.sh");
    let detail = format!("coreboot {}", coreboot.version);
    context.make(Step::Firmware, key, &detail, |running, work| {
        let files = running.files(&coreboot.files, |_, folder, percent| {
            source_archive(&context.cache, &coreboot.archive, &coreboot.suite)?.download_source(
                &format!("coreboot={}", coreboot.version),
                folder,
                percent,
            )
        })?;
        let tarball = files
            .iter()
            .find(|path| path.to_string_lossy().contains(".orig.tar"))
            .ok_or_else(|| BuildError::Unexpected("coreboot's package has no tarball".into()))?;
        running.activity("compiling");
        // Kept from build to build: the script compiles again only what changed.
        let build = context.cache.folder("firmware-build")?;
        let mut command = Command::new(&script);
        command
            .arg(tarball)
            .arg(&build)
            .arg(work)
            .arg(format!("-j{}", context.options.jobs.max(1)));
        run(&mut command, "building the firmware", &running.log()?)?;
        for made in [rom(work), cbfstool(work)] {
            if !made.is_file() {
                let message = format!("{} left no {}", script.display(), made.display());
                return Err(BuildError::Unexpected(message));
            }
        }
        Ok(())
    })
}

/// The flash image without payload, in the step's artefact.
pub(crate) fn rom(artefact: &Path) -> PathBuf {
    artefact.join("coreboot.rom")
}

/// The tool that adds files to a flash image, in the step's artefact.
pub(crate) fn cbfstool(artefact: &Path) -> PathBuf {
    artefact.join("cbfstool")
}
