//! Mounting file systems.

use std::fs;

use rustix::mount::{MountFlags, mount};

use crate::error::{Doing, GuestError};

/// Mounts `source` on the folder `target`, made if absent.
pub fn mount_at(source: &str, target: &str, kind: &str, options: &str) -> Result<(), GuestError> {
    fs::create_dir_all(target).doing(format!("create {target}"))?;
    let data = std::ffi::CString::new(options).expect("mount options are our own text");
    mount(source, target, kind, MountFlags::empty(), data.as_c_str())
        .doing(format!("mount {source} on {target}"))
}
