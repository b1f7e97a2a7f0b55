//! Recreates established TCP connections in repair mode (`TCP_REPAIR`): without a handshake, with
//! the old sequence numbers, queues and options.
//!
//! Until [`Connections::resume`] they neither receive nor send: a restore that fails does
//! not affect their other ends. Then each sends a probe; an end that no longer has the connection
//! answers with a reset, which the program sees.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::error::system;
use super::socket_calls::{ended_connection, name, new, reset_connection, set_option, set_options};
use super::{Error, leftover};
use crate::capture::drop_all;
use crate::state::{Socket, SocketState, TcpConnection, Tree};

/// The kernel's name of a connection's state (include/net/tcp_states.h).
const TCP_CLOSE: u8 = 7;
const REPAIR_ON: i32 = 1;
/// Off; a probe is sent.
const REPAIR_OFF: i32 = 0;
/// Off, and nothing is sent.
const REPAIR_OFF_SILENT: i32 = -1;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;
/// Options of TCP's header, in which `TCP_REPAIR_OPTIONS` speaks.
const OPTION_SEGMENT: u32 = 2;
const OPTION_WINDOW: u32 = 3;
const OPTION_SACK: u32 = 4;
const OPTION_TIMESTAMP: u32 = 8;
/// The kernel takes no more into a queue at a time.
const PIECE_BYTES: usize = 32 << 10;
/// Room beyond the bytes of a queue, for the kernel's own use.
const OVERHEAD_BYTES: usize = 64 << 10;
/// A new connection has room for this window.
const USUAL_WINDOW_BYTES: usize = 64 << 10;
/// What is left of a connection goes from state to state by itself.
const TRIES: u32 = 20;

/// Connections that are still held.
#[derive(Debug, Default)]
pub struct Connections {
    /// Index of the socket, and a descriptor of it.
    held: Vec<(usize, OwnedFd)>,
}

impl Connections {
    /// Makes those of the tree's sockets that are connections, into their places. One that
    /// cannot be made (its address is not this machine's any more, its other end is on no way)
    /// becomes a broken one.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn make(tree: &Tree, all: &mut [Option<OwnedFd>]) -> Result<Self, Error> {
        let mut held = Vec::new();
        for (index, socket) in tree.sockets.iter().enumerate() {
            let SocketState::Established(connection) = &socket.state else {
                continue;
            };
            let made = match make_in_place(socket, connection) {
                Ok(made) => {
                    let copy = made.try_clone().map_err(system("duplicate a socket"))?;
                    held.push((index, copy));
                    made
                }
                Err(error) => {
                    tracing::warn!(
                        "the connection from {} to {} is broken: {error}",
                        name(&socket.address),
                        name(&connection.peer)
                    );
                    reset_connection(socket.family, &[])
                        .map_err(system("make a broken connection"))?
                }
            };
            all[index] = Some(made);
        }
        Ok(Self { held })
    }

    /// Lets them send and receive.
    pub fn resume(self, tree: &Tree) {
        for (index, made) in &self.held {
            let socket = &tree.sockets[*index];
            let SocketState::Established(connection) = &socket.state else {
                continue;
            };
            if let Err(error) = resume(made, socket, connection) {
                tracing::warn!(
                    "the connection from {} to {} may be broken: {error}",
                    name(&socket.address),
                    name(&connection.peer)
                );
            }
        }
        // Only now: the other end would drop it, and get it again after a while.
        for (index, made) in &self.held {
            if let SocketState::Established(connection) = &tree.sockets[*index].state
                && connection.closed
            {
                // One that was reset meanwhile has nothing to close.
                // SAFETY: no memory involved.
                unsafe { libc::shutdown(made.as_raw_fd(), libc::SHUT_WR) };
            }
        }
    }
}

/// A connection of which both directions have ended, between its old addresses where they are free.
pub(super) fn ended(socket: &Socket, peer: &[u8], rest: &[u8]) -> Result<OwnedFd, Error> {
    match ended_in_place(socket, peer, rest) {
        Ok(made) => return Ok(made),
        Err(error) => tracing::warn!(
            "the ended connection from {} to {} gets other addresses: {error}",
            name(&socket.address),
            name(peer)
        ),
    }
    ended_connection(socket.family, rest).map_err(system("make an ended connection"))
}

