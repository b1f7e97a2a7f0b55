//! Receive queues of sockets, read without taking anything out.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use super::options::{SO_PASSPIDFD, option_i32, set_option_i32};

const SO_PEEK_OFF: i32 = 42;

/// A message in a receive queue.
pub(super) struct Message {
    /// The sender's address; empty: it has none.
    pub from: Vec<u8>,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Descriptors that it carries: ours, of the same descriptions.
    pub descriptors: Vec<OwnedFd>,
}

/// What lies in the receive queue of a socket.
#[derive(Default)]
pub(super) struct Queue {
    pub messages: Vec<Message>,
    /// The other end has gone with something unread: once that is known, the program reads an error
    /// (ECONNRESET).
    pub reset: bool,
}

/// Why datagrams cannot be put into the queue again as they were: their receiver can see the
/// address of the sender. Its peer has this address.
pub(super) fn sender_is_known(messages: &[Message], peer: &[u8]) -> Option<&'static str> {
    // What carries descriptors, its peer sends again.
    let named = messages
        .iter()
        .filter(|message| message.descriptors.is_empty() || message.from != peer)
        .any(|message| message.from.len() > 2);
    named.then_some("unread datagrams from a sender that has an address")
}

/// A datagram of UDP as the description holds it: the length of the sender's address, the address,
/// the datagram.
pub(super) fn with_sender(message: &Message) -> Vec<u8> {
    let mut bytes = vec![message.from.len() as u8];
    bytes.extend_from_slice(&message.from);
    bytes.extend_from_slice(&message.bytes);
    bytes
}

/// Unix sockets, by inode, in the queue of which there was an empty message since it was empty. The kernel
/// shows such a message to a reader at an offset once, and skips it from then on.
static EMPTY_MESSAGES: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Keeps in mind whether there are empty messages in the queue of a unix socket; returns whether there were.
fn empty_messages(inode: u64, now: Option<bool>) -> bool {
    let known = EMPTY_MESSAGES.lock();
    let mut known = known.unwrap_or_else(PoisonError::into_inner);
    match now {
        Some(true) => !known.insert(inode),
        Some(false) => known.remove(&inode),
        None => known.contains(&inode),
    }
}

/// All that lies in the receive queue of a unix or UDP socket, or why it cannot be put into a queue again.
/// An error that waits for the program stays: a call that finds it would take it away.
pub(super) fn peek_all(
    socket: &OwnedFd,
    (family, inode): (i32, u64),
    kind: i32,
) -> io::Result<Result<Queue, &'static str>> {
    let seen = events(socket, libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP);
    let (failed, unread) = (seen & libc::POLLERR != 0, seen & libc::POLLIN != 0);
    let is_unix = family == libc::AF_UNIX;
    if is_unix && seen & libc::POLLPRI != 0 {
        return Ok(Err("unread data that was sent out of band (MSG_OOB)"));
    }
    // Of datagrams, these are those of the first one.
    let bytes = match kind {
        libc::SOCK_DGRAM => 0,
        _ => waiting_bytes(socket)?,
    };
    match kind {
        // It would be found before the messages.
        libc::SOCK_DGRAM if failed && (is_unix || unread) => {
            return Ok(Err("an error that the program has not read"));
        }
        libc::SOCK_SEQPACKET if failed && bytes > 0 => {
            return Ok(Err(
                "messages behind an error that the program has not read",
            ));
        }
        _ => {}
    }
    let reset = is_unix && failed;
    let is_empty = match kind {
        libc::SOCK_DGRAM => !unread,
        libc::SOCK_SEQPACKET => !unread || reset,
        _ => bytes == 0,
    };
    // Of UDP, anything may be lost.
    let has_messages = is_unix && kind != libc::SOCK_STREAM;
    if is_empty {
        if has_messages {
            empty_messages(inode, Some(false));
        }
        let messages = Vec::new();
        return Ok(Ok(Queue { messages, reset }));
    }
    if is_unix {
        for name in [libc::SO_PASSCRED, SO_PASSPIDFD] {
            let wanted = option_i32(socket, libc::SOL_SOCKET, name).unwrap_or(0) != 0;
            // Of a socket that has ended, the end can be read as well.
            if wanted && (bytes > 0 || kind == libc::SOCK_DGRAM) {
                return Ok(Err("unread data that carry their sender's credentials"));
            }
        }
    }
    if has_messages && empty_messages(inode, None) {
        return Ok(Err(
            "unread empty messages, of which only the first epoch sees how many there are",
        ));
    }
    let end = match kind {
        libc::SOCK_DGRAM => End::NoMore,
        libc::SOCK_SEQPACKET if seen & libc::POLLRDHUP == 0 => End::NoMore,
        _ => End::Bytes(bytes),
    };
    let old = option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF).unwrap_or(-1);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, 0)?;
    let result = peek_from_offset(socket.as_raw_fd(), kind, end);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, old)?;
    let messages = result?;
    if has_messages && messages.iter().any(|message| message.bytes.is_empty()) {
        empty_messages(inode, Some(true));
    }
    Ok(Ok(Queue { messages, reset }))
}

