//! Builds our kernel module against the distribution's kernel headers.

use std::path::PathBuf;
use std::process::Command;

use super::command::{find_program, run};
use super::context::{Context, Made};
use super::kernel::Kernel;
use super::{BuildError, Step};
use crate::cache::Key;

/// With the programs of another release in `tools`, or with this machine's own.
pub(crate) fn module(
    context: &Context<'_>,
    kernel: &Kernel,
    tools: Option<&Made>,
) -> Result<Made, BuildError> {
    let sources = context.sources.join("machine/kernel");
    let script = sources.join("build.sh");
    let mut key = Key::new();
    key.text("kernel", &kernel.made.key)
        .tree("module", &sources, &super::is_source)?
        .tree(
            "image",
            &context.sources.join("machine/image"),
            &super::is_c_source,
        )?
        .program(&find_program("make", "build-essential")?)?;
    match tools {
        Some(tools) => key.text("tools", &tools.key),
        None => key.program(&find_program("gcc", "build-essential")?)?,
    };
    context.make(Step::Module, &key, "dormouse.ko", |running, work| {
        running.activity("compiling");
        let build = context.cache.work_folder("module-build")?;
        let mut command = Command::new(&script);
        command
            .arg(kernel.root())
            .arg(&kernel.release)
            .arg(build.path())
            .arg(work)
            .args(tools.map(|tools| &tools.path))
            .env("MAKEFLAGS", format!("-j{}", context.options.jobs.max(1)));
        run(&mut command, "building the kernel module", &running.log()?)?;
        let made = Made {
            path: work.to_path_buf(),
            key: String::new(),
        };
        for made in [file(&made), snapshot_file(&made)] {
            if !made.is_file() {
                let (script, made) = (script.display(), made.display());
                return Err(BuildError::Unexpected(format!("{script} left no {made}")));
            }
        }
        Ok(())
    })
}

/// The module for stock firmware in the step's artefact.
pub(crate) fn snapshot_file(made: &Made) -> PathBuf {
    made.path.join("dormouse_snapshot.ko")
}

/// The module in the step's artefact.
pub(crate) fn file(made: &Made) -> PathBuf {
    made.path.join("dormouse.ko")
}
