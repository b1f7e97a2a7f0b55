//! Loads and unloads kernel modules of the initrd that hold a livepatch.
//!
//! A livepatch comes into force, and goes, task by task: its folder in sysfs says how far it is.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing, GuestError};
use crate::system::kernel_log::KernelLog;

const LIVEPATCH: &str = "/sys/kernel/livepatch";
/// In lines that modules of ours log.
const OURS: &str = "dormouse-dpm: ";
/// No task stays in a function for longer that a module here replaces, nor does a callback hang.
const LIMIT: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(10);

/// `loaded`, or why the kernel refused it.
pub fn load(module: &str, parameters: &str, log: &mut KernelLog) -> Result<String, GuestError> {
    // Earlier lines are not about this.
    log.lines()?;
    let path = format!("/modules/{module}.ko");
    let file = File::open(&path).doing(format!("open {path}"))?;
    let words = std::ffi::CString::new(parameters)
        .map_err(|_| GuestError::Other(format!("parameters of {module} hold a NUL")))?;
    if let Err(error) = rustix::system::finit_module(&file, &words, 0) {
        let lines = log.lines()?;
        let said: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_once(OURS).map(|(_, text)| text))
            .collect();
        return Ok(format!("{error}: {}", said.join("; ")));
    }
    let transition = format!("{LIVEPATCH}/{module}/transition");
    until(&format!("the livepatch of {module} to be in force"), || {
        fs::read_to_string(&transition).map_or(true, |text| text.trim() == "0")
    })?;
    Ok("loaded".into())
}

/// `unloaded`.
pub fn unload(module: &str) -> Result<String, GuestError> {
    let livepatch = format!("{LIVEPATCH}/{module}");
    let enabled = format!("{livepatch}/enabled");
    if Path::new(&enabled).exists() {
        fs::write(&enabled, "0").doing(format!("write 0 to {enabled}"))?;
        until(&format!("the livepatch of {module} to be gone"), || {
            !Path::new(&livepatch).exists()
        })?;
    }
    let users = format!("/sys/module/{module}/refcnt");
    until(&format!("{module} to be unused"), || {
        fs::read_to_string(&users).is_ok_and(|text| text.trim() == "0")
    })?;
    let name = std::ffi::CString::new(module)
        .map_err(|_| GuestError::Other("a module's name holds a NUL".into()))?;
    rustix::system::delete_module(&name, 0).doing(format!("unload {module}"))?;
    Ok("unloaded".into())
}

fn until(what: &str, is_so: impl Fn() -> bool) -> Result<(), GuestError> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > LIMIT {
            let seconds = LIMIT.as_secs();
            return Err(GuestError::Other(format!("waited {seconds} s for {what}")));
        }
        thread::sleep(GLANCE);
    }
    Ok(())
}