/// What poll(2) reports of a socket, beside errors and the end.
pub(super) fn events(socket: &OwnedFd, wanted: i16) -> i16 {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: wanted,
        revents: 0,
    };
    // SAFETY: one structure, which lives.
    unsafe { libc::poll(&raw mut poll, 1, 0) };
    poll.revents
}

/// Whether a message waits to be received. An error that waits stays.
pub(super) fn has_message(socket: &OwnedFd) -> bool {
    let seen = events(socket, libc::POLLIN | libc::POLLRDHUP);
    // One that is shut down for reading can always be read.
    if seen & libc::POLLRDHUP == 0 || seen & libc::POLLERR != 0 {
        return seen & libc::POLLIN != 0;
    }
    let mut byte = 0u8;
    // SAFETY: the byte lives. Of an empty message nothing is read, and there is one nevertheless.
    let got = unsafe {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags)
    };
    got >= 0
}

/// Bytes that can be read; of datagrams, those of the first one.
fn waiting_bytes(socket: &OwnedFd) -> io::Result<usize> {
    let mut bytes = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.max(0) as usize)
}

/// Where a queue ends.
#[derive(Clone, Copy)]
enum End {
    /// Where the kernel has no more messages. They may be empty.
    NoMore,
    /// After this many bytes: what follows, an end or an error, is not touched.
    Bytes(usize),
}

fn peek_from_offset(fd: RawFd, kind: i32, end: End) -> io::Result<Vec<Message>> {
    let mut messages: Vec<Message> = Vec::new();
    let mut buffer = vec![0u8; 256 << 10];
    let mut seen = 0;
    // Of a message that is longer than the buffer.
    let mut rest = 0;
    loop {
        if let End::Bytes(bytes) = end
            && seen >= bytes
        {
            return Ok(messages);
        }
        // Room for as many descriptors as a message can carry (SCM_MAX_FD).
        let mut control = [0u64; 160];
        let mut from = [0u8; 128];
        let mut vector = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: an all-zero message header is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = from.as_mut_ptr().cast();
        header.msg_namelen = from.len() as libc::socklen_t;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        let mut flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        if kind != libc::SOCK_STREAM {
            // Returns the length of a message that is longer than the buffer.
            flags |= libc::MSG_TRUNC;
        }
        // SAFETY: all parts of the header live.
        let got = unsafe { libc::recvmsg(fd, &raw mut header, flags) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock {
                Ok(messages)
            } else {
                Err(error)
            };
        }
        let descriptors = passed_descriptors(&header);
        let (long, got) = (got as usize, (got as usize).min(buffer.len()));
        if got == 0 && (kind == libc::SOCK_STREAM || rest > 0) {
            return Ok(messages);
        }
        seen += got;
        let bytes = &buffer[..got];
        match (kind, messages.last_mut()) {
            // The kernel goes on inside of a message.
            (_, Some(message)) if rest > 0 => {
                message.bytes.extend_from_slice(bytes);
                rest = long - got;
                continue;
            }
            // A program reads no further than to the end of what carries descriptors.
            (libc::SOCK_STREAM, Some(stream))
                if descriptors.is_empty() && stream.descriptors.is_empty() =>
            {
                stream.bytes.extend_from_slice(bytes);
            }
            _ => messages.push(Message {
                from: from[..(header.msg_namelen as usize).min(from.len())].to_vec(),
                bytes: bytes.to_vec(),
                descriptors,
            }),
        }
        rest = long - got;
    }
}

/// Peeking duplicates descriptors that are being passed.
fn passed_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel filled the control buffer, which lives, and said how much of it. The
    // descriptors in it are new and ours.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let count = ((*control).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for at in 0..count {
                    all.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    all
}

/// What a TCP socket that has ended has received. No more is read: an error that waits for the program
/// would be taken away.
pub(super) fn peek_rest(socket: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let waiting = waiting_bytes(socket)?;
    if waiting == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0u8; waiting];
    // SAFETY: the buffer is valid for its length.
    let got = unsafe {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        libc::recv(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(got as usize);
    Ok(vec![bytes])
}
