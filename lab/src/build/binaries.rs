//! Builds the programs of this workspace that run inside the emulated machine, statically linked.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::{find_program, run};
use super::context::{Context, Running};
use super::{BuildError, Step};
use crate::cache::{Key, sha256_of_file};

/// As `.cargo/config.toml` names it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The programs, and a hash of each.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    /// First user space, agent and workload.
    pub guest: PathBuf,
    /// The `dormouse` command.
    pub command: PathBuf,
    /// The part of it that wakes a machine under stock firmware.
    pub wake: PathBuf,
    guest_sha256: String,
    command_sha256: String,
    wake_sha256: String,
}

impl Binaries {
    /// What depends on both programs takes this as an input.
    pub fn add_to(&self, key: &mut Key) {
        key.text("guest", &self.guest_sha256)
            .text("command", &self.command_sha256);
    }

    /// What depends on the program that wakes a machine takes this as an input.
    pub fn add_wake_to(&self, key: &mut Key) {
        key.text("wake", &self.wake_sha256);
    }

    /// What depends on the guest program alone takes this as an input.
    pub fn add_guest_to(&self, key: &mut Key) {
        key.text("guest", &self.guest_sha256);
    }
}

/// The program that is init in the machines, alone.
pub(crate) fn guest(context: &Context<'_>) -> Result<PathBuf, BuildError> {
    let running = context.begin(Step::Binaries);
    let target = target_folder(&context.sources);
    let guest = target.join(TARGET).join("release/dormouse-guest");
    cargo_build(context, &running, &target, &["--package", "dormouse-guest"])?;
    if !guest.is_file() {
        let message = format!("cargo left no {}", guest.display());
        return Err(BuildError::Unexpected(message));
    }
    running.finish(true, "dormouse-guest");
    Ok(guest)
}

/// Cargo decides what is to be built; it takes a fraction of a second to find nothing.
pub(crate) fn binaries(context: &Context<'_>) -> Result<Binaries, BuildError> {
    let running = context.begin(Step::Binaries);
    let target = target_folder(&context.sources);
    let built = target.join(TARGET).join("release");
    let (guest, command) = (built.join("dormouse-guest"), built.join("dormouse"));
    let wake = built.join("dormouse-wake");
    let hash = |path: &Path| sha256_of_file(path).ok();
    let hashes = || Some((hash(&guest)?, hash(&command)?, hash(&wake)?));
    let before = hashes();
    if before.is_none() {
        running.started()?;
    }
    let packages = [
        "--package",
        "dormouse-guest",
        "--package",
        "dormouse",
        "--package",
        "dormouse-machine",
        "--bins",
    ];
    cargo_build(context, &running, &target, &packages)?;
    let Some((guest_sha256, command_sha256, wake_sha256)) = hashes() else {
        return Err(BuildError::Unexpected(format!(
            "cargo left no binaries in {}",
            built.display()
        )));
    };
    let made = (&guest_sha256, &command_sha256, &wake_sha256);
    let unchanged = before.as_ref().is_some_and(|(a, b, c)| (a, b, c) == made);
    running.finish(unchanged, "dormouse, dormouse-guest");
    Ok(Binaries {
        guest,
        command,
        wake,
        guest_sha256,
        command_sha256,
        wake_sha256,
    })
}

fn cargo_build(
    context: &Context<'_>,
    running: &Running<'_>,
    target: &Path,
    packages: &[&str],
) -> Result<(), BuildError> {
    let mut cargo = Command::new(cargo()?);
    cargo
        .args(["build", "--release"])
        .args(packages)
        .args(["--jobs", &context.options.jobs.max(1).to_string()])
        .current_dir(&context.sources)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_TERM_COLOR", "never")
        // They would replace what `.cargo/config.toml` says, and init must be static.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET");
    if context.options.offline {
        cargo.arg("--offline");
    }
    run(&mut cargo, "building the guest's binaries", &running.log()?)
}

/// The workspace's own target folder: the same build serves the host and the machine.
fn target_folder(sources: &Path) -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    sources.join(set.unwrap_or_else(|| "target".into()))
}

fn cargo() -> Result<PathBuf, BuildError> {
    find_program("cargo", "rustup").or_else(|error| {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default();
        Some(home.join(".cargo/bin/cargo"))
            .filter(|path| path.is_file())
            .ok_or(error)
    })
}
