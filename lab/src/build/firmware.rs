//! Builds coreboot with our driver from the distribution's source package.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::{find_program, run};
use super::context::{Context, Made};
use super::plan::{Plan, coreboot_sources};
use super::{BuildError, Step};
use crate::cache::Key;

/// Programs of the build, and their packages; each decides what comes out.
const PROGRAMS: [(&str, &str); 4] = [
    ("gcc", "build-essential"),
    ("ld", "binutils"),
    ("nasm", "nasm"),
    ("iasl", "acpica-tools"),
];

pub(crate) fn firmware(context: &Context<'_>, plan: &Plan) -> Result<Made, BuildError> {
    let sources = context.sources.join("machine/firmware");
    let script = sources.join("build.sh");
    let coreboot = &plan.coreboot;
    let mut key = Key::new();
    for file in &coreboot.files {
        key.text(&file.name, &file.sha256);
    }
    key.tree("firmware", &sources, &super::is_source)?.tree(
        "image",
        &context.sources.join("machine/image"),
        &super::is_c_source,
    )?;
    for (program, package) in PROGRAMS {
        key.program(&find_program(program, package)?)?;
    }
    let detail = format!("coreboot {}", coreboot.version);
    context.make(Step::Firmware, &key, &detail, |running, work| {
        let files = running.files(&coreboot.files, |_, folder, percent| {
            coreboot_sources(&context.cache, &coreboot.archive)?.download_source(
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
