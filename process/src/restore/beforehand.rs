//! Before a program is killed because it is safe: what a restore does is tried, as far as that changes
//! nothing while the program still lives.

use super::descriptors::open_image;
use super::rights::{CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SYS_NICE, capable};
use super::{Error, memory};
use crate::procfs;
use crate::state::{FileKind, Process, Tree};

/// The kernel's own limit where nothing is set.
const UNPRIVILEGED_PORT: u16 = 1024;

/// Whether a tree that is about to be killed can be restored: beyond what [`super::possible`] checks
/// at each epoch, its description is read again, its files are opened again, and rights are compared
/// with what is to be set.
///
/// # Errors
/// The first obstacle.
pub fn certain(tree: &Tree, description: &[u8]) -> Result<(), Error> {
    Tree::decode(description).map_err(|error| Error::Description(error.to_string()))?;
    ports(tree)?;
    roots(tree)?;
    scheduling(tree)?;
    super::plan::timers_possible(tree)?;
    let own = procfs::maps(std::process::id() as i32).map_err(|source| Error::System {
        action: "read our mappings".to_owned(),
        source,
    })?;
    memory::KernelMappings::find(&own, tree)?;
    memory::check_hole(tree, &own)?;
    files(tree)
}

/// Regular files and directories, which can be opened without an effect.
fn files(tree: &Tree) -> Result<(), Error> {
    for file in &tree.files {
        let FileKind::Image(image) = file.kind else {
            continue;
        };
        // To open it would break the lease.
        if file.lease.is_some() {
            continue;
        }
        let image = &tree.images[image as usize];
        let kind = image.mode & libc::S_IFMT;
        if [libc::S_IFREG, libc::S_IFDIR].contains(&kind) && tree.ghost(&image.path).is_none() {
            open_image(file, &image.path)?;
        }
    }
    Ok(())
}

fn living(tree: &Tree) -> impl Iterator<Item = &Process> {
    let processes = tree.processes.iter();
    processes.filter(|process| process.zombie.is_none())
}

/// Ports that only some may bind.
fn ports(tree: &Tree) -> Result<(), Error> {
    let first = procfs::text("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|text| text.trim().parse().ok());
    let first = first.unwrap_or(UNPRIVILEGED_PORT);
    let privileged = tree.sockets.iter().any(|socket| {
        let internet = [libc::AF_INET, libc::AF_INET6].contains(&socket.family);
        let port = socket
            .address
            .get(2..4)
            .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        internet && port != 0 && port < first
    });
    if privileged && !capable(CAP_NET_BIND_SERVICE) {
        return Err(Error::Right(
            "CAP_NET_BIND_SERVICE (it has bound a privileged port)",
        ));
    }
    Ok(())
}

fn roots(tree: &Tree) -> Result<(), Error> {
    if living(tree).any(|process| process.root.is_some()) && !capable(CAP_SYS_CHROOT) {
        return Err(Error::Right(
            "CAP_SYS_CHROOT (it has another root directory)",
        ));
    }
    Ok(())
}

/// Priorities above the tracker's own.
fn scheduling(tree: &Tree) -> Result<(), Error> {
    if capable(CAP_SYS_NICE) {
        return Ok(());
    }
    // SAFETY: no memory involved.
    let (own_policy, own_nice) = unsafe {
        (
            libc::sched_getscheduler(0),
            libc::getpriority(libc::PRIO_PROCESS, 0),
        )
    };
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    let higher = living(tree)
        .flat_map(|process| &process.threads)
        .any(|thread| {
            let wanted = &thread.scheduling;
            let policy = wanted.policy as i32;
            let real_time = !fair.contains(&policy) && policy != own_policy;
            real_time || fair.contains(&policy) && wanted.nice < own_nice
        });
    if higher {
        return Err(Error::Right(
            "CAP_SYS_NICE (it has a higher priority than its tracker)",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{File, Image};

    #[test]
    fn a_file_that_cannot_be_opened_as_it_was_is_an_obstacle() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "text").expect("written");
        let mut tree = Tree::empty();
        tree.images.push(Image {
            path: path.display().to_string(),
            bytes: 4,
            modified_ns: 0,
            mode: libc::S_IFREG | 0o644,
            device: 0,
        });
        tree.files.push(File {
            kind: FileKind::Image(0),
            flags: libc::O_RDWR as u32,
            position: 2,
            owner: (0, 0, 0),
            lock: None,
            records: Vec::new(),
            lease: None,
        });
        files(&tree).expect("it can be opened");
        // A directory cannot be opened for writing by anybody.
        tree.images[0].path = directory.path().display().to_string();
        let Err(Error::Open { source, .. }) = files(&tree) else {
            panic!("a directory was opened for writing");
        };
        assert_eq!(source.kind(), std::io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_description_that_no_restore_would_read_is_an_obstacle() {
        let tree = Tree::empty();
        let refused = certain(&tree, &tree.encode());
        assert!(matches!(refused, Err(Error::Description(_))), "{refused:?}");
    }
}
