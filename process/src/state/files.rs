//! Open files, pipes and sockets.

use serde::{Deserialize, Serialize};

/// A descriptor of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// Closed by `execve`.
    pub close_on_exec: bool,
    /// The open file description: an index.
    pub file: u32,
}

/// An open file description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// What it is.
    pub kind: FileKind,
    /// Access mode and status flags (`F_GETFL`).
    pub flags: u32,
    /// Offset, bytes.
    pub position: u64,
    /// Receiver of SIGIO: type (`F_OWNER_*`), number and signal; number 0: none.
    pub owner: (i32, i32, i32),
    /// A lock of `flock`: exclusive (true) or shared.
    pub lock: Option<bool>,
    /// Record locks of the description itself (`F_OFD_SETLK`).
    pub records: Vec<DescriptionLock>,
    /// A lease of the file (`F_SETLEASE`).
    pub lease: Option<Lease>,
}

/// A lease of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lease {
    /// For reading: others may read.
    Read,
    /// For writing: others may do nothing.
    Write,
    /// One for writing, that another process has begun to break: it wants to read.
    WriteToRead,
    /// One for reading, that another process has begun to break: it wants to write.
    ReadToNone,
    /// One for writing, that another process has begun to break: it wants to write.
    WriteToNone,
}

/// A record lock that belongs to an open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptionLock {
    /// Exclusive, or shared.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Length, bytes; 0: to the end of the file.
    pub bytes: u64,
}

/// Kinds of open files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// The tracker's own descriptor of this number: at restore, the new tracker's.
    Inherited(i32),
    /// A file, directory or device on disk: index of an image.
    Image(u32),
    /// A file of /proc: by path, opened anew by its process.
    Proc(String),
    /// The master side of a pseudo-terminal: index.
    Master(u32),
    /// The slave side of a pseudo-terminal of the tree: index.
    Slave(u32),
    /// A shared-memory object: index.
    Object(u32),
    /// An end of a pipe: index, and whether this description writes. Of a named pipe, both may
    /// be the case (`O_RDWR`).
    Pipe(u32),
    /// A socket: index.
    Socket(u32),
    /// A POSIX message queue.
    PosixQueue {
        /// Index.
        queue: u32,
        /// In a mounted file system of message queues: its path there. None: by its name.
        path: Option<String>,
    },
    /// `eventfd`.
    Event {
        /// Its counter.
        count: u64,
        /// `EFD_SEMAPHORE`.
        semaphore: bool,
    },
    /// `epoll`.
    Epoll(Vec<EpollItem>),
    /// `timerfd`.
    Timer {
        /// `CLOCK_*`.
        clock: i32,
        /// Flags of `timerfd_settime`.
        flags: u32,
        /// Time until it fires, nanoseconds; 0: not armed.
        remaining_ns: u64,
        /// Of a timer for a time of day: that, in nanoseconds since 1970; 0: it is none.
        wall_clock_ns: u64,
        /// Period, nanoseconds.
        interval_ns: u64,
        /// Times that it fired and was not read.
        ticks: u64,
    },
    /// `signalfd`.
    Signal {
        /// Signals that it takes.
        mask: u64,
    },
    /// `inotify`.
    Inotify {
        /// What it watches.
        watches: Vec<InotifyWatch>,
        /// There were unread events; they are lost.
        unread: bool,
    },
    /// A ring of io_uring: index.
    Uring(u32),
    /// `pidfd` of a process of the tree.
    Pid(i32),
    /// `pidfd` of a process that has ended and was waited for; those of one number are of the same.
    DeadPid(u32),
}

/// What an epoll instance waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpollItem {
    /// The descriptor under which it was added. It may be closed by now, or lead elsewhere.
    pub descriptor: i32,
    /// The open file description: an index.
    pub file: u32,
    /// `EPOLL*`.
    pub events: u32,
    /// The program's word.
    pub data: u64,
}

/// What an inotify instance watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InotifyWatch {
    /// Its number.
    pub number: i32,
    /// What it watches.
    pub path: String,
    /// `IN_*`.
    pub mask: u32,
}

