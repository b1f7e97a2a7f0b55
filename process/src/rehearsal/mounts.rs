//! The files of a rehearsal: everything can be read as on the machine, and nothing can be changed.
//!
//! ```text
//!  all mounts                        read-only
//!  files that the program can        an empty file of the same length, owner and time in their place: a
//!  write or has locked, named pipes  lock or a lease of the copy meets none of the program's
//!  directories in which a restore    an overlay: what is made there is in memory
//!  makes names
//!  /proc, /dev/shm, /dev/pts         of the namespace
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount,
    open_tree,
};

use crate::procfs;
use crate::restore::unix_path;
use crate::state::{Backing, FileKind, GhostKind, Image, ObjectKind, Tree};

const SHARED_MEMORY: &str = "/dev/shm";
const TERMINALS: &str = "/dev/pts";

/// Makes the view; the calling process is the first of a PID namespace and has a mount namespace of its
/// own.
///
/// # Errors
/// What cannot be made, in words.
pub fn make(tree: &Tree) -> Result<(), String> {
    let failed = |what: &str| {
        let what = format!("cannot {what}");
        move |error: io::Error| format!("{what}: {error}")
    };
    let propagation = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", propagation).map_err(|error| match error {
        Errno::INVAL => "cannot leave the machine's mounts: the root directory is not where a \
                         file system is mounted, as in a plain chroot; a container has such a root"
            .into(),
        error => failed("leave the machine's mounts")(error.into()),
    })?;
    let places = Places::of(tree)?;
    all_read_only().map_err(failed("make the mounts read-only"))?;
    // Hidden by /proc, and reached by its descriptor.
    let scratch = file_system("tmpfs", &[("mode", "0700")], MountAttrFlags::empty())
        .and_then(|mount| attach(&mount, Path::new("/proc")))
        .and_then(|()| open_path(Path::new("/proc")))
        .map_err(failed("make a file system in memory"))?;
    let hidden = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    file_system("proc", &[], hidden)
        .and_then(|mount| attach(&mount, Path::new("/proc")))
        .map_err(failed("mount /proc"))?;
    if places.shared_memory {
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        file_system("tmpfs", &[("mode", "1777")], flags)
            .and_then(|mount| attach(&mount, Path::new(SHARED_MEMORY)))
            .map_err(failed("mount /dev/shm"))?;
    }
    if !tree.terminals.is_empty() {
        // The program may have the machine's own open, with its permissions.
        let multiplexer = fs::metadata(Path::new(TERMINALS).join("ptmx"));
        let mode = multiplexer.map_or(0o666, |about| about.mode() & 0o777);
        let mode = format!("{mode:o}");
        let options = [("ptmxmode", &*mode), ("mode", "620")];
        file_system("devpts", &options, MountAttrFlags::empty())
            .and_then(|mount| attach(&mount, Path::new(TERMINALS)))
            .map_err(failed("mount /dev/pts"))?;
    }
    for (number, directory) in places.directories.iter().enumerate() {
        overlay(directory, number, &scratch).map_err(|error| {
            format!(
                "cannot lay a copy over {} ({error}), where the program has a socket or a removed \
                 file",
                directory.display()
            )
        })?;
    }
    for path in &places.sockets {
        match fs::symlink_metadata(path) {
            // The program listens there: the copy must not find it.
            Ok(found) if found.file_type().is_socket() => {
                fs::remove_file(path).map_err(failed("remove the name of a socket"))?;
            }
            _ => {}
        }
    }
    for (number, (path, fake)) in places.files.iter().enumerate() {
        put_fake(Path::new(path), fake, number, &scratch)
            .map_err(|error| format!("cannot put a file in the place of {path}: {error}"))?;
    }
    Ok(())
}

/// What is laid over.
#[derive(Debug)]
struct Places<'tree> {
    files: BTreeMap<&'tree str, Fake<'tree>>,
    /// Ascending; none below another one.
    directories: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    shared_memory: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Fake<'tree> {
    /// A file of the same length; with the same contents, if the program has mapped some of it privately.
    File {
        image: &'tree Image,
        contents: bool,
    },
    Pipe,
}

