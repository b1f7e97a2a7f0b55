//! Checks before a restore: all obstacles that can be found in advance.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::ipc::Kind;
use super::rights::{
    CAP_AUDIT_CONTROL, CAP_CHECKPOINT_RESTORE, CAP_MKNOD, CAP_SETGID, CAP_SETPCAP, CAP_SETUID,
    CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_SYS_TIME, capable, own_limit,
};
use super::{Error, Options, numbers};
use crate::procfs;
use crate::state::{Backing, Clocks, FileKind, GhostKind, Image, ObjectKind, Tree, attachments};

/// Checks rights, numbers, files and the CPU.
pub fn ready(tree: &Tree, options: &Options) -> Result<(), Error> {
    rights()?;
    numbers::free(tree)?;
    files(tree, options)?;
    written(tree, options)?;
    data(tree, options)?;
    registers(tree)
}

/// Directories of files that belong to the tree.
fn data(tree: &Tree, options: &Options) -> Result<(), Error> {
    for before in &tree.data {
        let path = before.path.clone();
        let now = crate::capture::data(path.as_ref()).map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
        if now == *before {
            continue;
        }
        let how = "files below it are not as they were".to_owned();
        if !options.accept_changed_files {
            return Err(Error::Changed { path, how });
        }
        tracing::warn!("{path} has changed since the program was persisted ({how})");
    }
    Ok(())
}

/// Whether the tree that was just captured could be restored here, as far as that can be known while
/// it still runs: everything that `ready` and the plan need but the numbers and addresses that the
/// tree itself has.
///
/// # Errors
/// The first obstacle.
pub fn possible(tree: &Tree) -> Result<(), Error> {
    rights()?;
    files(
        tree,
        &Options {
            accept_changed_files: true,
            ..Options::default()
        },
    )?;
    limits(tree)?;
    super::pool::enough_descriptors(tree)?;
    credentials(tree)?;
    login_users(tree)?;
    numberable(tree)?;
    attachable(tree)?;
    ghosts(tree)?;
    shared_tables(tree)?;
    super::posix_queues::possible(tree)?;
    super::uring::possible(tree)?;
    groups(tree)
}

/// Hard limits above the tracker's own.
fn limits(tree: &Tree) -> Result<(), Error> {
    let living = tree.processes.iter().filter(|p| p.zombie.is_none());
    let higher = living
        .flat_map(|process| process.limits.iter().enumerate())
        .any(|(resource, &(_, hard))| hard > own_limit(resource as u32).1);
    if higher && !capable(CAP_SYS_RESOURCE) {
        return Err(Error::Right(
            "CAP_SYS_RESOURCE (it has a higher limit than its tracker)",
        ));
    }
    Ok(())
}

/// Users, groups and capabilities that the tracker cannot give.
fn credentials(tree: &Tree) -> Result<(), Error> {
    let own = crate::capture::own_credentials(false);
    let threads = tree.processes.iter().flat_map(|process| &process.threads);
    for thread in threads {
        if super::plan::needs_administrator(thread) && !capable(CAP_SYS_ADMIN) {
            return Err(Error::Right(
                "CAP_SYS_ADMIN (it has a seccomp filter that its own rights could not install)",
            ));
        }
        let wanted = &thread.credentials;
        let groups = wanted.groups != own.groups || wanted.supplementary != own.supplementary;
        if wanted.users != own.users && !capable(CAP_SETUID) {
            return Err(Error::Right("CAP_SETUID (it runs as another user)"));
        }
        if groups && !capable(CAP_SETGID) {
            return Err(Error::Right("CAP_SETGID (it runs in another group)"));
        }
        let [_, permitted, _, bounding, _] = wanted.capabilities;
        let [_, own_permitted, _, own_bounding, _] = own.capabilities;
        if permitted & !own_permitted != 0 || bounding & !own_bounding != 0 {
            return Err(Error::Right("the capabilities that the program has"));
        }
        if wanted.securebits != own.securebits && !capable(CAP_SETPCAP) {
            return Err(Error::Right("CAP_SETPCAP (it has set securebits)"));
        }
        if bounding != own_bounding && !capable(CAP_SETPCAP) {
            return Err(Error::Right("CAP_SETPCAP (it has given capabilities up)"));
        }
    }
    Ok(())
}

fn login_users(tree: &Tree) -> Result<(), Error> {
    let own = procfs::text("/proc/self/loginuid").ok();
    let own = own.and_then(|text| text.trim().parse().ok());
    let mut living = tree.processes.iter().filter(|p| p.zombie.is_none());
    if living.any(|process| process.login_user != own) && !capable(CAP_AUDIT_CONTROL) {
        return Err(Error::Right(
            "CAP_AUDIT_CONTROL (another user has logged in for it)",
        ));
    }
    Ok(())
}

/// Each process group must have a process that leads it, or one that can make it again; and each session
/// a leader that lives, or a placeholder.
fn groups(tree: &Tree) -> Result<(), Error> {
    let placeholders = super::plan::placeholder_groups(tree);
    let find = |pid: i32| tree.processes.iter().find(|other| other.pid == pid);
    for process in tree.processes.iter().filter(|p| p.zombie.is_none()) {
        let (pid, group, session) = (process.pid, process.group, process.session);
        if session != 0 && find(session).is_some_and(|leader| leader.zombie.is_some()) {
            return Err(Error::Group(format!(
                "process {pid} is in the session of process {session}, which has ended and was not \
                 waited for"
            )));
        }
        // A recreated zombie has its parent's session, and a group is of one session. A zombie of the
        // tracker's own is gone at a restore.
        let led = find(group).is_some_and(|leader| match leader.zombie {
            None => leader.session == session,
            Some(_) => find(leader.parent).is_some_and(|parent| parent.session == session),
        });
        if group != 0 && !led && !placeholders.contains(&group) {
            return Err(Error::Group(format!(
                "nothing could make the process group {group} of process {pid} again"
            )));
        }
    }
    if let Some(pid) = super::plan::misborn(tree) {
        return Err(Error::Group(format!(
            "no order of births would put process {pid} into its session again"
        )));
    }
    Ok(())
}

