//! Descriptors of events: eventfd, timerfd, inotify.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::Error;
use super::descriptors::owned;
use crate::procfs;
use crate::state::FileKind;

const TFD_IOC_SET_TICKS: libc::c_ulong = 0x4008_5400;

/// What a watch is for; other bits are the kernel's.
const OF_WATCHES: u32 = libc::IN_ALL_EVENTS | libc::IN_ONESHOT | libc::IN_EXCL_UNLINK;

const INOTIFY_IOC_SETNEXTWD: libc::c_ulong = 0x4004_4900;

pub(super) fn open_event(count: u64, semaphore: bool) -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    // SAFETY: no memory involved.
    let event = owned(unsafe { libc::eventfd(0, flags) })?;
    if count > 0 {
        rustix::io::write(&event, &count.to_ne_bytes())?;
    }
    Ok(event)
}

pub(super) fn open_timer(timer: &FileKind) -> io::Result<OwnedFd> {
    let FileKind::Timer {
        clock,
        flags,
        remaining_ns,
        wall_clock_ns,
        interval_ns,
        ticks,
    } = *timer
    else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: no memory involved.
    let timer = owned(unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) })?;
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // A time of day stays one, whatever the clock of the program has missed.
    let absolute = flags as i32 & libc::TFD_TIMER_ABSTIME != 0;
    let value = match absolute {
        true if wall_clock_ns != 0 => wall_clock_ns,
        true if remaining_ns != 0 => now_ns(clock)? + remaining_ns,
        _ => remaining_ns,
    };
    let setting = libc::itimerspec {
        it_interval: time(interval_ns),
        it_value: time(value),
    };
    // SAFETY: the setting lives.
    let set = unsafe {
        libc::timerfd_settime(
            timer.as_raw_fd(),
            flags as i32,
            &raw const setting,
            std::ptr::null_mut(),
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    if ticks > 0 {
        // SAFETY: the number lives.
        let set = unsafe { libc::ioctl(timer.as_raw_fd(), TFD_IOC_SET_TICKS, &raw const ticks) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(timer)
}

fn now_ns(clock: i32) -> io::Result<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time lives.
    if unsafe { libc::clock_gettime(clock, &raw mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}

pub(super) fn open_inotify(
    watches: &[crate::state::InotifyWatch],
    unread: bool,
) -> Result<OwnedFd, Error> {
    let failed = |source| Error::System {
        action: "make an inotify instance".to_owned(),
        source,
    };
    // SAFETY: no memory involved.
    let inotify = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }).map_err(failed)?;
    if unread && let Err(error) = overflow(&inotify) {
        tracing::warn!("an inotify instance cannot report that events are lost: {error}");
    }
    for watch in watches {
        let path = std::ffi::CString::new(watch.path.as_str())
            .map_err(|_| Error::Description(format!("watched path {:?}", watch.path)))?;
        // SAFETY: the path lives.
        let number = unsafe {
            libc::ioctl(inotify.as_raw_fd(), INOTIFY_IOC_SETNEXTWD, watch.number);
            libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), watch.mask & OF_WATCHES)
        };
        if number < 0 {
            let source = io::Error::last_os_error();
            return Err(Error::Open {
                path: watch.path.clone(),
                source,
            });
        }
        if number != watch.number {
            return Err(failed(io::Error::other(format!(
                "watch {} of {} got number {number}",
                watch.number, watch.path
            ))));
        }
    }
    Ok(inotify)
}

/// Leaves one event in the queue of an inotify instance: that others are lost (`IN_Q_OVERFLOW`).
/// The kernel puts it in when a queue is full. So it is filled, and all but this is taken out.
fn overflow(inotify: &OwnedFd) -> io::Result<()> {
    const EVENT_BYTES: usize = 16;
    const EVENTS_MAX: usize = 1 << 20;
    let most = procfs::text("/proc/sys/fs/inotify/max_queued_events")?;
    let most: usize = most.trim().parse().map_err(io::Error::other)?;
    if most > EVENTS_MAX {
        return Err(io::Error::other("its queue is too long to be filled"));
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())?;
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: the path lives.
    let watch = unsafe {
        let events = libc::IN_MODIFY | libc::IN_ACCESS;
        libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), events)
    };
    if watch < 0 {
        return Err(io::Error::last_os_error());
    }
    // Neighbours that are alike would become one event.
    for _ in 0..=most / 2 {
        file.write_all_at(&[0], 0)?;
        file.read_exact_at(&mut [0], 0)?;
    }
    // The event of its own end finds no room.
    // SAFETY: no memory involved.
    unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), watch) };
    let mut left = most * EVENT_BYTES;
    let mut buffer = vec![0u8; left.min(1 << 16)];
    while left > 0 {
        let room = buffer.len().min(left);
        let got = rustix::io::read(inotify, &mut buffer[..room])?;
        left -= got.min(left);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inotify_instance_with_unread_events_says_that_they_are_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let watch = crate::state::InotifyWatch {
            number: 7,
            path: directory.path().display().to_string(),
            mask: libc::IN_CREATE,
        };
        let inotify = open_inotify(&[watch], true).expect("made");
        fs::write(directory.path().join("new"), "").expect("written");
        let mut bytes = [0u8; 256];
        let got = rustix::io::read(&inotify, &mut bytes).expect("events");
        let word = |at: usize| i32::from_ne_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        assert_eq!((word(0), word(4)), (-1, libc::IN_Q_OVERFLOW as i32));
        assert_eq!((word(16), word(20)), (7, libc::IN_CREATE as i32));
        assert_eq!(got, 16 + 16 + 16, "nothing else");
    }
}
