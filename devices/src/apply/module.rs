//! The module of graph order (`dormouse_dpm`): loads it into a stock kernel, and unloads it.
//!
//! Its livepatch comes into force, and goes, task by task; a folder in sysfs says how far it is.
//! Only then is the order switched, or the module removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{ApplyError, switch};

/// As the kernel names it.
pub const NAME: &str = "dormouse_dpm";
/// The switch that it brings, below /sys.
const SWITCH: &str = "power/pm_graph";
/// Tasks that stay in one system call for long hold a livepatch up; a minute is much.
const LIMIT: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// Whether this kernel can switch the order of devices now: by the series or by the loaded module.
pub fn is_there(sys: &Path) -> bool {
    sys.join(SWITCH).exists()
}

/// Whether the module is loaded.
pub fn is_loaded(sys: &Path) -> bool {
    sys.join("module").join(NAME).exists()
}

/// Loads the module, by name or from `file`, and waits until its livepatch is in force.
///
/// # Errors
/// It is not installed, or the kernel or the module itself refuses; the module then is not loaded.
pub fn load(sys: &Path, file: Option<&Path>) -> Result<(), ApplyError> {
    let mut command = match file {
        Some(file) => {
            let mut insmod = Command::new("insmod");
            insmod.arg(file);
            insmod
        }
        None => {
            let mut modprobe = Command::new("modprobe");
            modprobe.arg(NAME);
            modprobe
        }
    };
    run(&mut command)?;
    let in_force = || {
        let transition = livepatch(sys).join("transition");
        fs::read_to_string(transition).map_or(true, |text| text.trim() == "0")
    };
    if until(in_force) {
        return Ok(());
    }
    // Half in force is no state to leave a machine in.
    let undone = unload(sys);
    let seconds = LIMIT.as_secs();
    Err(ApplyError::Lacking(format!(
        "the livepatch of {NAME} is not in force after {seconds} s, because a task does not leave \
         the kernel; {}",
        match undone {
            Ok(()) => "the module is unloaded again".to_owned(),
            Err(error) => error.to_string(),
        }
    )))
}

/// Disables the livepatch, which puts the stock order back, and unloads the module.
///
/// # Errors
/// A task or a device's callback still uses it: it is disabled and stays loaded.
pub fn unload(sys: &Path) -> Result<(), ApplyError> {
    let livepatch = livepatch(sys);
    let enabled = livepatch.join("enabled");
    if enabled.exists() {
        fs::write(&enabled, "0").map_err(switch(&enabled, "written"))?;
    }
    let users = sys.join("module").join(NAME).join("refcnt");
    let is_unused = || {
        !livepatch.exists() && fs::read_to_string(&users).map_or(true, |text| text.trim() == "0")
    };
    if !until(is_unused) {
        return Err(ApplyError::Lacking(format!(
            "{NAME} is in use and stays loaded, with the stock order: a task or a device's callback \
             has not come back; `modprobe -r {NAME}` removes it when it has"
        )));
    }
    run(Command::new("rmmod").arg(NAME))
}

fn livepatch(sys: &Path) -> PathBuf {
    sys.join("kernel/livepatch").join(NAME)
}

fn until(is_so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(GLANCE);
    }
    true
}

/// Runs a program that loads or unloads; its complaint is the error.
fn run(command: &mut Command) -> Result<(), ApplyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        ApplyError::Lacking(format!("cannot run {program} (package kmod): {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ApplyError::Lacking(format!(
        "{}; `dormouse doctor devices` says what this kernel lacks, and the kernel's log why a module \
         was refused",
        said.trim().replace('\n', "; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_there_with_the_series_too_and_the_module_only_when_loaded() {
        let sys = tempfile::tempdir().unwrap();
        assert!(!is_there(sys.path()) && !is_loaded(sys.path()));
        fs::create_dir_all(sys.path().join("power")).unwrap();
        fs::write(sys.path().join(SWITCH), "[off] graph\n").unwrap();
        assert!(is_there(sys.path()) && !is_loaded(sys.path()));
        fs::create_dir_all(sys.path().join("module").join(NAME)).unwrap();
        assert!(is_loaded(sys.path()));
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_what_it_said() {
        let error = run(Command::new("sh").args(["-c", "echo no such module >&2; false"]));
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("no such module") && text.contains("doctor"),
            "{text}"
        );
    }
}