/// Removed names that cannot be made for a moment.
fn ghosts(tree: &Tree) -> Result<(), Error> {
    for ghost in &tree.ghosts {
        if matches!(ghost.kind, GhostKind::Device(_)) && !capable(CAP_MKNOD) {
            return Err(Error::Right("CAP_MKNOD (it has a removed device open)"));
        }
        let mut above = std::path::Path::new(&ghost.path).ancestors().skip(1);
        let Some(directory) = above.find(|directory| directory.exists()) else {
            continue;
        };
        let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
        writable.map_err(|error| Error::Open {
            path: ghost.path.clone(),
            source: error.into(),
        })?;
    }
    Ok(())
}

/// A process that shares its parent's descriptors must be made by that, and have nothing that is set
/// through a descriptor of the tracker's while the other one goes on.
fn shared_tables(tree: &Tree) -> Result<(), Error> {
    let by_others = super::plan::made_by_others(tree);
    for &at in &by_others {
        let process = &tree.processes[at];
        if process.exit_signal != libc::SIGCHLD && process.zombie.is_none() {
            return Err(Error::Group(format!(
                "process {} is of another session than its parent, which gets another signal than \
                 SIGCHLD at its end",
                process.pid
            )));
        }
    }
    let own = procfs::text("/proc/self/loginuid").ok();
    let own = own.and_then(|text| text.trim().parse().ok());
    for (at, process) in tree.processes.iter().enumerate() {
        let apart = by_others.contains(&at) || process.terminal.is_some();
        if process.shares_descriptors && (apart || process.login_user != own) {
            return Err(Error::Group(format!(
                "process {} shares its parent's descriptors, and is of another session or login",
                process.pid
            )));
        }
    }
    Ok(())
}

/// Segments where another mapping now lies in between cannot be attached again.
fn attachable(tree: &Tree) -> Result<(), Error> {
    for process in &tree.processes {
        for attachment in attachments(tree, process) {
            let other = process.mappings.iter().enumerate().find(|(at, mapping)| {
                mapping.start < attachment.end
                    && attachment.start < mapping.end
                    && !attachment.pieces.contains(at)
            });
            if let Some((_, mapping)) = other {
                return Err(Error::Group(format!(
                    "process {}: the mapping at {:#x} lies where a System V segment was attached",
                    process.pid, mapping.start
                )));
            }
        }
    }
    Ok(())
}

/// Whether the numbers of System V objects can be chosen.
pub(super) fn numberable(tree: &Tree) -> Result<(), Error> {
    let segment = |kind: &ObjectKind| matches!(kind, ObjectKind::SystemV { .. });
    let kinds = [
        (
            Kind::Segment,
            tree.objects.iter().any(|object| segment(&object.kind)),
        ),
        (Kind::Semaphores, !tree.semaphores.is_empty()),
        (Kind::Queue, !tree.queues.is_empty()),
    ];
    for (kind, _) in kinds.into_iter().filter(|(_, uses)| *uses) {
        kind.next_id()?;
    }
    Ok(())
}

fn rights() -> Result<(), Error> {
    let has = capable;
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
        // A removed name is made later, but not that of a file with another one.
        let now = match tree.ghost(&path).map(|ghost| &ghost.kind) {
            Some(GhostKind::Other(name)) => name.clone(),
            Some(_) => continue,
            None => path.clone(),
        };
        let metadata = match image.mode & libc::S_IFMT {
            libc::S_IFLNK => fs::symlink_metadata(&now),
            _ => fs::metadata(&now),
        };
        let metadata = match metadata {
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
        let Some(how) = difference(&metadata, image) else {
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
        let dead = |pid: &i32| *path == format!("/proc/{pid}");
        // Of processes of the tree, it is there when they are.
        let own = procfs::owner_of_path(path)
            .is_some_and(|(pid, _)| tree.processes.iter().any(|process| process.pid == pid));
        if tree.ghost(path).is_some() || own || tree.dead.iter().any(dead) {
            continue;
        }
        fs::metadata(path).map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// How a file is not as it was.
fn difference(metadata: &fs::Metadata, image: &Image) -> Option<String> {
    let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    if metadata.len() != image.bytes {
        let (has, had) = (metadata.len(), image.bytes);
        Some(format!("it has {has} bytes and had {had}"))
    } else if modified_ns != image.modified_ns {
        Some("it was written to".to_owned())
    } else {
        None
    }
}

/// Files that the program had written and closed: a database would take newer ones for its own.
fn written(tree: &Tree, options: &Options) -> Result<(), Error> {
    for image in &tree.written {
        let how = match fs::metadata(&image.path) {
            Ok(metadata) => difference(&metadata, image),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("it is gone".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let Some(how) = how else { continue };
        let path = image.path.clone();
        if !options.accept_changed_files {
            return Err(Error::Changed { path, how });
        }
        tracing::warn!("{path} has changed since the program was persisted ({how})");
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
