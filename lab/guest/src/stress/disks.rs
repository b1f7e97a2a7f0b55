//! The file systems under stress: mounting the scratch disk, and holding both still for e2fsck.

use std::fs;
use std::process::Command;

use dormouse_guest::protocol::stress::{Place, SCRATCH, SCRATCH_DISK};
use rustix::mount::{MountFlags, mount};

use crate::error::{Doing, GuestError};
use crate::system::disk;

/// Mounts the scratch disk unless it is mounted; the kernel replays its journal.
pub fn mount_scratch() -> Result<(), GuestError> {
    if device_of(SCRATCH).is_none() {
        let device = disk::wait_for(SCRATCH_DISK)?;
        fs::create_dir_all(SCRATCH).doing(format!("create {SCRATCH}"))?;
        mount(&device, SCRATCH, "ext4", MountFlags::empty(), None)
            .doing(format!("mount {device} on {SCRATCH}"))?;
    }
    for place in Place::ALL {
        fs::create_dir_all(place.folder()).doing(format!("create {}", place.folder()))?;
    }
    Ok(())
}

/// Sentences about damaged file systems.
///
/// A frozen file system has everything on its disk and an empty journal, so that e2fsck can
/// judge it although it is mounted.
pub fn check() -> Result<Vec<String>, GuestError> {
    let mut complaints = Vec::new();
    for mount_point in ["/", SCRATCH] {
        let Some(device) = device_of(mount_point) else {
            complaints.push(format!("{mount_point} is not mounted"));
            continue;
        };
        let frozen = run("fsfreeze", &["--freeze", mount_point])?;
        let checked = run("e2fsck", &["-fn", &device]);
        let thawed = run("fsfreeze", &["--unfreeze", mount_point]);
        for (doing, (code, said)) in [
            ("freezing", frozen),
            ("e2fsck", checked?),
            ("thawing", thawed?),
        ] {
            if code != 0 {
                complaints.push(format!("{mount_point}: {doing} gave {code}: {said}"));
            }
        }
    }
    Ok(complaints)
}

fn run(program: &str, arguments: &[&str]) -> Result<(i32, String), GuestError> {
    let output = Command::new(program)
        .args(arguments)
        // libext2fs would create a file on a mounted root to see if it can be written to, and
        // wait for ever while that is frozen.
        .env("EXT2FS_PRETEND_RO_MOUNT", "1")
        .output()
        .doing(format!("run {program}"))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    Ok((crate::system::run::code(output.status), lines.join(" | ")))
}

/// The device that is mounted there.
fn device_of(mount_point: &str) -> Option<String> {
    device_in(&fs::read_to_string("/proc/mounts").ok()?, mount_point)
}

/// The last mount on a mount point is the one that is seen.
fn device_in(mounts: &str, mount_point: &str) -> Option<String> {
    mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ');
        let device = words.next()?;
        (words.next()? == mount_point && device.starts_with("/dev/")).then(|| device.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_behind_a_mount_point_is_found() {
        let mounts = "rootfs / rootfs rw 0 0\n/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(device_in(mounts, "/").as_deref(), Some("/dev/vda"));
        assert_eq!(device_in(mounts, SCRATCH), None);
        assert_eq!(device_in(mounts, "/proc"), None);
    }
}