impl<'tree> Places<'tree> {
    fn of(tree: &'tree Tree) -> Result<Self, String> {
        let mut directories = BTreeSet::new();
        let mut sockets = Vec::new();
        let mut add = |path: &Path| -> Result<(), String> {
            let Some(above) = path.ancestors().skip(1).find(|above| above.is_dir()) else {
                return Ok(());
            };
            let above = above.canonicalize().unwrap_or_else(|_| above.to_owned());
            if above == Path::new("/") {
                return Err(format!(
                    "{} is in the root directory, over which no copy can be laid",
                    path.display()
                ));
            }
            directories.insert(above);
            Ok(())
        };
        let unix = |socket: &&crate::state::Socket| socket.family == libc::AF_UNIX;
        for socket in tree.sockets.iter().filter(unix) {
            if let Some(path) = socket.renamed() {
                add(Path::new(path))?;
                sockets.push(PathBuf::from(path));
            } else if socket.detached {
                add(&std::env::temp_dir().join("socket"))?;
            } else if let Some(path) = unix_path(&socket.address) {
                let path = Path::new(&socket.directory).join(path);
                add(&path)?;
                sockets.push(path);
            }
        }
        for object in &tree.objects {
            match &object.kind {
                ObjectKind::Unlinked { path, .. } | ObjectKind::Posix { path, .. } => {
                    add(Path::new(path))?;
                }
                _ => {}
            }
        }
        for ghost in &tree.ghosts {
            add(Path::new(&ghost.path))?;
            if let GhostKind::Other(name) = &ghost.kind {
                add(Path::new(name))?;
            }
        }
        let in_shared_memory = |directory: &PathBuf| directory.starts_with(SHARED_MEMORY);
        let shared_memory = directories.iter().any(in_shared_memory);
        directories.retain(|directory| !in_shared_memory(directory));
        Ok(Self {
            files: fakes(tree),
            directories: outermost(directories),
            sockets,
            shared_memory,
        })
    }
}

/// Those that are not below another one.
fn outermost(directories: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut outer: Vec<PathBuf> = Vec::new();
    for directory in directories {
        if !outer.iter().any(|above| directory.starts_with(above)) {
            outer.push(directory);
        }
    }
    outer
}

fn fakes(tree: &Tree) -> BTreeMap<&str, Fake<'_>> {
    let mut files = BTreeMap::new();
    let image = |index: u32| &tree.images[index as usize];
    let mappings = || tree.processes.iter().flat_map(|process| &process.mappings);
    let mapped_privately = |index: u32| {
        mappings().any(|mapping| {
            !mapping.shared
                && matches!(mapping.backing, Backing::Image { image, .. } if image == index)
        })
    };
    let mut add = |index: u32| {
        let image = image(index);
        if image.mode & libc::S_IFMT == libc::S_IFREG
            && tree.ghost(&image.path).is_none()
            && !image.path.starts_with("/sys/")
        {
            let contents = mapped_privately(index);
            files.insert(image.path.as_str(), Fake::File { image, contents });
        }
    };
    let locked_by_process = |file: u32| {
        tree.processes.iter().any(|process| {
            process.locks.iter().any(|lock| {
                let number = lock.descriptor;
                let mut descriptors = process.descriptors.iter();
                descriptors.any(|other| other.number == number && other.file == file)
            })
        })
    };
    for (number, file) in (0u32..).zip(&tree.files) {
        let FileKind::Image(index) = file.kind else {
            continue;
        };
        let writes = file.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        let locks = file.lock.is_some() || !file.records.is_empty() || file.lease.is_some();
        if writes || locks || locked_by_process(number) {
            add(index);
        }
    }
    for mapping in mappings() {
        if let Backing::Image { image, writable } = mapping.backing
            && writable
        {
            add(image);
        }
    }
    for path in tree.pipes.iter().filter_map(|pipe| pipe.path.as_deref()) {
        if tree.ghost(path).is_none() {
            files.insert(path, Fake::Pipe);
        }
    }
    files
}

fn put_fake(path: &Path, fake: &Fake<'_>, number: usize, scratch: &OwnedFd) -> io::Result<()> {
    let own = fs::metadata(path)?;
    let name = format!("file-{number}");
    match fake {
        Fake::Pipe => {
            let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600));
            rustix::fs::mknodat(scratch, &name, kind, mode, 0)?;
        }
        Fake::File { image, contents } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(scratch, &name, flags, Mode::from_raw_mode(0o600))?;
            let mut file = fs::File::from(file);
            if *contents {
                io::copy(&mut fs::File::open(path)?, &mut file)?;
            }
            file.set_len(image.bytes)?;
        }
    }
    let at = PathBuf::from(format!("/proc/self/fd/{}", scratch.as_raw_fd())).join(&name);
    std::os::unix::fs::chown(&at, Some(own.uid()), Some(own.gid()))?;
    fs::set_permissions(&at, fs::Permissions::from_mode(own.mode() & 0o7777))?;
    let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
    let times = rustix::fs::Timestamps {
        last_access: time(own.atime(), own.atime_nsec()),
        last_modification: time(own.mtime(), own.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, &at, &times, AtFlags::empty())?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    attach(&open_tree(scratch, &name, flags)?, path)
}

