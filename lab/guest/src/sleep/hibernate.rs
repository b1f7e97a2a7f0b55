//! Hibernation: the swap area, the kernel's settings, the write that powers the machine off; and,
//! in the initrd of the next boot, the write that brings the old system back.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use dormouse_guest::protocol::{HibernationPlan, HibernationReady, HibernationResult, SWAP_DISK};

use crate::error::{Doing, GuestError};
use crate::system::console::say;
use crate::system::{disk, nvdimm};

const COMPRESSOR: &str = "/sys/module/hibernate/parameters/compressor";
const IMAGE_SIZE: &str = "/sys/power/image_size";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
/// The last bytes of a swap area's first page say what it holds.
const SIGNATURE_OFFSET: u64 = 4096 - 10;
/// What hibernation leaves there in place of `SWAPSPACE2`.
const IMAGE_SIGNATURE: &[u8] = b"S1SUSPEND";

/// Makes the swap area anew, switches it on, and sets what the kernel is to do.
///
/// # Errors
/// There is no such disk, or the kernel does not take a setting. A compressor that it does not
/// have is no error: the answer names it.
pub fn prepare(plan: &HibernationPlan) -> Result<HibernationReady, GuestError> {
    let mut ready = HibernationReady::default();
    if let Some(compressor) = &plan.compressor
        && let Err(error) = fs::write(COMPRESSOR, compressor)
    {
        ready.lacking = Some(format!(
            "this kernel has no {compressor} for hibernation images ({COMPRESSOR}: {error})"
        ));
        return Ok(ready);
    }
    let device = swap_device()?;
    if swapped_bytes(&device).is_some() {
        command("swapoff", &device)?;
    }
    command("mkswap", &device)?;
    command("swapon", &device)?;
    if let Some(bytes) = plan.image_bytes {
        set(IMAGE_SIZE, &bytes.to_string())?;
    }
    if let Some(swappiness) = plan.swappiness {
        set(SWAPPINESS, &swappiness.to_string())?;
    }
    // Not `platform`: that would ask ACPI for S4, which only takes longer to the same end.
    set("/sys/power/disk", "shutdown")?;
    ready.image_bytes = number(IMAGE_SIZE)?;
    ready.swappiness = number(SWAPPINESS)?;
    Ok(ready)
}

/// Hibernates; returns after waking, with swapped-out pages back in DRAM, or when the kernel
/// refuses.
///
/// # Errors
/// The swap area cannot be switched off afterwards: then pages are lost.
pub fn hibernate() -> Result<HibernationResult, GuestError> {
    let mut result = HibernationResult::default();
    if let Err(error) = fs::write("/sys/power/state", "disk") {
        result.errno = Some(error.raw_os_error().unwrap_or(libc::EIO));
        result.error = error.to_string();
    }
    let device = swap_device()?;
    result.swapped_bytes = swapped_bytes(&device).unwrap_or_default();
    let started = Instant::now();
    command("swapoff", &device)?;
    result.swap_in_ns = started.elapsed().as_nanos() as u64;
    Ok(result)
}

/// In the initrd, before any file system of a disk is mounted: goes over to the hibernated system
/// and does not return, where there is one.
pub fn resume() {
    if nvdimm::is_swap() {
        nvdimm::wait_for_swap();
    }
    let Some(name) = swap_name() else {
        return;
    };
    match signature(&format!("/dev/{name}")) {
        Ok(found) if found.starts_with(IMAGE_SIGNATURE) => {}
        Ok(found) => {
            let found = String::from_utf8_lossy(&found);
            let found = found.trim_matches('\0');
            say(&format!(
                "no hibernation image: the swap area's signature is {found:?}"
            ));
            return;
        }
        Err(error) => return say(&format!("no hibernation image: {error}")),
    }
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap_or_default();
    let result = fs::write("/sys/power/resume", number.trim());
    // Whoever reads this line booted: a resume does not come back here.
    let error = result.err().map_or(String::new(), |e| format!(" ({e})"));
    say(&format!(
        "no hibernation image: the kernel did not take the one in the swap area{error}"
    ));
}

/// The kernel's name of the block device with the swap area.
fn swap_name() -> Option<String> {
    match nvdimm::is_swap() {
        true => nvdimm::swap(),
        false => disk::present(SWAP_DISK),
    }
}

fn swap_device() -> Result<String, GuestError> {
    swap_name()
        .map(|name| format!("/dev/{name}"))
        .ok_or_else(|| {
            GuestError::Other(format!(
                "there is no {SWAP_DISK} disk, and no NVDIMM to swap to"
            ))
        })
}

fn signature(device: &str) -> Result<[u8; 10], GuestError> {
    let mut bytes = [0; 10];
    fs::File::open(device)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(SIGNATURE_OFFSET))?;
            file.read_exact(&mut bytes)
        })
        .doing(format!("read the signature of {device}"))?;
    Ok(bytes)
}

fn set(path: &str, value: &str) -> Result<(), GuestError> {
    fs::write(path, value).doing(format!("write {value} to {path}"))
}

fn number(path: &str) -> Result<u64, GuestError> {
    let text = fs::read_to_string(path).doing(format!("read {path}"))?;
    text.trim()
        .parse()
        .map_err(|_| GuestError::Other(format!("{path} is no number: {}", text.trim())))
}

fn command(program: &str, device: &str) -> Result<(), GuestError> {
    let output = Command::new(program)
        .arg(device)
        .output()
        .doing(format!("start {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(GuestError::Other(format!(
        "{program} {device} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// What is in use of an active swap area; None where it is not switched on.
fn swapped_bytes(device: &str) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/swaps")).ok()?;
    used_bytes(&text, device)
}

/// The fourth column of `/proc/swaps`, in KiB.
fn used_bytes(swaps: &str, device: &str) -> Option<u64> {
    let line = swaps
        .lines()
        .find(|line| line.split_whitespace().next() == Some(device))?;
    let kib: u64 = line.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_swapped_out_is_read_from_the_area_s_own_line() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/vdb                                partition\t1048572\t\t512\t\t-2\n\
                     /dev/vda                                partition\t2097148\t\t2048\t\t-3\n";
        assert_eq!(used_bytes(swaps, "/dev/vda"), Some(2 << 20));
        assert_eq!(used_bytes(swaps, "/dev/vdb"), Some(512 << 10));
        assert_eq!(used_bytes(swaps, "/dev/vdc"), None);
    }
}
