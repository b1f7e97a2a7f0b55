//! Builds our kernel module against the distribution's kernel headers.

use std::path::{Path, PathBuf};
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
    let mut key = Key::new();
    key.tree("module", &sources, &super::is_source)?.tree(
        "image",
        &context.sources.join("machine/image"),
        &super::is_c_source,
    )?;
    let recipe = Recipe {
        step: Step::Module,
        detail: "dormouse.ko",
        script: &sources.join("build.sh"),
        modules: &["dormouse", "dormouse_snapshot"],
    };
    compile(context, kernel, tools, key, &recipe)
}

/// How a folder becomes kernel modules.
pub(super) struct Recipe<'a> {
    pub(super) step: Step,
    pub(super) detail: &'a str,
    /// `build.sh EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR [TOOLS-ROOT]`
    pub(super) script: &'a Path,
    /// What it leaves, without `.ko`.
    pub(super) modules: &'a [&'a str],
}

/// Compiles modules for this kernel; the key has their sources already.
pub(super) fn compile(
    context: &Context<'_>,
    kernel: &Kernel,
    tools: Option<&Made>,
    mut key: Key,
    recipe: &Recipe<'_>,
) -> Result<Made, BuildError> {
    key.text("kernel", &kernel.made.key)
        .program(&find_program("make", "build-essential")?)?;
    match tools {
        Some(tools) => key.text("tools", &tools.key),
        None => key.program(&find_program("gcc", "build-essential")?)?,
    };
    context.make(recipe.step, &key, recipe.detail, |running, work| {
        running.activity("compiling");
        let build = context.cache.work_folder("module-build")?;
        let mut command = Command::new(recipe.script);
        command
            .arg(kernel.root())
            .arg(&kernel.release)
            .arg(build.path())
            .arg(work)
            .args(tools.map(|tools| &tools.path))
            .env("MAKEFLAGS", format!("-j{}", context.options.jobs.max(1)));
        let doing = format!("building {}", recipe.detail);
        run(&mut command, &doing, &running.log()?)?;
        for name in recipe.modules {
            let module = work.join(format!("{name}.ko"));
            if !module.is_file() {
                let (script, module) = (recipe.script.display(), module.display());
                return Err(BuildError::Unexpected(format!("{script} left no {module}")));
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
