//! Makes POSIX message queues again, with their messages, and opens their descriptions.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::Error;
use super::descriptors::{open_image, owned, seek};
use super::ipc::Made;
use super::rights::{CAP_SYS_RESOURCE, capable, own_limit};
use crate::capture::{others_with_file, queue_sizes, send};
use crate::procfs;
use crate::state::{File, FileKind, PosixQueue, Tree};

/// Of each message, a pointer and a node of the kernel's tree are accounted; no more than this.
const OVERHEAD_BYTES: u64 = 128;
/// Names that are tried for a removed queue of which the name is taken.
const NAMES_MAX: u32 = 1000;

/// The descriptions of queues, by index of the file; the others are none.
pub(super) fn open_all(tree: &Tree, made: &mut Made) -> Result<Vec<Option<OwnedFd>>, Error> {
    let mut opened: Vec<Option<OwnedFd>> = tree.files.iter().map(|_| None).collect();
    if tree.posix_queues.is_empty() {
        return Ok(opened);
    }
    let _limit = RaisedLimit::new();
    // The name of a removed one may be another's.
    let (removed, named): (Vec<_>, Vec<_>) = (0u32..)
        .zip(&tree.posix_queues)
        .partition(|(_, queue)| queue.removed);
    for (index, queue) in removed.into_iter().chain(named) {
        let failed = failed(queue);
        let name = match queue.removed {
            true => spare_name(queue)?,
            false => {
                remove_left(queue)?;
                c_name(&queue.name)?
            }
        };
        let file = create(queue, &name).map_err(&failed)?;
        if !queue.removed {
            made.posix_queues.push(name.clone());
        }
        let described = describe(queue, &file, &name, index, tree, &mut opened);
        if queue.removed {
            // SAFETY: the name lives.
            unsafe { libc::mq_unlink(name.as_ptr()) };
        }
        described?;
    }
    Ok(opened)
}

/// Fills a queue, and opens all of its descriptions.
fn describe(
    queue: &PosixQueue,
    file: &OwnedFd,
    name: &CString,
    index: u32,
    tree: &Tree,
    opened: &mut [Option<OwnedFd>],
) -> Result<(), Error> {
    for (priority, bytes) in &queue.messages {
        send(file.as_raw_fd(), *priority, bytes).map_err(failed(queue))?;
    }
    for (file, place) in tree.files.iter().zip(opened) {
        if let FileKind::PosixQueue { queue: of, path } = &file.kind
            && *of == index
        {
            *place = Some(match path {
                Some(path) => open_image(file, path)?,
                None => open_by_name(file, name).map_err(failed(queue))?,
            });
        }
    }
    Ok(())
}

fn open_by_name(file: &File, name: &CString) -> io::Result<OwnedFd> {
    let flags = file.flags as i32 & (libc::O_ACCMODE | libc::O_NONBLOCK);
    // SAFETY: the name lives.
    let opened = owned(unsafe { libc::mq_open(name.as_ptr(), flags | libc::O_CLOEXEC) })?;
    if file.position != 0 {
        seek(&opened, file.position)?;
    }
    Ok(opened)
}

/// An empty queue, open for both directions.
fn create(queue: &PosixQueue, name: &CString) -> io::Result<OwnedFd> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: name and attributes live, and with O_CREAT both are read.
    let made = owned(unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = queue.messages_max as _;
        attributes.mq_msgsize = queue.message_bytes_max as _;
        libc::mq_open(name.as_ptr(), flags, 0o600, &raw const attributes)
    })?;
    let (user, group) = queue.owner;
    std::os::unix::fs::fchown(&made, Some(user), Some(group))?;
    rustix::fs::fchmod(&made, rustix::fs::Mode::from_raw_mode(queue.mode))?;
    Ok(made)
}

