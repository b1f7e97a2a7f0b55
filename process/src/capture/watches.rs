//! Watches of inotify, and the paths behind them.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::files::Open;
use super::objects::{DELETED, is_at, is_lossy};
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::sys::take_fd;
use crate::state::{FileKind, InotifyWatch};

impl Builder<'_> {
    pub(super) fn inotify(&mut self, open: &Open<'_>) -> Result<Option<FileKind>, Error> {
        let mut watches = Vec::new();
        for line in open
            .info
            .lines()
            .filter(|line| line.starts_with("inotify "))
        {
            let field = |name: &str| {
                line.split(' ')
                    .find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
            };
            let number = field("wd").and_then(|wd| i32::from_str_radix(wd, 16).ok());
            let mask = field("mask").and_then(|mask| u32::from_str_radix(mask, 16).ok());
            match (number, mask, watched_path(&field)) {
                (Some(number), Some(mask), Ok(path)) => {
                    watches.push(InotifyWatch { number, path, mask });
                }
                (_, _, Err(error)) => {
                    self.refuse(format!(
                        "fd {}: what its inotify instance watches cannot be found ({error})",
                        open.number
                    ));
                    return Ok(None);
                }
                _ => {
                    self.refuse(format!(
                        "fd {}: its inotify instance is not understood",
                        open.number
                    ));
                    return Ok(None);
                }
            }
        }
        watches.sort_by_key(|watch| watch.number);
        let failed = "read its inotify instance";
        let own = take_fd(self.pid, open.number).map_err(self.failed(failed))?;
        let mut waiting = 0i32;
        // SAFETY: the number lives.
        if unsafe { libc::ioctl(own.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } != 0 {
            return Err(self.failed(failed)(io::Error::last_os_error()));
        }
        Ok(Some(FileKind::Inotify {
            watches,
            unread: waiting > 0,
        }))
    }
}

/// The path behind the file handle that an inotify mark holds.
fn watched_path<'line>(field: &impl Fn(&str) -> Option<&'line str>) -> io::Result<String> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |name| {
        field(name)
            .and_then(|text| u64::from_str_radix(text, 16).ok())
            .ok_or_else(invalid)
    };
    let device = number("sdev")?;
    let handle = field("f_handle").ok_or_else(invalid)?;
    let bytes: Vec<u8> = (0..handle.len() / 2)
        .filter_map(|at| u8::from_str_radix(&handle[at * 2..at * 2 + 2], 16).ok())
        .collect();
    // struct file_handle: length, type, bytes.
    let mut raw = (number("fhandle-bytes")? as u32).to_ne_bytes().to_vec();
    raw.extend_from_slice(&(number("fhandle-type")? as i32).to_ne_bytes());
    raw.extend_from_slice(&bytes);
    raw.resize(8 + 128, 0);
    let mount = mount_point((device >> 20) as u32, (device & 0xf_ffff) as u32)?;
    let mount = fs::File::open(mount)?;
    // SAFETY: the handle lives and is as long as it says; the descriptor is new and ours.
    let file = unsafe {
        let fd = libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            raw.as_mut_ptr(),
            libc::O_PATH | libc::O_CLOEXEC,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = fs::read_link(&link)?.to_string_lossy().into_owned();
    if is_lossy(&path) {
        let why = format!("{path} is a name that is not UTF-8");
        return Err(io::Error::other(why));
    }
    if path.ends_with(DELETED) && !is_at(&path, &fs::metadata(&link)?) {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    Ok(path)
}

fn mount_point(major: u32, minor: u32) -> io::Result<String> {
    let device = format!("{major}:{minor}");
    procfs::text("/proc/self/mountinfo")?
        .lines()
        .find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&device.as_str())).then(|| words.get(4).map(|&w| w.to_owned()))?
        })
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