/// A pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// What was written and not read.
    pub content: Vec<u8>,
    /// Room, bytes (`F_GETPIPE_SZ`).
    pub capacity: u32,
    /// A named pipe: its path.
    pub path: Option<String>,
}

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// `AF_UNIX`, `AF_INET`, `AF_INET6`.
    pub family: i32,
    /// `SOCK_STREAM`, `SOCK_DGRAM`, `SOCK_SEQPACKET`.
    pub kind: i32,
    /// Protocol.
    pub protocol: i32,
    /// In which state.
    pub state: SocketState,
    /// Its own address as a `sockaddr`; empty: none.
    pub address: Vec<u8>,
    /// Where a relative path in that begins; of a detached one, where its file is now, because the program
    /// has renamed it; empty: neither.
    pub directory: String,
    /// Options that were set: level, name, value.
    pub options: Vec<(i32, i32, Vec<u8>)>,
    /// Received and not read: one entry a datagram; of a stream, one entry in all.
    pub received: Vec<Vec<u8>>,
    /// Descriptors under way in it: of a message in `received`, the files (both are indices).
    pub passed: Vec<(u32, Vec<u32>)>,
    /// Closed for: 1 reading, 2 writing, 3 both.
    pub shutdown: u8,
    /// The path of a unix socket does not lead to it: its file was removed, or another is there.
    pub detached: bool,
    /// A unix datagram socket that is connected to this one (an index), to which no path leads.
    pub connected_to: Option<u32>,
    /// It is bound to an address that the machine did not have (`IP_FREEBIND`).
    pub absent: bool,
}

impl Socket {
    /// Where the file of a unix socket is, to which its own path does not lead.
    pub fn renamed(&self) -> Option<&str> {
        (self.detached && !self.directory.is_empty()).then_some(&self.directory)
    }
}

/// The socket of the tree that is connected to a datagram socket, and that this one is connected to.
pub fn sender_of(tree: &super::Tree, socket: &Socket) -> Option<u32> {
    let SocketState::Destination(destination) = &socket.state else {
        return None;
    };
    let back = |other: &Socket| match &other.state {
        SocketState::Destination(back) => *back == socket.address,
        _ => false,
    };
    let mut sockets = (0u32..).zip(&tree.sockets);
    let named = |other: &Socket| other.family == libc::AF_UNIX && other.address == *destination;
    let unambiguous = |other: &Socket| !other.detached && other.directory.is_empty();
    sockets
        .find(|(_, other)| named(other) && back(other) && unambiguous(other))
        .map(|(index, _)| index)
}

/// States of a [`Socket`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketState {
    /// Neither listening nor connected.
    Idle,
    /// Listening.
    Listening {
        /// Length of the queue.
        backlog: u32,
        /// Of a unix socket: clients that it has not accepted yet, by index; `None`: one that has
        /// closed its end.
        waiting: Vec<Option<u32>>,
    },
    /// Connected to another socket of the tree: its index.
    Pair(u32),
    /// A datagram socket with a default destination.
    Destination(Vec<u8>),
    /// A TCP socket that connects to this address and has no answer yet.
    Connecting(Vec<u8>),
    /// A unix socket that the listening one has not accepted.
    Waiting,
    /// A TCP socket of which both directions have ended; the other end's address. What it has received
    /// can be read.
    Closed(Vec<u8>),
    /// Was connected to something that does not survive: restored as a broken connection.
    Broken,
    /// A TCP connection that is repaired.
    Established(Box<TcpConnection>),
}

/// What TCP_REPAIR needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpConnection {
    /// The other end's `sockaddr`.
    pub peer: Vec<u8>,
    /// Sequence number after the last received byte, and what was not read yet.
    pub receive: (u32, Vec<u8>),
    /// Sequence number after the last written byte, and what was not acknowledged yet.
    pub send: (u32, Vec<u8>),
    /// Bytes at the end of the send queue that were never sent.
    pub unsent: u32,
    /// It was closed for writing: the end of the stream follows the send queue.
    pub closed: bool,
    /// Largest segment, bytes.
    pub segment_bytes: u32,
    /// Window scales, to send and to receive; `None`: not used.
    pub window_scale: Option<(u8, u8)>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Value of the time-stamp clock; `None`: time stamps are not used.
    pub timestamp: Option<u32>,
    /// `struct tcp_repair_window`, word by word.
    pub window: [u32; 5],
}