/// A recreated connection that is ended from outside: the program finds no error at it.
fn ended_in_place(socket: &Socket, peer: &[u8], rest: &[u8]) -> io::Result<OwnedFd> {
    let connection = TcpConnection {
        peer: peer.to_vec(),
        receive: (rest.len() as u32 + 1, rest.to_vec()),
        send: (1, Vec::new()),
        unsent: 0,
        closed: true,
        segment_bytes: 1460,
        window_scale: None,
        sack: false,
        timestamp: None,
        window: [1, 65535, 65535, 65535, 1],
    };
    let made = make_in_place(socket, &connection)?;
    leftover::end(socket, peer, &made)?;
    let mut error = [0u8; 4];
    let mut length = error.len() as u32;
    // To read an error takes it away.
    // SAFETY: the number lives, and has the length that is said.
    unsafe {
        libc::getsockopt(
            made.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            error.as_mut_ptr().cast(),
            &raw mut length,
        );
    }
    let fd = made.as_raw_fd();
    integer(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF_SILENT)?;
    integer(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)?;
    Ok(made)
}

fn integer(fd: i32, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_option(fd, level, option, &value.to_ne_bytes())
}

/// Where the program was killed on a machine that lives, the connection's former life may still
/// be in its place.
fn make_in_place(socket: &Socket, connection: &TcpConnection) -> io::Result<OwnedFd> {
    let mut tries = TRIES;
    loop {
        let error = match make(socket, connection) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => error,
            made => return made,
        };
        tries -= 1;
        let removed = leftover::remove(socket, &connection.peer).map_err(|reason| {
            io::Error::other(format!(
                "{error}, and what is left of it cannot be removed: {reason}"
            ))
        })?;
        if !removed || tries == 0 {
            return Err(error);
        }
    }
}

fn make(socket: &Socket, connection: &TcpConnection) -> io::Result<OwnedFd> {
    let made = new(socket).map_err(io::Error::other)?;
    let (fd, tcp) = (made.as_raw_fd(), libc::IPPROTO_TCP);
    drop_all(&made)?;
    integer(fd, tcp, libc::TCP_REPAIR, REPAIR_ON)?;
    let queues = [
        (RECEIVE_QUEUE, &connection.receive),
        (SEND_QUEUE, &connection.send),
    ];
    for (queue, (after_last, content)) in queues {
        let first = after_last.wrapping_sub(content.len() as u32);
        integer(fd, tcp, libc::TCP_REPAIR_QUEUE, queue)?;
        integer(fd, tcp, libc::TCP_QUEUE_SEQ, first as i32)?;
    }
    let (address, peer) = (&socket.address, &connection.peer);
    // SAFETY: both addresses are valid for their lengths.
    let connected = unsafe {
        libc::bind(fd, address.as_ptr().cast(), address.len() as u32) == 0
            && libc::connect(fd, peer.as_ptr().cast(), peer.len() as u32) == 0
    };
    if !connected {
        return Err(io::Error::last_os_error());
    }
    // struct tcp_repair_opt: which, value.
    let mut options = vec![(OPTION_SEGMENT, connection.segment_bytes)];
    if connection.sack {
        options.push((OPTION_SACK, 0));
    }
    if let Some((send, receive)) = connection.window_scale {
        options.push((OPTION_WINDOW, u32::from(send) | u32::from(receive) << 16));
    }
    if connection.timestamp.is_some() {
        options.push((OPTION_TIMESTAMP, 0));
    }
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
    let options: Vec<u8> = options
        .iter()
        .flat_map(|&(which, value)| words(&[which, value]))
        .collect();
    set_option(fd, tcp, libc::TCP_REPAIR_OPTIONS, &options)?;
    if let Some(now) = connection.timestamp {
        integer(fd, tcp, libc::TCP_TIMESTAMP, now as i32)?;
    }
    // What the window promises to take must find room, too.
    let window = connection.window[3] as usize;
    let (received, unsent) = (connection.receive.1.len(), connection.send.1.len());
    let beyond_usual = received + window.saturating_sub(USUAL_WINDOW_BYTES);
    let buffers = [
        (libc::SO_RCVBUFFORCE, beyond_usual, received * 2 + window),
        (libc::SO_SNDBUFFORCE, unsent, unsent * 2),
    ];
    for (buffer, _, bytes) in buffers.into_iter().filter(|(_, needed, _)| *needed > 0) {
        let room = i32::try_from(bytes + OVERHEAD_BYTES).unwrap_or(i32::MAX / 2);
        integer(fd, libc::SOL_SOCKET, buffer, room)?;
        // The kernel goes on choosing the size, unless the program did.
        integer(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0)?;
    }
    for (queue, content) in [
        (RECEIVE_QUEUE, &connection.receive.1[..]),
        (SEND_QUEUE, sent(connection).0),
    ] {
        integer(fd, tcp, libc::TCP_REPAIR_QUEUE, queue)?;
        send(fd, content)?;
    }
    set_option(fd, tcp, libc::TCP_REPAIR_WINDOW, &words(&connection.window))?;
    receive_buffer(socket, fd)?;
    Ok(made)
}

