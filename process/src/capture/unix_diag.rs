//! Connections between unix sockets, read by sock_diag(7).

use std::collections::HashMap;
use std::io;

use crate::netlink::{attributes, word};
use crate::sock_diag::{self, DUMP, Reported, SOCK_DIAG_BY_FAMILY};

const UDIAG_SHOW_VFS: u32 = 2;
const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_ICONS: u32 = 8;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UNIX_DIAG_VFS: u16 = 1;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_ICONS: u16 = 3;
const UNIX_DIAG_RQLEN: u16 = 4;
const UNIX_DIAG_SHUTDOWN: u16 = 6;
const MESSAGE_BYTES: usize = 16;

/// A unix socket as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnixSocket {
    /// As of TCP: 1 connected, 7 not connected, 10 listening.
    pub state: u8,
    /// Inode of the socket it is connected to; 0: none.
    pub peer: u64,
    /// Of a listening socket: its backlog.
    pub backlog: u32,
    /// Inode number of the file that it is bound to; 0: none.
    pub file: u64,
    /// Shut down for: 1 reading, 2 writing, 3 both.
    pub shutdown: u8,
    /// Of a listening socket: the inodes of clients that it has not accepted; 0: one that is gone.
    pub waiting: Vec<u64>,
}

/// All unix sockets; needs `CONFIG_UNIX_DIAG`.
pub type Sockets = sock_diag::Sockets<UnixSocket>;

impl Reported for UnixSocket {
    fn read_all() -> io::Result<HashMap<u64, Self>> {
        read_all()
    }
}

fn read_all() -> io::Result<HashMap<u64, UnixSocket>> {
    // struct unix_diag_req: family, protocol, pad, states, inode, what to show, cookie.
    let mut request = Vec::with_capacity(24);
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&0u32.to_ne_bytes());
    request.extend_from_slice(
        &(UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN).to_ne_bytes(),
    );
    request.extend_from_slice(&[0xff; 8]);
    let mut sockets = HashMap::new();
    sock_diag::exchange(SOCK_DIAG_BY_FAMILY, DUMP, &request, |body| {
        if body.len() >= MESSAGE_BYTES {
            let (inode, socket) = parse_socket(body);
            sockets.insert(inode, socket);
        }
    })?;
    Ok(sockets)
}

fn parse_socket(body: &[u8]) -> (u64, UnixSocket) {
    // struct unix_diag_msg: family, type, state, pad, inode, cookie[2]; then attributes.
    let inode = u64::from(word(body, 4));
    let mut socket = UnixSocket {
        state: body[2],
        ..UnixSocket::default()
    };
    for (kind, value) in attributes(&body[MESSAGE_BYTES..]) {
        match kind {
            UNIX_DIAG_VFS if value.len() >= 4 => socket.file = u64::from(word(value, 0)),
            UNIX_DIAG_PEER if value.len() >= 4 => socket.peer = u64::from(word(value, 0)),
            UNIX_DIAG_ICONS => {
                let inodes = value.chunks_exact(4).map(|inode| u64::from(word(inode, 0)));
                socket.waiting = inodes.collect();
            }
            UNIX_DIAG_RQLEN if value.len() >= 8 => socket.backlog = word(value, 4),
            UNIX_DIAG_SHUTDOWN if !value.is_empty() => socket.shutdown = value[0] & 3,
            _ => {}
        }
    }
    (inode, socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
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
            .expect("the kernel has unix_diag")
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
            .expect("the kernel has unix_diag")
            .expect("it is there");
        assert_eq!(found.backlog, 77);
    }
}
