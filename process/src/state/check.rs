//! Checks of a description before it is used.

use std::collections::HashSet;

use super::{Backing, FileKind, ObjectKind, Process, SocketState, Thread, Tree};
use crate::procfs::Layout;
use crate::store::PAGE_BYTES;

/// End of the user's half of the address space (five-level paging is not used).
pub const TASK_END: u64 = 0x7fff_ffff_f000;
const PID_MAX: i32 = 1 << 22;
const DESCRIPTOR_MAX: i32 = 1 << 20;
const SIGNAL_MAX: u8 = 64;
const SIGINFO_BYTES: usize = 128;
const XSTATE_BYTES_MAX: u32 = 64 << 10;
const MEMORY_NODE_WORDS_MAX: usize = 16;
const QUEUE_MAX: usize = 1 << 20;

/// How a description contradicts itself.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Invalid {
    #[error("it has no process")]
    Empty,
    #[error("{what} {number} is out of range")]
    Range { what: &'static str, number: i64 },
    #[error("{what} {number} occurs twice")]
    Twice { what: &'static str, number: i64 },
    #[error("process {pid} comes before its parent {parent}")]
    Order { pid: i32, parent: i32 },
    #[error("process {pid}: the mapping at {start:#x} {why}")]
    Mapping {
        pid: i32,
        start: u64,
        why: &'static str,
    },
    #[error("{what} refers to {of} {index}, of which there are {count}")]
    Index {
        what: String,
        of: &'static str,
        index: u32,
        count: usize,
    },
    #[error("{what} is {why}")]
    Bad { what: String, why: &'static str },
}

/// Checks all numbers, ranges and references of a tree.
///
/// # Errors
/// The first contradiction.
pub fn validate(tree: &Tree) -> Result<(), Invalid> {
    if tree.processes.is_empty() {
        return Err(Invalid::Empty);
    }
    let mut pids = HashSet::new();
    let mut tids = HashSet::new();
    for process in &tree.processes {
        number("process", process.pid, 1, PID_MAX)?;
        if process.parent != 0 && !pids.contains(&process.parent) {
            return Err(Invalid::Order {
                pid: process.pid,
                parent: process.parent,
            });
        }
        unique(&mut pids, "process", process.pid)?;
        number("process group", process.group, 0, PID_MAX)?;
        number("session", process.session, 0, PID_MAX)?;
        if process.zombie.is_some() {
            continue;
        }
        for thread in &process.threads {
            number("thread", thread.tid, 1, PID_MAX)?;
            unique(&mut tids, "thread", thread.tid)?;
        }
        validate_process(tree, process)?;
    }
    for pid in &tree.dead {
        number("process", *pid, 1, PID_MAX)?;
        unique(&mut pids, "process", *pid)?;
    }
    validate_files(tree)
}

fn validate_process(tree: &Tree, process: &Process) -> Result<(), Invalid> {
    let pid = process.pid;
    if process
        .threads
        .first()
        .is_none_or(|thread| thread.tid != pid)
    {
        return Err(Invalid::Bad {
            what: format!("process {pid}"),
            why: "without its main thread",
        });
    }
    index(tree.images.len(), "image", process.executable, || {
        format!("process {pid}")
    })?;
    number("stop signal", process.stopped, 0, i32::from(SIGNAL_MAX))?;
    path(&process.directory, "current directory")?;
    if let Some(root) = &process.root {
        path(root, "root directory")?;
    }
    number("exit signal", process.exit_signal, 0, i32::from(SIGNAL_MAX))?;
    number("limit count", process.limits.len() as i32, 0, 64)?;
    layout(pid, &process.layout)?;
    validate_mappings(tree, process)?;
    let mut last = -1;
    for descriptor in &process.descriptors {
        number("descriptor", descriptor.number, last + 1, DESCRIPTOR_MAX)?;
        last = descriptor.number;
        index(tree.files.len(), "file", descriptor.file, || {
            format!("descriptor {} of process {pid}", descriptor.number)
        })?;
    }
    for action in &process.actions {
        number("signal", i32::from(action.signal), 1, i32::from(SIGNAL_MAX))?;
    }
    for timer in &process.timers {
        number("timer", timer.id, 0, i32::MAX)?;
    }
    let queues = process.threads.iter().map(|thread| &thread.pending);
    for queue in queues.chain([&process.pending]) {
        if queue.len() > QUEUE_MAX || queue.iter().any(|info| info.0.len() != SIGINFO_BYTES) {
            return Err(Invalid::Bad {
                what: format!("signal queue of {pid}"),
                why: "malformed",
            });
        }
    }
    process.threads.iter().try_for_each(validate_thread)
}

fn validate_mappings(tree: &Tree, process: &Process) -> Result<(), Invalid> {
    let pid = process.pid;
    let mut end = 0;
    for mapping in &process.mappings {
        let wrong = |why| {
            Err(Invalid::Mapping {
                pid,
                start: mapping.start,
                why,
            })
        };
        if mapping.start % PAGE_BYTES != 0
            || mapping.end % PAGE_BYTES != 0
            || mapping.offset % PAGE_BYTES != 0
        {
            return wrong("does not lie on page boundaries");
        }
        if mapping.start < end || mapping.end <= mapping.start {
            return wrong("overlaps another, or has no length");
        }
        if mapping.end > TASK_END {
            return wrong("ends outside of user space");
        }
        if mapping
            .offset
            .checked_add(mapping.end - mapping.start)
            .is_none()
        {
            return wrong("has an impossible offset");
        }
        if !matches!(mapping.huge_page_bytes, 0 | 0x20_0000 | 0x4000_0000) {
            return wrong("has pages of an unknown size");
        }
        if i32::from(mapping.protection) & !7 != 0 {
            return wrong("has an unknown protection");
        }
        end = mapping.end;
        let what = || format!("mapping {:#x} of process {pid}", mapping.start);
        match mapping.backing {
            Backing::Image { image, .. } => index(tree.images.len(), "image", image, what)?,
            Backing::Object(object) => index(tree.objects.len(), "object", object, what)?,
            Backing::SystemV { object, .. } => {
                index(tree.objects.len(), "object", object, what)?;
                if !matches!(
                    tree.objects[object as usize].kind,
                    ObjectKind::SystemV { .. }
                ) {
                    return wrong("is of no System V segment");
                }
                if mapping.offset > mapping.start {
                    return wrong("has an impossible offset");
                }
            }
            Backing::AioRing { events, ring } => {
                index(tree.rings.len(), "ring", ring, what)?;
                let ring = &tree.rings[ring as usize];
                if ring.head >= events || ring.unread.len() >= events as usize {
                    return wrong("has more events than room for them");
                }
            }
            // Checked with the rings.
            Backing::Uring(_) => {}
            Backing::Anonymous | Backing::Kernel(_) => {}
        }
    }
    Ok(())
}

fn validate_thread(thread: &Thread) -> Result<(), Invalid> {
    if thread.xstate_bytes > XSTATE_BYTES_MAX || thread.xstate.len() > thread.xstate_bytes as usize
    {
        return Err(Invalid::Bad {
            what: format!("register state of thread {}", thread.tid),
            why: "too long",
        });
    }
    let registers = &thread.registers;
    for address in [registers.fs_base, registers.gs_base, registers.rip] {
        // An address beyond would be a general protection fault of ours.
        if address > TASK_END {
            return Err(Invalid::Bad {
                what: format!("a register of thread {}", thread.tid),
                why: "an address outside of user space",
            });
        }
    }
    if thread.settings.memory_nodes.len() > MEMORY_NODE_WORDS_MAX {
        return Err(Invalid::Bad {
            what: format!("memory policy of thread {}", thread.tid),
            why: "too long",
        });
    }
    if thread.name.len() > 15 || thread.name.contains(&0) {
        return Err(Invalid::Bad {
            what: format!("name of {}", thread.tid),
            why: "too long",
        });
    }
    Ok(())
}

fn validate_files(tree: &Tree) -> Result<(), Invalid> {
    for image in tree.images.iter().chain(&tree.written) {
        path(&image.path, "path of an image")?;
    }
    for (at, file) in tree.files.iter().enumerate() {
        let what = || format!("file {at}");
        match &file.kind {
            FileKind::Image(image) => index(tree.images.len(), "image", *image, what)?,
            FileKind::Object(object) => index(tree.objects.len(), "object", *object, what)?,
            FileKind::Pipe(pipe) => index(tree.pipes.len(), "pipe", *pipe, what)?,
            FileKind::Socket(socket) => index(tree.sockets.len(), "socket", *socket, what)?,
            FileKind::PosixQueue { queue, path: found } => {
                index(tree.posix_queues.len(), "queue", *queue, what)?;
                if let Some(found) = found {
                    path(found, "path of a message queue")?;
                }
            }
            FileKind::Inherited(descriptor) => number("inherited descriptor", *descriptor, 0, 2)?,
            FileKind::Proc(text) => path(text, "path in /proc")?,
            FileKind::Inotify { watches, .. } => {
                for watch in watches {
                    number("watch", watch.number, 1, QUEUE_MAX as i32)?;
                    path(&watch.path, "watched path")?;
                }
            }
            FileKind::Epoll(items) => {
                for item in items {
                    number("descriptor", item.descriptor, 0, DESCRIPTOR_MAX)?;
                    index(tree.files.len(), "file", item.file, what)?;
                }
            }
            // Checked with the terminals, and with the rings.
            FileKind::Master(_) | FileKind::Slave(_) | FileKind::Uring(_) => {}
            FileKind::Event { .. }
            | FileKind::Timer { .. }
            | FileKind::Signal { .. }
            | FileKind::Pid(_)
            | FileKind::DeadPid(_) => {}
        }
    }
    validate_sockets(tree)?;
    for pipe in &tree.pipes {
        if pipe.capacity > 1 << 30 || pipe.content.len() > pipe.capacity as usize {
            return Err(Invalid::Bad {
                what: "a pipe".to_owned(),
                why: "fuller than it can be",
            });
        }
        if let Some(fifo) = &pipe.path {
            path(fifo, "path of a named pipe")?;
        }
    }
    Ok(())
}

fn validate_sockets(tree: &Tree) -> Result<(), Invalid> {
    for (at, socket) in tree.sockets.iter().enumerate() {
        if let SocketState::Pair(peer) = socket.state {
            index(tree.sockets.len(), "socket", peer, || {
                format!("socket {at}")
            })?;
            if tree.sockets[peer as usize].state != SocketState::Pair(at as u32) {
                return Err(Invalid::Bad {
                    what: format!("socket {at}"),
                    why: "not its peer's peer",
                });
            }
        }
        if let SocketState::Listening { waiting, .. } = &socket.state {
            for client in waiting.iter().flatten() {
                index(tree.sockets.len(), "socket", *client, || {
                    format!("socket {at}")
                })?;
            }
        }
        if let Some(other) = socket.connected_to {
            index(tree.sockets.len(), "socket", other, || {
                format!("socket {at}")
            })?;
        }
        for (message, files) in &socket.passed {
            let what = || format!("a message of socket {at}");
            index(socket.received.len(), "message", *message, what)?;
            for file in files {
                index(tree.files.len(), "file", *file, what)?;
            }
        }
        if !socket.directory.is_empty() {
            path(&socket.directory, "directory of a socket")?;
        }
        if let SocketState::Established(connection) = &socket.state {
            let what = || format!("the connection of socket {at}");
            let long = |queue: &[u8]| queue.len() > 1 << 30;
            if connection.peer.len() > 128
                || long(&connection.receive.1)
                || long(&connection.send.1)
                || connection.unsent as usize > connection.send.1.len()
            {
                return Err(Invalid::Bad {
                    what: what(),
                    why: "too long",
                });
            }
            let scale = |scale: u8| scale > 14;
            if connection
                .window_scale
                .is_some_and(|(a, b)| scale(a) || scale(b))
            {
                return Err(Invalid::Bad {
                    what: what(),
                    why: "with an impossible window scale",
                });
            }
        }
        if socket.address.len() > 128 {
            return Err(Invalid::Bad {
                what: format!("address of socket {at}"),
                why: "too long",
            });
        }
    }
    Ok(())
}

fn layout(pid: i32, layout: &Layout) -> Result<(), Invalid> {
    if layout.addresses().iter().any(|&address| address > TASK_END) {
        return Err(Invalid::Bad {
            what: format!("memory layout of process {pid}"),
            why: "outside of user space",
        });
    }
    Ok(())
}

pub(super) fn number(what: &'static str, number: i32, min: i32, max: i32) -> Result<(), Invalid> {
    if (min..=max).contains(&number) {
        Ok(())
    } else {
        Err(Invalid::Range {
            what,
            number: i64::from(number),
        })
    }
}

pub(super) fn unique(
    seen: &mut HashSet<i32>,
    what: &'static str,
    number: i32,
) -> Result<(), Invalid> {
    if seen.insert(number) {
        Ok(())
    } else {
        Err(Invalid::Twice {
            what,
            number: i64::from(number),
        })
    }
}

pub(super) fn index(
    count: usize,
    of: &'static str,
    index: u32,
    what: impl FnOnce() -> String,
) -> Result<(), Invalid> {
    if (index as usize) < count {
        Ok(())
    } else {
        Err(Invalid::Index {
            what: what(),
            of,
            index,
            count,
        })
    }
}

pub(super) fn path(text: &str, what: &'static str) -> Result<(), Invalid> {
    if text.starts_with('/') && text.len() < 4096 && !text.contains('\0') {
        Ok(())
    } else {
        Err(Invalid::Bad {
            what: what.to_owned(),
            why: "not an absolute path",
        })
    }
}
