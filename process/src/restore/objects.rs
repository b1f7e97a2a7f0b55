//! Creates and fills shared-memory objects.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::SealFlags;

use super::Error;
use super::error::system;
use super::ipc::Made;
use crate::state::{Object, ObjectKind};
use crate::store::Snapshot;

pub(super) fn open_object(
    object: &Object,
    flags: i32,
    snapshot: &dyn Snapshot,
    ipc: &mut Made,
) -> Result<OwnedFd, Error> {
    let failed = |action: String| move |source| Error::System { action, source };
    let file = match &object.kind {
        ObjectKind::SharedAnonymous => {
            shared_anonymous(object.bytes).map_err(failed("make shared memory".to_owned()))?
        }
        ObjectKind::Memfd { name, .. } => {
            let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
            rustix::fs::memfd_create(name.as_str(), flags)
                .map_err(io::Error::from)
                .map_err(failed(format!("make the memfd {name}")))?
        }
        ObjectKind::Unlinked { path, mode, .. } => {
            let directory = std::path::Path::new(path).parent().unwrap_or("/".as_ref());
            let file = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_TMPFILE | flags)
                .mode(*mode)
                .open(directory)
                .map_err(|source| Error::Open {
                    path: path.clone(),
                    source,
                })?;
            file.into()
        }
        ObjectKind::Posix {
            path,
            mode,
            owner,
            file,
            ..
        } => ipc.files.make(path, *mode, *owner, *file)?,
        ObjectKind::SystemV {
            ipc: segment,
            removed,
        } => ipc.segment(segment, object.bytes, *removed)?,
    };
    let file = fs::File::from(file);
    // The others cannot have another length.
    if !matches!(
        object.kind,
        ObjectKind::SharedAnonymous | ObjectKind::SystemV { .. }
    ) {
        file.set_len(object.bytes)
            .map_err(failed("size shared memory".to_owned()))?;
    }
    for extent in snapshot.extents(object.space) {
        snapshot.check(object.space, &extent)?;
        let bytes = snapshot.bytes(&extent);
        // The last page of an object may be longer than it.
        let room = object
            .bytes
            .saturating_sub(extent.start)
            .min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..room], extent.start)
            .map_err(failed("fill shared memory".to_owned()))?;
    }
    finish(&file, &object.kind)?;
    // After the permissions: an access control list has them, too.
    for (name, value) in &object.attributes {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::fsetxattr(&file, &name[..], value, flags)
            .map_err(io::Error::from)
            .map_err(failed(format!(
                "set the attribute {} of a file",
                name.escape_ascii()
            )))?;
    }
    Ok(file.into())
}

/// Owner and permissions: after the contents, which change some of them.
fn finish(file: &fs::File, kind: &ObjectKind) -> Result<(), Error> {
    let (ObjectKind::Memfd { mode, owner, .. } | ObjectKind::Unlinked { mode, owner, .. }) = kind
    else {
        return Ok(());
    };
    // A change of the owner takes the set-user bit away.
    std::os::unix::fs::fchown(file, Some(owner.0), Some(owner.1))
        .map_err(system("set the owner of shared memory"))?;
    file.set_permissions(fs::Permissions::from_mode(*mode))
        .map_err(system("set the permissions of shared memory"))?;
    match late_seals(kind) {
        false => seal(file, kind),
        true => Ok(()),
    }
}

/// Whether the seals allow mappings for writing that were made before.
fn late_seals(kind: &ObjectKind) -> bool {
    let ObjectKind::Memfd { seals, .. } = kind else {
        return false;
    };
    let seals = SealFlags::from_bits_retain(*seals);
    seals.contains(SealFlags::FUTURE_WRITE) && !seals.contains(SealFlags::WRITE)
}

fn seal(file: impl AsFd, kind: &ObjectKind) -> Result<(), Error> {
    match kind {
        ObjectKind::Memfd { seals, .. } if *seals != 0 => {
            let seals = SealFlags::from_bits_retain(*seals);
            let sealed = rustix::fs::fcntl_add_seals(file, seals).map_err(io::Error::from);
            sealed.map_err(system("seal a memfd"))
        }
        _ => Ok(()),
    }
}

/// Times and the seals that were left out, when all processes have mapped the object: to map it is an access.
pub(super) fn finish_late(file: impl AsFd, kind: &ObjectKind) -> Result<(), Error> {
    let (ObjectKind::Memfd { times_ns, .. }
    | ObjectKind::Unlinked { times_ns, .. }
    | ObjectKind::Posix { times_ns, .. }) = kind
    else {
        return Ok(());
    };
    let time = |ns: i64| rustix::fs::Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    let times = rustix::fs::Timestamps {
        last_access: time(times_ns.0),
        last_modification: time(times_ns.1),
    };
    rustix::fs::futimens(&file, &times)
        .map_err(io::Error::from)
        .map_err(system("set the times of shared memory"))?;
    match late_seals(kind) {
        true => seal(file, kind),
        false => Ok(()),
    }
}

/// Anonymous shared memory has no name to open; a mapping of ours has.
fn shared_anonymous(bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: a new mapping, unmapped before anything points into it.
    unsafe {
        let address = libc::mmap(
            std::ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = address as u64;
        let end = start + bytes.next_multiple_of(4096);
        let link = format!("/proc/self/map_files/{start:x}-{end:x}");
        let file = fs::OpenOptions::new().read(true).write(true).open(link);
        libc::munmap(address, bytes as usize);
        file.map(OwnedFd::from)
    }
}
