//! Who is connected with whom among unix sockets: asked from the kernel by sock_diag(7).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_VFS: u32 = 2;
const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_RQLEN: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// A unix socket as the kernel tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnixSocket {
    /// Inode of the socket it is connected to; 0: none.
    pub peer: u64,
    /// Of a listening socket: its backlog.
    pub backlog: u32,
    /// Inode number of the file that it is bound to; 0: none.
    pub file: u64,
}

/// All unix sockets of the network namespace, by inode; read once, when first asked for.
#[derive(Debug, Default)]
pub struct Sockets(Option<HashMap<u64, UnixSocket>>);

impl Sockets {
    /// The socket with this inode.
    ///
    /// # Errors
    /// The kernel cannot tell (`CONFIG_UNIX_DIAG`).
    pub fn get(&mut self, inode: u64) -> io::Result<Option<&UnixSocket>> {
        if self.0.is_none() {
            self.0 = Some(ask()?);
        }
        Ok(self.0.as_ref().and_then(|sockets| sockets.get(&inode)))
    }
}

fn ask() -> io::Result<HashMap<u64, UnixSocket>> {
    // SAFETY: no memory involved; the descriptor is new and ours.
    let socket = unsafe {
        let fd = libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_SOCK_DIAG,
        );
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut request = Vec::with_capacity(40);
    // struct nlmsghdr, struct unix_diag_req.
    request.extend_from_slice(&40u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&0u32.to_ne_bytes());
    request.extend_from_slice(&(UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN).to_ne_bytes());
    request.extend_from_slice(&[0xff; 8]);
    // SAFETY: the request lives.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut sockets = HashMap::new();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        // SAFETY: the buffer lives and is as long as said.
        let got = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        if parse(&buffer[..got as usize], &mut sockets)? {
            return Ok(sockets);
        }
    }
}

/// Reads one datagram of answers. True: it was the last.
fn parse(mut bytes: &[u8], into: &mut HashMap<u64, UnixSocket>) -> io::Result<bool> {
    while bytes.len() >= HEADER_BYTES {
        let length = word(bytes, 0) as usize;
        let kind = half(bytes, 4);
        if length < HEADER_BYTES || length > bytes.len() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let body = &bytes[HEADER_BYTES..length];
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let error = body
                    .first_chunk::<4>()
                    .map_or(libc::EIO, |code| -i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(error));
            }
            _ if body.len() >= MESSAGE_BYTES => {
                let (inode, socket) = parse_socket(body);
                into.insert(inode, socket);
            }
            _ => {}
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(false)
}

fn parse_socket(body: &[u8]) -> (u64, UnixSocket) {
    // struct unix_diag_msg: family, type, state, pad, inode, cookie[2]; then attributes.
    let inode = u64::from(word(body, 4));
    let mut socket = UnixSocket::default();
    let mut attributes = &body[MESSAGE_BYTES..];
    while attributes.len() >= 4 {
        let length = usize::from(half(attributes, 0));
        if length < 4 || length > attributes.len() {
            break;
        }
        let value = &attributes[4..length];
        match half(attributes, 2) {
            UNIX_DIAG_VFS if value.len() >= 4 => socket.file = u64::from(word(value, 0)),
            UNIX_DIAG_PEER if value.len() >= 4 => socket.peer = u64::from(word(value, 0)),
            UNIX_DIAG_RQLEN if value.len() >= 8 => socket.backlog = word(value, 4),
            _ => {}
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    (inode, socket)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn inode(socket: &impl AsRawFd) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd()))
            .expect("open")
            .ino()
    }

    #[test]
    fn the_two_ends_of_a_pair_know_each_other() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let mut sockets = Sockets::default();
        let found = sockets
            .get(inode(&one))
            .expect("the kernel tells")
            .expect("it is there");
        assert_eq!(found.peer, inode(&other));
    }

    #[test]
    fn a_listening_socket_has_its_backlog() {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("bound");
        // SAFETY: no memory involved.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 77) }, 0);
        let mut sockets = Sockets::default();
        let found = sockets
            .get(inode(&listener))
            .expect("the kernel tells")
            .expect("it is there");
        assert_eq!(found.backlog, 77);
    }
}
