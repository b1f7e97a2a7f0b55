//! Reports of fanotify that name a file by its handle. Reports by descriptor open each file that anyone has
//! written, and so break the leases on it.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `struct fanotify_event_info_header`: type, padding, length; then the file system, 8 bytes.
const INFO_HEADER: usize = 4;
const FSID: usize = 8;
/// `struct file_handle`: length of the handle, type.
const HANDLE_HEADER: usize = 8;
const HANDLE_MAX: usize = 128;

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_MAX],
}

/// File systems of which handles can be opened: each by an open directory of it.
#[derive(Debug, Default)]
pub(super) struct Systems(Vec<([u8; FSID], File)>);

impl Systems {
    /// Opens a directory of the file system on which a link of /proc leads.
    pub(super) fn add(&mut self, link: &str) -> io::Result<()> {
        let target = fs::read_link(link)?;
        let directory = match fs::metadata(link)?.is_dir() {
            true => Path::new(link),
            false => target.parent().unwrap_or(Path::new("/")),
        };
        let directory = File::open(directory)?;
        // This process may lack the right (CAP_DAC_READ_SEARCH), or the file system have no handles.
        open_by_handle(&directory, &mut handle_of(&directory)?)?;
        let fsid = fsid_of(&directory)?;
        if !self.0.iter().any(|(known, _)| *known == fsid) {
            self.0.push((fsid, directory));
        }
        Ok(())
    }

    /// The path of the file that an event's further information names: its own, which another name may have
    /// become since, or that of the name in its directory.
    pub(super) fn path(&self, mut information: &[u8]) -> Option<PathBuf> {
        let mut named = None;
        while let Some(header) = information.get(..INFO_HEADER) {
            let length = usize::from(u16::from_ne_bytes([header[2], header[3]]));
            let record = information.get(INFO_HEADER..length)?;
            match header[0] {
                libc::FAN_EVENT_INFO_TYPE_FID => {
                    if let Some((file, _)) = self.open(record)
                        && let Some(path) = path_of(&file)
                    {
                        return Some(path);
                    }
                }
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => named = self.in_directory(record),
                _ => {}
            }
            information = information.get(length..)?;
        }
        named
    }

    fn in_directory(&self, record: &[u8]) -> Option<PathBuf> {
        let (directory, name) = self.open(record)?;
        let name = CStr::from_bytes_until_nul(name).ok()?;
        let directory = fs::read_link(link_of(&directory)).ok()?;
        Some(directory.join(OsStr::from_bytes(name.to_bytes())))
    }

    /// What a record's handle leads to, without opening it for anything; and what is behind the handle.
    fn open<'a>(&self, record: &'a [u8]) -> Option<(OwnedFd, &'a [u8])> {
        let fsid = record.get(..FSID)?;
        let (_, system) = self.0.iter().find(|(known, _)| known == fsid)?;
        let record = record.get(FSID..)?;
        let word = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let bytes = word(0)?;
        let end = HANDLE_HEADER + bytes as usize;
        let mut handle = Handle {
            bytes,
            kind: word(4)? as i32,
            handle: [0; HANDLE_MAX],
        };
        let own = record.get(HANDLE_HEADER..end)?;
        handle.handle.get_mut(..own.len())?.copy_from_slice(own);
        let opened = open_by_handle(system, &mut handle).ok()?;
        Some((opened, record.get(end..)?))
    }
}

/// What a handle leads to in the file system of a directory, without opening it for anything.
fn open_by_handle(system: &File, handle: &mut Handle) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle lives, and has the length that it says; the descriptor is new and ours.
    unsafe {
        let number = libc::SYS_open_by_handle_at;
        let fd = libc::syscall(
            number,
            system.as_raw_fd(),
            std::ptr::from_mut(handle),
            flags,
        );
        match fd {
            0.. => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn handle_of(directory: &File) -> io::Result<Handle> {
    let mut handle = Handle {
        bytes: HANDLE_MAX as u32,
        kind: 0,
        handle: [0; HANDLE_MAX],
    };
    let mut mount = 0i32;
    // SAFETY: the handle has room for as many bytes as it says; both live.
    let named = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    match named {
        0 => Ok(handle),
        _ => Err(io::Error::last_os_error()),
    }
}

fn link_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The path of a file, if the kernel knows the name by which it was found.
fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    let path = fs::read_link(link_of(file)).ok()?;
    let (there, own) = (
        fs::symlink_metadata(&path).ok()?,
        fs::metadata(link_of(file)).ok()?,
    );
    ((there.dev(), there.ino()) == (own.dev(), own.ino())).then_some(path)
}

/// The number of a file system, as events have it.
fn fsid_of(directory: &File) -> io::Result<[u8; FSID]> {
    // SAFETY: all zeros is a value of it, and the kernel fills it.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(directory.as_raw_fd(), &raw mut system) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::mem::transmute::<libc::fsid_t, [u8; FSID]>(
            system.f_fsid,
        ))
    }
}