/// Lays a writable copy over a directory; what is mounted below it stays.
fn overlay(directory: &Path, number: usize, scratch: &OwnedFd) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mut below = Vec::new();
    for path in mounts_below(directory)? {
        below.push((open_tree(CWD, &path, flags)?, path));
    }
    let own = fs::metadata(directory)?;
    let lower = open_path(directory)?;
    for name in ["upper", "work"] {
        let name = format!("{name}-{number}");
        rustix::fs::mkdirat(scratch, &name, Mode::from_raw_mode(0o700))?;
    }
    let of = |name: &str| format!("/proc/self/fd/{}/{name}-{number}", scratch.as_raw_fd());
    let upper = of("upper");
    std::os::unix::fs::chown(&upper, Some(own.uid()), Some(own.gid()))?;
    fs::set_permissions(&upper, fs::Permissions::from_mode(own.mode() & 0o7777))?;
    // The descriptor is needed until there is the mount.
    let lower_path = format!("/proc/self/fd/{}", lower.as_raw_fd());
    let work = of("work");
    let options = [
        ("lowerdir", &*lower_path),
        ("upperdir", &*upper),
        ("workdir", &*work),
    ];
    let mount = file_system("overlay", &options, MountAttrFlags::empty())?;
    attach(&mount, directory)?;
    for (mount, path) in below {
        attach(&mount, &path)?;
    }
    Ok(())
}

/// Where something is mounted below a directory, outer ones first.
fn mounts_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let text = procfs::text("/proc/self/mountinfo")?;
    let below = |path: &PathBuf| path != directory && path.starts_with(directory);
    let mut found: Vec<PathBuf> = text.lines().filter_map(mount_point).filter(below).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// The fifth field of a line of mountinfo; blanks in it are written as octal numbers.
fn mount_point(line: &str) -> Option<PathBuf> {
    const CODES: [(&str, &str); 4] = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let mut path = line.split(' ').nth(4)?.to_owned();
    for (code, meaning) in CODES {
        path = path.replace(code, meaning);
    }
    Some(path.into())
}

fn all_read_only() -> io::Result<()> {
    /// `struct mount_attr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const AT_RECURSIVE: i32 = 0x8000;
    const READ_ONLY: u64 = 1;
    let attributes = Attributes {
        set: READ_ONLY,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let root = CString::new("/")?;
    // SAFETY: path and structure live, and the length is that of the structure.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            root.as_ptr(),
            AT_RECURSIVE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(fsmount(context.as_fd(), flags, attributes)?)
}

fn attach(mount: &OwnedFd, at: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount, "", CWD, at, flags)?)
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{File, Pipe};

    fn file(image: u32, flags: i32) -> File {
        File {
            kind: FileKind::Image(image),
            flags: flags as u32,
            position: 0,
            owner: (0, 0, 0),
            lock: None,
            records: Vec::new(),
            lease: None,
        }
    }

    #[test]
    fn what_the_program_can_write_or_has_locked_is_not_what_the_copy_opens() {
        let image = |path: &str| Image {
            path: path.to_owned(),
            bytes: 4,
            modified_ns: 0,
            mode: libc::S_IFREG | 0o600,
            device: 0,
        };
        let mut tree = Tree::empty();
        tree.images = ["/read", "/written", "/locked"].map(image).to_vec();
        tree.files = vec![
            file(0, libc::O_RDONLY),
            file(1, libc::O_WRONLY),
            file(2, libc::O_RDONLY),
        ];
        tree.files[2].lock = Some(true);
        tree.pipes.push(Pipe {
            content: Vec::new(),
            capacity: 4096,
            path: Some("/pipe".to_owned()),
        });
        let found = fakes(&tree);
        let paths: Vec<&str> = found.keys().copied().collect();
        assert_eq!(paths, ["/locked", "/pipe", "/written"]);
        assert_eq!(found["/pipe"], Fake::Pipe);
    }

    #[test]
    fn a_directory_below_another_one_is_laid_over_with_it() {
        let all = ["/tmp", "/tmp/a", "/tmpfs", "/run/x"].map(PathBuf::from);
        let outer = outermost(all.into_iter().collect());
        assert_eq!(outer, ["/run/x", "/tmp", "/tmpfs"].map(PathBuf::from));
    }

    #[test]
    fn a_mount_point_with_blanks_is_read_whole() {
        let line = "36 35 98:0 / /mnt/a\\040b rw,noatime - ext4 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/mnt/a b")));
    }
}
