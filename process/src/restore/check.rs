//! Checks before a restore: all obstacles that can be found in advance.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{Error, Options, numbers};
use crate::procfs;
use crate::state::{Backing, Clocks, FileKind, Tree};

const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_TIME: u32 = 25;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// Checks rights, numbers, files and the CPU.
pub fn ready(tree: &Tree, options: &Options) -> Result<(), Error> {
    rights()?;
    numbers::free(tree)?;
    files(tree, options)?;
    registers(tree)
}

fn rights() -> Result<(), Error> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = procfs::field(&status, "CapEff")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective & 1 << capability != 0;
    if !has(CAP_SYS_PTRACE) {
        return Err(Error::Right("CAP_SYS_PTRACE"));
    }
    if !has(CAP_CHECKPOINT_RESTORE) && !has(CAP_SYS_ADMIN) {
        return Err(Error::Right("CAP_CHECKPOINT_RESTORE"));
    }
    // The offsets of a time namespace count as setting the time.
    if has(CAP_SYS_ADMIN) && !has(CAP_SYS_TIME) && fs::exists("/proc/self/ns/time").unwrap_or(false)
    {
        return Err(Error::Right("CAP_SYS_TIME"));
    }
    Ok(())
}

fn files(tree: &Tree, options: &Options) -> Result<(), Error> {
    let mapped: HashSet<u32> = tree
        .processes
        .iter()
        .flat_map(|process| &process.mappings)
        .filter(|mapping| !mapping.shared)
        .filter_map(|mapping| match mapping.backing {
            Backing::Image { image, .. } => Some(image),
            _ => None,
        })
        .collect();
    let open: HashSet<u32> = tree
        .files
        .iter()
        .filter_map(|file| match file.kind {
            FileKind::Image(image) => Some(image),
            _ => None,
        })
        .collect();
    for (index, image) in tree.images.iter().enumerate() {
        let index = index as u32;
        let path = image.path.clone();
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // A zombie's program, and the like: nothing needs it.
            Err(_) if !mapped.contains(&index) && !open.contains(&index) => continue,
            Err(source) => return Err(Error::Open { path, source }),
        };
        let kind = |mode: u32| mode & libc::S_IFMT;
        if kind(metadata.mode()) != kind(image.mode) {
            return Err(Error::Changed {
                path,
                how: "it is another type of file".to_owned(),
            });
        }
        if kind(image.mode) != libc::S_IFREG || path.starts_with("/sys/") {
            continue;
        }
        let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        let how = if metadata.len() != image.bytes {
            format!("it has {} bytes and had {}", metadata.len(), image.bytes)
        } else if modified_ns != image.modified_ns {
            "it was written to".to_owned()
        } else {
            continue;
        };
        if options.accept_changed_files && !mapped.contains(&index) {
            tracing::warn!("{path} has changed since the program was persisted ({how})");
            continue;
        }
        return Err(Error::Changed { path, how });
    }
    for process in tree
        .processes
        .iter()
        .filter(|process| process.zombie.is_none())
    {
        let path = &process.directory;
        fs::metadata(path).map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// The vector registers must fit: the kernel takes them as a whole or not at all.
fn registers(tree: &Tree) -> Result<(), Error> {
    let here = crate::capture::xstate_features();
    if tree.kernel.xstate_features & !here != 0 {
        return Err(Error::Kernel(format!(
            "its CPU had register features {:#x}, this one has {here:#x}",
            tree.kernel.xstate_features
        )));
    }
    Ok(())
}

/// Puts what the calling thread creates into a time namespace in which the monotonic and the boot
/// clock go on from what they showed: the monotonic clock does not count the time without power,
/// the boot clock does.
///
/// # Errors
/// The kernel refuses.
pub fn continue_clocks(clocks: &Clocks) -> io::Result<()> {
    if !fs::exists("/proc/self/ns/time")? {
        tracing::warn!("this kernel has no time namespaces: the program's monotonic clock jumps");
        return Ok(());
    }
    // SAFETY: no memory involved.
    if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!("no time namespace ({error}): the program's monotonic clock jumps");
        return Ok(());
    }
    let now = |clock| {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let own = crate::capture::offsets("self");
    let off = (now(rustix::time::ClockId::Realtime) - clocks.realtime_ns).max(0);
    let monotonic = clocks.monotonic_ns - (now(rustix::time::ClockId::Monotonic) - own.0);
    let boottime = clocks.boottime_ns + off - (now(rustix::time::ClockId::Boottime) - own.1);
    let line = |name: &str, offset: i64| {
        let (seconds, nanoseconds) = (
            offset.div_euclid(1_000_000_000),
            offset.rem_euclid(1_000_000_000),
        );
        format!("{name} {seconds} {nanoseconds}\n")
    };
    // SAFETY: no memory involved.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    fs::write(
        format!("/proc/{thread}/timens_offsets"),
        line("monotonic", monotonic) + &line("boottime", boottime),
    )
}
