//! Removes what the kernel still keeps of a connection whose program was killed: an end that waits
//! for the acknowledgement of its last byte occupies the place of the restored connection. Unix sockets
//! that lie in each other's queues keep their names until the kernel finds them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use crate::netlink::word;
use crate::sock_diag::{self, DUMP, ONE, SOCK_DESTROY, SOCK_DIAG_BY_FAMILY};
use crate::state::Socket;

/// Where `struct inet_diag_msg` has the socket's cookie and inode.
const COOKIE_AT: usize = 44;
const INODE_AT: usize = 68;
const MESSAGE_BYTES: usize = 72;
/// Where `struct inet_diag_req_v2` has the cookie.
const REQUEST_COOKIE_AT: usize = 48;
/// The kernel looks for such sockets in the background.
const COLLECTED_WITHIN: Duration = Duration::from_secs(2);
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

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

/// Ends a TCP connection of ours.
///
/// # Errors
/// As of [`remove`].
pub fn end(socket: &Socket, peer: &[u8], made: &OwnedFd) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut request = request(socket.family, &socket.address, peer).ok_or_else(invalid)?;
    let cookie = rustix::net::sockopt::socket_cookie(made)?;
    request[REQUEST_COOKIE_AT..][..8].copy_from_slice(&cookie.to_ne_bytes());
    sock_diag::exchange(SOCK_DESTROY, ONE, &request, |_| {})
}

/// Removes ends of TCP connections at the port of a socket that no program has any more: they are in the
/// way of one that did not ask to share it. How many.
///
/// # Errors
/// As of [`remove`].
pub fn remove_at_port(socket: &Socket) -> io::Result<usize> {
    let port = socket.address.get(2..4).unwrap_or(&[]);
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
        request.extend([0xff; 4]);
        request.resize(REQUEST_COOKIE_AT + 8, 0);
        let asked = sock_diag::exchange(SOCK_DIAG_BY_FAMILY, DUMP, &request, |body| {
            if body.len() >= MESSAGE_BYTES && body[4..6] == *port && word(body, INODE_AT) == 0 {
                // The same socket as the request to end it names it.
                let mut one = vec![body[0], libc::IPPROTO_TCP as u8, 0, 0];
                one.extend([0xff; 4]);
                one.extend(&body[4..COOKIE_AT + 8]);
                found.push(one);
            }
        });
        gone_or(asked)?;
    }
    for one in &found {
        gone_or(sock_diag::exchange(SOCK_DESTROY, ONE, one, |_| {}))?;
    }
    Ok(found.len())
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

/// Binds a unix socket to a name that is in use, perhaps by one that only a message in a queue holds,
/// and that is in a circle of such sockets. Each end of a unix socket has the kernel look for those.
///
/// # Errors
/// Those of `bind`: another program has the name.
pub fn when_collected(bind: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let started = Instant::now();
    loop {
        drop(UnixDatagram::unbound()?);
        match bind() {
            Err(error)
                if error.raw_os_error() == Some(libc::EADDRINUSE)
                    && started.elapsed() < COLLECTED_WITHIN =>
            {
                std::thread::sleep(BETWEEN_TRIES);
            }
            bound => return bound,
        }
    }
}
