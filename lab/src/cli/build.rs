//! `dormouse lab build`.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::build::{self, BuildOptions, Checked, Flavour};
use crate::error::LabError;
use crate::kernels;
use crate::terminal::{Terminal, print_json};

/// Arguments of `lab build`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    dormouse lab build --flavour generic\n  \
    dormouse lab build --kernel 7.3.4+deb13-cloud")]
pub struct BuildArgs {
    /// Which of the distribution's kernels: cloud or generic
    #[arg(long, default_value_t)]
    pub flavour: Flavour,
    /// The machine with the one of the archive's kernels that has this in its release, distribution or
    /// flavour (`lab kernels --list --all`)
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["flavour", "devices"])]
    pub kernel: Option<String>,
    /// Compilers at a time
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Never touch the network
    #[arg(long)]
    pub offline: bool,
    /// The kernel with graph-ordered suspend and resume of devices, instead of all else
    #[arg(long)]
    pub devices: bool,
    /// Checks that are compiled into that kernel
    #[arg(long, value_enum, default_value_t)]
    pub checked: Checked,
}

pub(super) fn verb(args: &BuildArgs, json: bool) -> Result<ExitCode, LabError> {
    let terminal = Terminal::new();
    let mut options = BuildOptions {
        flavour: args.flavour,
        ..BuildOptions::default()
    };
    options.jobs = args.jobs.unwrap_or(options.jobs).max(1);
    options.offline = args.offline;
    if args.devices {
        return devices_verb(&options, args.checked, &terminal, json);
    }
    let artefacts = match &args.kernel {
        None => build::build(&options, &terminal)?,
        Some(pattern) => {
            let stock = kernels::named(pattern, &options, &terminal)?;
            build::build_stock(&options, &stock, &terminal)?
        }
    };
    terminal.finish();
    let release = &artefacts.kernel_release;
    let parts = [
        ("firmware", &artefacts.firmware_rom),
        ("module", &artefacts.module),
        ("modules", &artefacts.modules),
        ("root disk", &artefacts.rootfs),
    ];
    show(&artefacts, &artefacts.steps, release, &parts, json)
}

fn devices_verb(
    options: &BuildOptions,
    checked: Checked,
    terminal: &Terminal,
    json: bool,
) -> Result<ExitCode, LabError> {
    let artefacts = build::build_devices(options, checked, terminal)?;
    terminal.finish();
    let parts = [("image", &artefacts.kernel)];
    let release = &artefacts.kernel_release;
    show(&artefacts, &artefacts.steps, release, &parts, json)
}

/// Prints what was built: as JSON, or the steps and where the parts are.
fn show(
    artefacts: &impl Serialize,
    steps: &[impl Display],
    kernel_release: &str,
    parts: &[(&str, &PathBuf)],
    json: bool,
) -> Result<ExitCode, LabError> {
    if json {
        print_json(artefacts)?;
        return Ok(ExitCode::SUCCESS);
    }
    for step in steps {
        println!("{step}");
    }
    println!("{:<10}{kernel_release}", "kernel");
    for (name, path) in parts {
        println!("{name:<10}{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
