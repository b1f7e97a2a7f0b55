//! Operations on all kinds of sockets: creation, options, addresses in readable form.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::Error;
use super::descriptors::owned;
use super::error::system;
use crate::capture::TCP_FASTOPEN_NO_COOKIE;
use crate::state::{Socket, SocketState};

pub(super) fn new(socket: &Socket) -> Result<OwnedFd, Error> {
    // SAFETY: no memory involved.
    owned(unsafe {
        libc::socket(
            socket.family,
            socket.kind | libc::SOCK_CLOEXEC,
            socket.protocol,
        )
    })
    .map_err(system("make a socket"))
}

/// Both ends of a TCP connection of this machine with itself; the second one has sent this.
fn loopback_connection(family: i32, rest: &[u8]) -> io::Result<(TcpStream, TcpStream)> {
    let listener = if family == libc::AF_INET6 {
        TcpListener::bind("[::1]:0")?
    } else {
        TcpListener::bind("127.0.0.1:0")?
    };
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    server.set_nonblocking(true)?;
    std::io::Write::write_all(&mut server, rest)?;
    Ok((client, server))
}

/// A TCP connection that was just reset by its other end, with what was received and not read.
pub(super) fn reset_connection(family: i32, rest: &[u8]) -> io::Result<OwnedFd> {
    let (client, server) = loopback_connection(family, rest)?;
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set_option(
        server.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        // SAFETY: two integers are eight bytes.
        &unsafe { std::mem::transmute::<libc::linger, [u8; 8]>(linger) },
    )?;
    drop(server);
    Ok(client.into())
}

/// A TCP connection of which both directions have ended, with what was received and not read.
pub(super) fn ended_connection(family: i32, rest: &[u8]) -> io::Result<OwnedFd> {
    let (client, server) = loopback_connection(family, rest)?;
    server.shutdown(std::net::Shutdown::Write)?;
    client.shutdown(std::net::Shutdown::Write)?;
    Ok(client.into())
}

/// The path in a unix address, if it has one.
pub(crate) fn unix_path(address: &[u8]) -> Option<String> {
    let path = address.get(2..)?;
    if path.first().is_none_or(|&first| first == 0) {
        return None;
    }
    let end = path
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(path.len());
    Some(String::from_utf8_lossy(&path[..end]).into_owned())
}

pub(super) fn set_options(socket: &Socket, made: &OwnedFd) -> Result<(), Error> {
    for (level, name, value) in &socket.options {
        // It could not be bound any more. An error is no option. A connection that is there has no use for a
        // cookie.
        let established = matches!(socket.state, SocketState::Established(_));
        if established && (*level, *name) == (libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) {
            continue;
        }
        if [
            (libc::SOL_PACKET, libc::PACKET_FANOUT),
            (libc::SOL_SOCKET, libc::SO_ERROR),
        ]
        .contains(&(*level, *name))
        {
            continue;
        }
        let set = match (*level, *name) {
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) => attach_filter(made.as_raw_fd(), value),
            // The program may have had the right to a buffer beyond the limit.
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => {
                let forced = match *name {
                    libc::SO_SNDBUF => libc::SO_SNDBUFFORCE,
                    _ => libc::SO_RCVBUFFORCE,
                };
                set_option(made.as_raw_fd(), *level, forced, value)
                    .or_else(|_| set_option(made.as_raw_fd(), *level, *name, value))
            }
            _ => set_option(made.as_raw_fd(), *level, *name, value),
        };
        if let Err(error) = set {
            if (*level, *name) == (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) {
                return Err(system("attach a packet filter to a socket")(error));
            }
            // A congestion control that this kernel lacks, a buffer beyond the limit: the socket
            // works without.
            tracing::warn!("a socket option (level {level}, number {name}) cannot be set: {error}");
        }
    }
    Ok(())
}

/// Joins the fan-out group of a packet socket that is bound.
pub(super) fn join_fanout(socket: &Socket, made: RawFd) -> Result<(), Error> {
    let mut options = socket.options.iter();
    let fanout = (libc::SOL_PACKET, libc::PACKET_FANOUT);
    match options.find(|(level, name, _)| (*level, *name) == fanout) {
        Some((level, name, value)) => {
            let failed = system("join the fan-out group of a packet socket");
            set_option(made, *level, *name, value).map_err(failed)
        }
        None => Ok(()),
    }
}

