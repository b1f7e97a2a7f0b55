//! Files on disk, and shared-memory objects.

use std::fs::{self, File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{Builder, Error, SharedObject};
use crate::procfs::MapsLine;
use crate::state::{Backing, Image, Object, ObjectKind};

pub(super) const DELETED: &str = " (deleted)";
/// What failed when a link of `map_files` cannot be followed.
pub(super) const LINK_FAILED: &str = "read a mapped file (CAP_CHECKPOINT_RESTORE is needed)";
/// The memory devices that can be opened anew without loss: null, zero, full, random, urandom.
const MEMORY_DEVICES: [u32; 5] = [3, 5, 7, 8, 9];

impl Builder<'_> {
    /// What is behind a mapping of a file.
    pub(super) fn file_backing(&mut self, map: &MapsLine, range: &str) -> Result<Backing, Error> {
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, map.start, map.end);
        let metadata = fs::metadata(&link).map_err(self.failed(LINK_FAILED))?;
        if is_lossy(&map.name) && metadata.nlink() > 0 {
            let name = &map.name;
            self.refuse(format!("{range} maps {name}, a name that is not UTF-8"));
            return Ok(Backing::Anonymous);
        }
        let path = without_mark(&map.name, &metadata);
        if let Some(name) = path.strip_prefix("/memfd:") {
            let kind = memfd(name, &metadata);
            return self.object(&link, &metadata, kind).map(Backing::Object);
        }
        if path == "/dev/zero" && metadata.is_file() {
            return self
                .object(&link, &metadata, ObjectKind::SharedAnonymous)
                .map(Backing::Object);
        }
        if !metadata.is_file() {
            self.refuse(format!("{range} maps {path}, which is not a regular file"));
        }
        // Most files are mapped in parts, one after the other.
        let identity = (metadata.dev(), metadata.ino());
        let known = self.mapped_images.get(path);
        if let Some(&(_, image)) = known.filter(|(known, _)| *known == identity) {
            return Ok(Backing::Image {
                image,
                writable: map.shared && link_is_writable(&link),
            });
        }
        let linked = linked_memory(path, &metadata);
        let path = linked.as_deref().unwrap_or(path);
        if !is_at(path, &metadata) {
            return self.unlinked(&link, &metadata, path).map(Backing::Object);
        }
        if is_posix_memory(path, &metadata) {
            let kind = posix_memory(path, &metadata);
            return self.object(&link, &metadata, kind).map(Backing::Object);
        }
        let image = self.image(path, &metadata);
        self.mapped_images
            .insert(path.to_owned(), (identity, image));
        Ok(Backing::Image {
            image,
            writable: map.shared && link_is_writable(&link),
        })
    }

    /// The image of a path as a link of /proc gives it, which must still be there.
    pub(super) fn image_of_link(&mut self, link: &str) -> Result<u32, Error> {
        if let Some(path) = link.strip_suffix(DELETED) {
            let itself = fs::metadata(format!("/proc/{}/exe", self.pid));
            if !itself.is_ok_and(|itself| is_at(link, &itself)) {
                self.refuse(format!("its executable {path} was removed or replaced"));
                return Ok(0);
            }
        }
        if is_lossy(link) {
            self.refuse(format!(
                "its executable is {link}, a name that is not UTF-8"
            ));
            return Ok(0);
        }
        let metadata =
            fs::metadata(link).map_err(self.failed(format!("read the metadata of {link}")))?;
        Ok(self.image(link, &metadata))
    }

    /// Enters a file on disk.
    pub(super) fn image(&mut self, path: &str, metadata: &Metadata) -> u32 {
        if let Some(&index) = self.image_index.get(path) {
            return index;
        }
        let index = self.tree.images.len() as u32;
        self.tree.images.push(Image {
            path: path.to_owned(),
            bytes: metadata.len(),
            modified_ns: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
            mode: metadata.mode(),
            device: metadata.rdev(),
        });
        self.image_index.insert(path.to_owned(), index);
        index
    }

    /// Enters a file that has no name any more.
    pub(super) fn unlinked(
        &mut self,
        link: &str,
        metadata: &Metadata,
        path: &str,
    ) -> Result<u32, Error> {
        // Namespaces and the like have names that are no paths.
        if metadata.nlink() > 0 && path.starts_with('/') {
            let links = metadata.nlink();
            self.refuse(format!(
                "{path} does not lead to its file any more, which has {links} other names"
            ));
            return Ok(0);
        }
        if let Err(why) = can_be_made_again(link, path) {
            self.refuse(format!(
                "{path} has no name any more, and cannot be made again: {why}"
            ));
            return Ok(0);
        }
        let kind = ObjectKind::Unlinked {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            times_ns: times_ns(metadata),
        };
        self.object(link, metadata, kind)
    }

    /// Enters a shared-memory object that a link of /proc leads to.
    pub(super) fn object(
        &mut self,
        link: &str,
        metadata: &Metadata,
        kind: ObjectKind,
    ) -> Result<u32, Error> {
        if let Some(&index) = self.object_index.get(&(metadata.dev(), metadata.ino())) {
            return Ok(index);
        }
        let file = open_unnoticed(link).map_err(self.failed("open its shared memory"))?;
        Ok(self.enter_object(OwnedFd::from(file), metadata, kind))
    }

    fn enter_object(&mut self, file: OwnedFd, metadata: &Metadata, kind: ObjectKind) -> u32 {
        let key = (metadata.dev(), metadata.ino());
        let space = (self.options.object_space)(key.0, key.1);
        let index = self.tree.objects.len() as u32;
        let kind = match kind {
            ObjectKind::Memfd {
                name,
                mode,
                owner,
                times_ns,
                ..
            } => ObjectKind::Memfd {
                name,
                seals: rustix::fs::fcntl_get_seals(&file).map_or(0, |seals| seals.bits()),
                mode,
                owner,
                times_ns,
            },
            other => other,
        };
        let attributes = match kind {
            ObjectKind::SharedAnonymous | ObjectKind::SystemV { .. } => Vec::new(),
            _ => attributes(&file),
        };
        self.tree.objects.push(Object {
            space,
            bytes: metadata.len(),
            attributes,
            kind,
        });
        self.objects.push(SharedObject {
            space,
            file,
            bytes: metadata.len(),
        });
        self.object_index.insert(key, index);
        index
    }

    /// Why a character device cannot be opened anew without a difference; `None`: it can.
    pub(super) fn device_refusal(metadata: &Metadata, path: &str) -> Option<String> {
        if !metadata.file_type().is_char_device() {
            return Some(format!("the block device {path}"));
        }
        let device = metadata.rdev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        match (major, minor) {
            (1, minor) if MEMORY_DEVICES.contains(&minor) => None,
            // The controlling terminal, the console; pseudo-terminals by their number.
            (5, 0 | 1) | (136..=143, _) => None,
            (4, _) => None,
            _ => Some(format!("the device {path}")),
        }
    }
}

