//! POSIX message queues.
//!
//! The kernel shows a message of a queue only to a process that takes it. So all are taken and put back,
//! in the order of their priorities, while all processes that have the queue open are stopped. A
//! queue that a process outside of the tree has open is refused before anything is taken.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::files::Open;
use super::objects::DELETED;
use super::{Builder, Error};
use crate::procfs;
use crate::ptrace::Pid;
use crate::state::{FileKind, PosixQueue};

const MQUEUE_MAGIC: i64 = 0x1980_0202;

/// A registration that was met, without its value.
#[derive(Debug)]
pub(super) struct Registered {
    /// The queue: index, and open for both directions.
    pub queue: u32,
    pub file: File,
    /// The process, the kind (`SIGEV_*`), and the signal.
    pub pid: Pid,
    pub kind: i32,
    pub signal: i32,
}

impl Builder<'_> {
    /// Whether a descriptor is that of a queue.
    pub(super) fn is_posix_queue(&self, open: &Open<'_>) -> bool {
        let link = format!("/proc/{}/fd/{}", self.pid, open.number);
        open.metadata.is_file()
            && rustix::fs::statfs(link).is_ok_and(|system| system.f_type == MQUEUE_MAGIC)
    }

    /// Describes the queue behind a descriptor.
    pub(super) fn posix_queue(&mut self, open: &Open<'_>) -> Result<Option<FileKind>, Error> {
        let path = open.link.strip_suffix(DELETED).unwrap_or(open.link);
        let name = path.rsplit('/').next().unwrap_or(path);
        // What `mq_open` has opened is in a mount of the kernel's own.
        let path = (path.rfind('/') != Some(0)).then(|| path.to_owned());
        let inode = open.metadata.ino();
        if let Some(&queue) = self.posix_queue_index.get(&inode) {
            return Ok(Some(FileKind::PosixQueue { queue, path }));
        }
        let what = format!("fd {} is the POSIX message queue /{name}", open.number);
        let key = (open.metadata.dev(), inode);
        if let Some((pid, program)) = others_with_file(key, &self.pids) {
            self.refuse(format!(
                "{what}, which process {pid} ({program}) has open, too, which is not of the tree"
            ));
            return Ok(None);
        }
        let failed = || self.failed(format!("read the POSIX message queue /{name}"));
        // Its descriptor may be for writing only.
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/{}/fd/{}", self.pid, open.number))
            .map_err(failed())?;
        let registration = registered(&mut file).map_err(failed())?;
        let (messages_max, message_bytes_max) = sizes(&file).map_err(failed())?;
        let messages = match registration {
            None => copies(&file, message_bytes_max as usize).map_err(failed())?,
            // A message that is put into the empty queue would end it: see there.
            Some((pid, kind, signal)) => {
                self.registered.push(Registered {
                    queue: self.tree.posix_queues.len() as u32,
                    file,
                    pid,
                    kind,
                    signal,
                });
                Vec::new()
            }
        };
        let queue = self.tree.posix_queues.len() as u32;
        self.tree.posix_queues.push(PosixQueue {
            name: name.to_owned(),
            removed: open.metadata.nlink() == 0,
            mode: open.metadata.mode() & 0o7777,
            owner: (open.metadata.uid(), open.metadata.gid()),
            messages_max,
            message_bytes_max,
            messages,
            notification: None,
        });
        self.posix_queue_index.insert(inode, queue);
        Ok(Some(FileKind::PosixQueue { queue, path }))
    }
}

/// A process that has a file (device and inode) open and is neither the tracker nor one of these.
pub(crate) fn others_with_file(file: (u64, u64), own: &[Pid]) -> Option<(Pid, String)> {
    let tracker = std::process::id() as Pid;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let has_it = |pid: &Pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        descriptors.into_iter().flatten().flatten().any(|entry| {
            let found = fs::metadata(entry.path());
            found.is_ok_and(|found| (found.dev(), found.ino()) == file)
        })
    };
    let other = pids
        .filter(|pid| *pid != tracker && !own.contains(pid))
        .find(has_it)?;
    let name = procfs::stat(other, other).map_or_else(|_| String::new(), |stat| stat.name);
    Some((other, name))
}

/// The process that is registered for a notification, the kind, and the signal.
fn registered(file: &mut File) -> io::Result<Option<(Pid, i32, i32)>> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    // QSIZE:129        NOTIFY:0     SIGNO:10    NOTIFY_PID:8260
    let field = |name: &str| {
        let mut words = text.split_ascii_whitespace();
        let word = words.find_map(|word| word.strip_prefix(name)?.parse::<i32>().ok());
        word.ok_or_else(|| io::Error::other(format!("its state has no {name}")))
    };
    let pid = field("NOTIFY_PID:")?;
    let how = (pid, field("NOTIFY:")?, field("SIGNO:")?);
    Ok((pid != 0).then_some(how))
}

/// Room of a queue: messages, and bytes of each.
pub(crate) fn sizes(file: &impl AsRawFd) -> io::Result<(u64, u64)> {
    // SAFETY: a structure of numbers, which the kernel fills.
    let attributes = unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        if libc::mq_getattr(file.as_raw_fd(), &raw mut attributes) != 0 {
            return Err(io::Error::last_os_error());
        }
        attributes
    };
    Ok((attributes.mq_maxmsg as u64, attributes.mq_msgsize as u64))
}

/// Copies of all messages. What was taken is back, also after an error.
fn copies(file: &File, bytes_max: usize) -> io::Result<Vec<Message>> {
    let (messages, taken) = take_all(file, bytes_max);
    put_back(file, &messages)?;
    taken.map(|()| messages)
}

/// Priority and contents.
pub(super) type Message = (u32, Vec<u8>);

/// Takes all messages, in their order; also returns those that were taken before an error.
pub(super) fn take_all(file: &File, bytes_max: usize) -> (Vec<Message>, io::Result<()>) {
    let mut buffer = vec![0u8; bytes_max];
    let mut messages = Vec::new();
    loop {
        match take(file, &mut buffer) {
            Ok(message) => messages.push(message),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (messages, Ok(())),
            Err(error) => return (messages, Err(error)),
        }
    }
}

/// Takes one message.
pub(super) fn take(file: &File, buffer: &mut [u8]) -> io::Result<Message> {
    let mut priority = 0;
    // SAFETY: the buffer has the room that is said; the priority lives.
    let got = unsafe {
        let into = buffer.as_mut_ptr().cast();
        libc::mq_receive(file.as_raw_fd(), into, buffer.len(), &raw mut priority)
    };
    match got {
        0.. => Ok((priority, buffer[..got as usize].to_vec())),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts back what was taken.
pub(super) fn put_back(file: &File, messages: &[Message]) -> io::Result<()> {
    for (priority, bytes) in messages {
        send(file.as_raw_fd(), *priority, bytes).map_err(|error| {
            io::Error::other(format!(
                "a message that was read cannot be put back: {error}"
            ))
        })?;
    }
    Ok(())
}

/// Puts a message into a queue.
pub(crate) fn send(queue: RawFd, priority: u32, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes live.
    let sent = unsafe { libc::mq_send(queue, bytes.as_ptr().cast(), bytes.len(), priority) };
    match sent {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
