//! Removes what the kernel still keeps of a connection whose program was killed: an end that waits
//! for the acknowledgement of its last byte occupies the place of the restored connection.

use std::io;

use crate::sock_diag::{self, ONE, SOCK_DESTROY, SOCK_DIAG_BY_FAMILY, word};
use crate::state::Socket;

/// Where `struct inet_diag_msg` has the socket's cookie and inode.
const COOKIE_AT: usize = 44;
const INODE_AT: usize = 68;
const MESSAGE_BYTES: usize = 72;
/// Where `struct inet_diag_req_v2` has the cookie.
const REQUEST_COOKIE_AT: usize = 48;

/// Removes an end of a TCP connection between these two addresses that no program has any more.
/// False: a program has it.
///
/// # Errors
/// The kernel lacks `CONFIG_INET_DIAG`, or cannot remove a socket (`CONFIG_INET_DIAG_DESTROY`,
/// `CAP_NET_ADMIN`).
pub fn remove(socket: &Socket, peer: &[u8]) -> io::Result<bool> {
    let mut request = request(socket.family, &socket.address, peer)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut found = None;
    let asked = sock_diag::exchange(SOCK_DIAG_BY_FAMILY, ONE, &request, |body| {
        if body.len() >= MESSAGE_BYTES {
            let cookie: [u8; 8] = body[COOKIE_AT..][..8].try_into().expect("eight bytes");
            found = Some((word(body, INODE_AT), cookie));
        }
    });
    gone_or(asked)?;
    match found {
        None => Ok(true),
        Some((0, cookie)) => {
            request[REQUEST_COOKIE_AT..][..8].copy_from_slice(&cookie);
            gone_or(sock_diag::exchange(SOCK_DESTROY, ONE, &request, |_| {}))?;
            Ok(true)
        }
        Some(_) => Ok(false),
    }
}

/// It goes by itself, too, and may leave another end that waits (`ESTALE`).
fn gone_or(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => Ok(()),
        done => done,
    }
}

/// `struct inet_diag_req_v2`: family, protocol, extensions, pad, states; then the connection's
/// ports, addresses, interface and cookie. None: they are no addresses.
fn request(family: i32, local: &[u8], peer: &[u8]) -> Option<Vec<u8>> {
    let (at, bytes) = match family {
        libc::AF_INET => (4, 4),
        libc::AF_INET6 => (8, 16),
        _ => return None,
    };
    let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend([0xff; 4]);
    for end in [local, peer] {
        request.extend(end.get(2..4)?);
    }
    for end in [local, peer] {
        let mut address = [0; 16];
        address[..bytes].copy_from_slice(end.get(at..at + bytes)?);
        request.extend(address);
    }
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    Some(request)
}