/// Sets the size of the receive buffer that the program has chosen. The first acknowledgement after the
/// repair would offer the room that the buffer has until then: what comes into it is dropped when the
/// buffer has its own size, and while the window is closed, so are the acknowledgements of the other end,
/// which has sent more than fits.
fn receive_buffer(socket: &Socket, fd: i32) -> io::Result<()> {
    let mut options = socket.options.iter();
    match options.find(|(level, name, _)| (*level, *name) == (libc::SOL_SOCKET, libc::SO_RCVBUF)) {
        Some((level, name, value)) => set_option(fd, *level, *name, value),
        None => Ok(()),
    }
}

/// The send queue: what was sent and not acknowledged, and what was never sent.
fn sent(connection: &TcpConnection) -> (&[u8], &[u8]) {
    let queue = &connection.send.1;
    queue.split_at(queue.len().saturating_sub(connection.unsent as usize))
}

fn resume(made: &OwnedFd, socket: &Socket, connection: &TcpConnection) -> io::Result<()> {
    let fd = made.as_raw_fd();
    integer(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)?;
    integer(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF)?;
    // On a short way the answer to the probe is here already. A call that fails because of it
    // takes the error away, and the program would read an end instead of a reset.
    if is_closed(fd)? {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    // What the program holds back stays here.
    let mut options = socket.options.iter();
    let cork = (libc::IPPROTO_TCP, libc::TCP_CORK);
    if let Some((level, name, value)) = options.find(|(level, name, _)| (*level, *name) == cork) {
        set_option(fd, *level, *name, value)?;
    }
    send(fd, sent(connection).1)?;
    set_options(socket, made).map_err(io::Error::other)
}

fn is_closed(fd: i32) -> io::Result<bool> {
    let mut state = [0u8; 1];
    let mut length = state.len() as u32;
    // SAFETY: the kernel writes no more than `length` bytes of its `struct tcp_info`, whose first
    // one is the connection's state.
    let got = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            state.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(state[0] == TCP_CLOSE)
}

fn send(fd: i32, mut content: &[u8]) -> io::Result<()> {
    while !content.is_empty() {
        let piece = &content[..content.len().min(PIECE_BYTES)];
        // SAFETY: the piece is valid for its length.
        let done = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::send(fd, piece.as_ptr().cast(), piece.len(), flags)
        };
        if done <= 0 {
            return Err(io::Error::last_os_error());
        }
        content = &content[done as usize..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn address(of: SocketAddr) -> Vec<u8> {
        let port = of.port().to_be_bytes();
        let family = |family: i32| (family as u16).to_ne_bytes();
        match of {
            SocketAddr::V4(of) => {
                let ip = of.ip().octets();
                [&family(libc::AF_INET)[..], &port, &ip, &[0; 8]].concat()
            }
            SocketAddr::V6(of) => {
                let ip = of.ip().octets();
                [&family(libc::AF_INET6)[..], &port, &[0; 4], &ip, &[0; 4]].concat()
            }
        }
    }

    fn socket(of: SocketAddr) -> Socket {
        Socket {
            family: if of.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            },
            kind: libc::SOCK_STREAM,
            protocol: libc::IPPROTO_TCP,
            state: SocketState::Broken,
            address: address(of),
            directory: String::new(),
            options: Vec::new(),
            received: Vec::new(),
            passed: Vec::new(),
            shutdown: 0,
            detached: false,
            connected_to: None,
            absent: false,
        }
    }

    fn connection(peer: SocketAddr) -> TcpConnection {
        TcpConnection {
            peer: address(peer),
            receive: (1000, b"what had come".to_vec()),
            send: (2000, b"what was on its way".to_vec()),
            unsent: 3,
            closed: false,
            segment_bytes: 1460,
            window_scale: Some((7, 7)),
            sack: true,
            timestamp: Some(12345),
            window: [1000, 65536, 65536, 65536, 1000],
        }
    }

    /// The probe resets a connection that its peer does not know.
    #[test]
    fn a_connection_without_its_other_end_is_reset_when_it_resumes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = listener.local_addr().expect("its address");
        let local = socket("127.0.0.1:0".parse().expect("an address"));
        let connection = connection(peer);
        let made = make(&local, &connection).expect("repaired");
        let mut stream = TcpStream::from(made.try_clone().expect("a copy"));
        assert_eq!(stream.peer_addr().expect("connected"), peer);
        resume(&made, &local, &connection).unwrap_or_default();
        std::thread::sleep(Duration::from_millis(50));
        let mut bytes = Vec::new();
        let error = stream.read_to_end(&mut bytes).expect_err("it is broken");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(stream.write_all(b"more").is_err());
    }

    /// Until it resumes, it has sent nothing: its first acknowledgement offers no more room than the
    /// buffer has.
    #[test]
    fn a_full_receive_buffer_has_the_size_that_the_program_chose_before_it_resumes() {
        const CHOSEN: i32 = 64 << 10;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut local = socket("127.0.0.1:0".parse().expect("an address"));
        let chosen = CHOSEN.to_ne_bytes().to_vec();
        local.options = vec![(libc::SOL_SOCKET, libc::SO_RCVBUF, chosen)];
        let mut connection = connection(listener.local_addr().expect("its address"));
        let content = vec![7; 2 * CHOSEN as usize];
        connection.window = [1, 65536, 65536, 0, content.len() as u32];
        connection.receive = (content.len() as u32, content);
        let made = make(&local, &connection).expect("repaired");
        let room = rustix::net::sockopt::socket_recv_buffer_size(&made).expect("its size");
        assert_eq!(room, 2 * CHOSEN as usize, "the kernel doubles it");
    }

    /// An end whose peer does not acknowledge its last byte, because it receives nothing; in both
    /// families, and as IPv4 in a socket of IPv6.
    #[test]
    fn a_connection_takes_the_place_of_what_is_left_of_its_former_life() {
        for (listen, connect) in [
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[::]", "127.0.0.1"),
        ] {
            let listener = TcpListener::bind(format!("{listen}:0")).expect("a port");
            let port = listener.local_addr().expect("its address").port();
            let other = TcpStream::connect(format!("{connect}:{port}")).expect("connected");
            let (one, _) = listener.accept().expect("accepted");
            let (local, peer) = (one.local_addr(), one.peer_addr());
            let (local, peer) = (local.expect("connected"), peer.expect("connected"));
            let refused = make_in_place(&socket(local), &connection(peer));
            let refused = refused.expect_err("a program has it");
            assert_eq!(refused.raw_os_error(), Some(libc::EADDRNOTAVAIL));
            drop_all(&OwnedFd::from(other.try_clone().expect("a copy"))).expect("deaf");
            drop(one);
            let in_the_way = make(&socket(local), &connection(peer));
            let in_the_way = in_the_way.expect_err("nothing is in the way");
            assert_eq!(in_the_way.raw_os_error(), Some(libc::EADDRNOTAVAIL));
            make_in_place(&socket(local), &connection(peer)).expect("repaired");
        }
    }
}