/// Removes what the program's former life has left behind: a queue with this name, owner and size that no
/// process has open.
fn remove_left(queue: &PosixQueue) -> Result<(), Error> {
    let name = c_name(&queue.name)?;
    // SAFETY: the name lives.
    let existing = owned(unsafe {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        libc::mq_open(name.as_ptr(), flags)
    });
    let existing = match existing {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        existing => existing.map_err(failed(queue))?,
    };
    let found = rustix::fs::fstat(&existing).map_err(|error| failed(queue)(error.into()))?;
    let sizes = queue_sizes(&existing).map_err(failed(queue))?;
    let same = (found.st_mode & 0o7777, found.st_uid, found.st_gid)
        == (queue.mode, queue.owner.0, queue.owner.1)
        && sizes == (queue.messages_max, queue.message_bytes_max);
    let user = others_with_file((found.st_dev, found.st_ino), &[]);
    if same && user.is_none() {
        // SAFETY: the name lives.
        unsafe { libc::mq_unlink(name.as_ptr()) };
        return Ok(());
    }
    let whose = match user {
        Some((pid, program)) => format!("process {pid} ({program}) has it open"),
        None => "its owner, permissions or size are others".to_owned(),
    };
    Err(Error::Ipc(format!(
        "the POSIX message queue /{} is another program's ({whose}); it is a file where a file system \
         of the type mqueue is mounted, usually /dev/mqueue",
        queue.name
    )))
}

/// The name of a removed queue, or one like it that is free.
fn spare_name(queue: &PosixQueue) -> Result<CString, Error> {
    let own = std::process::id();
    let others = (0..NAMES_MAX).map(|number| format!(".{own}-{number}"));
    for name in std::iter::once(queue.name.clone()).chain(others) {
        let name = c_name(&name)?;
        // SAFETY: the name lives.
        let existing = owned(unsafe { libc::mq_open(name.as_ptr(), libc::O_RDONLY) });
        match existing {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name),
            _ => {}
        }
    }
    Err(Error::Ipc(format!(
        "no name is free for the removed POSIX message queue /{}",
        queue.name
    )))
}

fn c_name(name: &str) -> Result<CString, Error> {
    CString::new(format!("/{name}"))
        .map_err(|_| Error::Description(format!("name of a message queue {name:?}")))
}

fn failed(queue: &PosixQueue) -> impl Fn(io::Error) -> Error {
    let action = format!("make the POSIX message queue /{}", queue.name);
    move |source| Error::System {
        action: action.clone(),
        source,
    }
}

/// Whether the tracker may make queues of these sizes.
pub(super) fn possible(tree: &Tree) -> Result<(), Error> {
    if tree.posix_queues.is_empty() || capable(CAP_SYS_RESOURCE) {
        return Ok(());
    }
    let sysctl = |name: &str| {
        let text = procfs::text(format!("/proc/sys/fs/mqueue/{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let (messages, bytes) = (sysctl("msg_max"), sysctl("msgsize_max"));
    let above = |size: u64, limit: Option<u64>| limit.is_some_and(|limit| size > limit);
    let queues = tree.posix_queues.iter();
    let large = queues
        .clone()
        .any(|queue| above(queue.messages_max, messages) || above(queue.message_bytes_max, bytes));
    let all = queues.map(|queue| queue.messages_max * (queue.message_bytes_max + OVERHEAD_BYTES));
    if large || all.sum::<u64>() > own_limit(libc::RLIMIT_MSGQUEUE).1 {
        return Err(Error::Right(
            "CAP_SYS_RESOURCE (its message queues are larger than its tracker may make)",
        ));
    }
    Ok(())
}

/// The tracker's limit of message queues, as high as it can be, for a time.
struct RaisedLimit(libc::rlimit64);

impl RaisedLimit {
    fn new() -> Self {
        let (soft, hard) = own_limit(libc::RLIMIT_MSGQUEUE);
        let all = match capable(CAP_SYS_RESOURCE) {
            true => libc::RLIM64_INFINITY,
            false => hard,
        };
        set_limit(&libc::rlimit64 {
            rlim_cur: all,
            rlim_max: all,
        });
        Self(libc::rlimit64 {
            rlim_cur: soft,
            rlim_max: hard,
        })
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        set_limit(&self.0);
    }
}

fn set_limit(limit: &libc::rlimit64) {
    // A queue that is too large is an error that names it.
    // SAFETY: the limit lives.
    unsafe { libc::setrlimit64(libc::RLIMIT_MSGQUEUE, std::ptr::from_ref(limit)) };
}