/// Whether a file without a name can be made where this one was.
fn can_be_made_again(link: &str, path: &str) -> std::io::Result<()> {
    let other = |why: &str| std::io::Error::other(why.to_owned());
    let directory = Path::new(path).parent().filter(|_| path.starts_with('/'));
    let directory = directory.ok_or_else(|| other("it is no file of a file system"))?;
    // Message queues and secret memory have names that resemble paths.
    if rustix::fs::statfs(directory)?.f_type != rustix::fs::statfs(link)?.f_type {
        return Err(other("it is no file of that directory's file system"));
    }
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE).open(directory)?;
    Ok(())
}

/// Whether a file is POSIX shared memory: its contents are in memory only.
pub(super) fn is_posix_memory(path: &str, metadata: &Metadata) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    path.starts_with("/dev/shm/")
        && metadata.is_file()
        && rustix::fs::statfs(path).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

/// The name of a semaphore (`sem_open`): the C library makes it under another one, which is gone.
fn linked_memory(path: &str, metadata: &Metadata) -> Option<String> {
    if !path.starts_with("/dev/shm/") || metadata.nlink() != 1 || is_at(path, metadata) {
        return None;
    }
    let names = fs::read_dir("/dev/shm").ok()?.flatten();
    let mut names = names.map(|entry| entry.path().to_string_lossy().into_owned());
    names.find(|name| is_at(name, metadata))
}

/// The description of one, without its contents.
pub(super) fn posix_memory(path: &str, metadata: &Metadata) -> ObjectKind {
    ObjectKind::Posix {
        path: path.to_owned(),
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        times_ns: times_ns(metadata),
        file: (metadata.dev(), metadata.ino()),
    }
}

/// The description of a memfd, without its contents and seals.
pub(super) fn memfd(name: &str, metadata: &Metadata) -> ObjectKind {
    ObjectKind::Memfd {
        name: name.to_owned(),
        seals: 0,
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        times_ns: times_ns(metadata),
    }
}

/// Time of last access and of last change.
fn times_ns(metadata: &Metadata) -> (i64, i64) {
    (
        metadata.atime() * 1_000_000_000 + metadata.atime_nsec(),
        metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
    )
}

/// Opens an object to read it, if possible so that the program does not see it in the time of last access.
fn open_unnoticed(link: &str) -> std::io::Result<File> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true);
    // Only the owner and CAP_FOWNER may ask for it.
    match options.clone().custom_flags(libc::O_NOATIME).open(link) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => options.open(link),
        opened => opened,
    }
}

/// Extended attributes that a program sets itself. Those of security modules are made by the kernel.
fn attributes(file: &OwnedFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    const OF_PROGRAMS: [&[u8]; 2] = [b"user.", b"system.posix_acl_"];
    // Most have none, and some file systems know none.
    let bytes = rustix::fs::flistxattr_query(file).unwrap_or(0);
    if bytes == 0 {
        return Vec::new();
    }
    let mut names = vec![0; bytes];
    let bytes = rustix::fs::flistxattr(file, &mut names).unwrap_or(0);
    let names = names[..bytes].split(|byte| *byte == 0);
    let names = names.filter(|name| OF_PROGRAMS.iter().any(|own| name.starts_with(own)));
    names
        .filter_map(|name| {
            let mut value = vec![0; rustix::fs::fgetxattr_query(file, name).ok()?];
            let bytes = rustix::fs::fgetxattr(file, name, &mut value).ok()?;
            value.truncate(bytes);
            Some((name.to_owned(), value))
        })
        .collect()
}

/// Whether a name of /proc was not UTF-8 and has lost what it was. (A name with U+FFFD itself counts, too.)
pub(super) fn is_lossy(name: &str) -> bool {
    name.contains(char::REPLACEMENT_CHARACTER)
}

/// The name that a link of /proc gives, without the mark of what was removed. A name may itself end so.
pub(super) fn without_mark<'link>(link: &'link str, metadata: &Metadata) -> &'link str {
    match link.strip_suffix(DELETED) {
        Some(path) if !is_at(link, metadata) => path,
        _ => link,
    }
}

/// Whether a path leads to this very file.
pub(super) fn is_at(path: &str, metadata: &Metadata) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino()))
}

/// Whether the file behind a mapping was opened for writing: the link's own permissions say so.
pub(super) fn link_is_writable(link: &str) -> bool {
    fs::symlink_metadata(link).is_ok_and(|metadata| metadata.mode() & 0o200 != 0)
}