/// A packet filter, of which the instructions are given.
fn attach_filter(fd: i32, instructions: &[u8]) -> io::Result<()> {
    const BYTES: usize = size_of::<libc::sock_filter>();
    let mut filter: Vec<libc::sock_filter> = instructions
        .chunks_exact(BYTES)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidData)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions live, and the kernel copies them.
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the value is valid for its length.
    let set =
        unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Does something with room for these messages in the buffer of their sender, which the kernel charges for
/// them: how much it charges depends on how they were sent, and the buffer may have been full.
pub(super) fn with_room_to_send<T>(
    sender: RawFd,
    messages: &[Vec<u8>],
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    /// What the kernel may charge for a message beside its bytes.
    const OVERHEAD_BYTES: usize = 4096;
    let failed = || system("make room in the buffer of a socket");
    let old = integer(sender, libc::SO_SNDBUF).map_err(failed())?;
    let locked = integer(sender, libc::SO_BUF_LOCK).map_err(failed())?;
    let bytes: usize = messages.iter().map(Vec::len).sum();
    let room = 2 * (bytes + messages.len() * OVERHEAD_BYTES);
    if room <= old as usize / 2 {
        return work();
    }
    let resize = |bytes: i32| {
        let bytes = bytes.to_ne_bytes();
        set_option(sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            // Without CAP_NET_ADMIN, up to a limit.
            .or_else(|_| set_option(sender, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    };
    resize(i32::try_from(room).unwrap_or(i32::MAX / 2)).map_err(failed())?;
    let done = work()?;
    // The kernel doubles what it is given.
    resize(old / 2).map_err(failed())?;
    let locked = locked.to_ne_bytes();
    set_option(sender, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &locked).map_err(failed())?;
    Ok(done)
}

fn integer(fd: RawFd, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: the number lives, and has the length that is said.
    match unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, at, &raw mut bytes) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes the directions that were closed.
pub(super) fn shut_down(socket: &Socket, made: RawFd) -> Result<(), Error> {
    if !(1..=3).contains(&socket.shutdown) {
        return Ok(());
    }
    // SAFETY: no memory involved. 1, 2 and 3 are SHUT_RD, SHUT_WR and SHUT_RDWR plus one.
    let done = unsafe { libc::shutdown(made, i32::from(socket.shutdown) - 1) };
    let error = io::Error::last_os_error();
    // An internet datagram socket without a destination is shut down all the same.
    if done != 0 && error.raw_os_error() != Some(libc::ENOTCONN) {
        return Err(system("shut down a socket")(error));
    }
    Ok(())
}

/// An address in words.
pub(super) fn name(address: &[u8]) -> String {
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match (
        address.first().map(|&family| i32::from(family)),
        address.len(),
    ) {
        (Some(libc::AF_INET), 8..) => {
            let ip: [u8; 4] = address[4..8].try_into().expect("four bytes");
            format!("{}:{}", std::net::Ipv4Addr::from(ip), port(address))
        }
        (Some(libc::AF_INET6), 24..) => {
            let ip: [u8; 16] = address[8..24].try_into().expect("sixteen bytes");
            format!("[{}]:{}", std::net::Ipv6Addr::from(ip), port(address))
        }
        (Some(libc::AF_UNIX), _) => unix_path(address).unwrap_or_else(|| {
            format!(
                "@{}",
                String::from_utf8_lossy(address.get(3..).unwrap_or(&[]))
            )
        }),
        _ => format!("{address:02x?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_broken_connection_reads_as_reset() {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let made = reset_connection(family, b"rest").expect("a connection");
            let mut stream = TcpStream::from(made);
            let mut rest = [0u8; 4];
            stream.read_exact(&mut rest).expect("it was received");
            assert_eq!(&rest, b"rest");
            let error = stream.read(&mut [0u8; 8]).expect_err("it is broken");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[test]
    fn an_ended_connection_reads_to_its_end_and_cannot_be_written() {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let made = ended_connection(family, b"the rest").expect("a connection");
            let mut stream = TcpStream::from(made);
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("it ends");
            assert_eq!(rest, b"the rest");
            let error = std::io::Write::write(&mut stream, b"x").expect_err("it is closed");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn addresses_are_named_as_users_write_them() {
        assert_eq!(name(&[2, 0, 0x18, 0xeb, 127, 0, 0, 1]), "127.0.0.1:6379");
        assert_eq!(name(b"\x01\x00/run/x.sock\0"), "/run/x.sock");
        assert_eq!(name(b"\x01\x00\0hidden"), "@hidden");
    }
}
