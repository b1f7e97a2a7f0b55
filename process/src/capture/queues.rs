//! Receive queues of sockets, read without taking anything out.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::options::{option_i32, set_option_i32};

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

/// Why datagrams cannot be put into the queue again as they were: their receiver can see the
/// address or the credentials of the sender. Its peer has this address.
pub(super) fn sender_is_known(
    socket: &OwnedFd,
    messages: &[Message],
    peer: &[u8],
) -> Option<&'static str> {
    if messages.is_empty() {
        return None;
    }
    if option_i32(socket, libc::SOL_SOCKET, libc::SO_PASSCRED).unwrap_or(0) != 0 {
        return Some("unread datagrams that carry their senders' credentials");
    }
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

/// All that lies in the receive queue of a socket.
pub(super) fn peek_all(socket: &OwnedFd, kind: i32) -> io::Result<Vec<Message>> {
    let fd = socket.as_raw_fd();
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut waiting) } != 0 || waiting == 0 {
        return Ok(Vec::new());
    }
    let old = option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF).unwrap_or(-1);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, 0)?;
    let result = peek_from_offset(fd, kind);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, old)?;
    result
}

fn peek_from_offset(fd: RawFd, kind: i32) -> io::Result<Vec<Message>> {
    let mut messages: Vec<Message> = Vec::new();
    let mut buffer = vec![0u8; 256 << 10];
    loop {
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
        // SAFETY: all parts of the header live.
        let got = unsafe {
            libc::recvmsg(
                fd,
                &raw mut header,
                libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
            )
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock {
                Ok(messages)
            } else {
                Err(error)
            };
        }
        let descriptors = passed_descriptors(&header);
        // Of a datagram socket it is no end, but an empty datagram.
        if got == 0 && kind != libc::SOCK_DGRAM {
            return Ok(messages);
        }
        let bytes = &buffer[..got as usize];
        match (kind, messages.last_mut()) {
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
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut waiting) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if waiting <= 0 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0u8; waiting as usize];
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
