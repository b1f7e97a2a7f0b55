//! Sockets: unix, TCP, UDP, netlink; others are in files of their own.
//!
//! They are read through duplicates of the tree's descriptors; nothing is taken out of a queue.
//! Established TCP connections are in `tcp`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::options::{
    changed_options, filter_of, has_error_queue, is_elsewhere, option_bytes, option_i32,
};
use super::queues::{events, peek_all, peek_rest, with_sender};
use super::tcp::{Candidate, Listener, has_urgent_data};
use super::{Builder, Error};
use crate::state::{FileKind, Socket, SocketState};

/// What a family of sockets knows of one of its own.
pub(super) struct Described {
    pub(super) state: SocketState,
    pub(super) address: Vec<u8>,
    /// Not read yet, a message each.
    pub(super) received: Vec<Vec<u8>>,
    /// Directions that are shut down: the kernel's RCV_SHUTDOWN and SEND_SHUTDOWN.
    pub(super) shutdown: u8,
    /// The program has yet to read that the other end has gone with something unread.
    pub(super) reset: bool,
}

impl Described {
    /// One with nothing to read and both directions open.
    pub(super) fn new(state: SocketState, address: Vec<u8>) -> Self {
        Self {
            state,
            address,
            received: Vec::new(),
            shutdown: 0,
            reset: false,
        }
    }
}

impl Builder<'_> {
    /// Describes the socket behind a descriptor.
    pub(super) fn socket(&mut self, number: RawFd, inode: u64) -> Result<Option<FileKind>, Error> {
        if let Some(&index) = self.socket_index.get(&inode) {
            return Ok(Some(FileKind::Socket(index)));
        }
        let failed = || format!("read the socket behind its descriptor {number}");
        let socket = self.duplicate(number).map_err(self.failed(failed()))?;
        let option = |name| option_i32(&socket, libc::SOL_SOCKET, name);
        let family = option(libc::SO_DOMAIN).map_err(self.failed(failed()))?;
        let kind = option(libc::SO_TYPE).map_err(self.failed(failed()))?;
        let mut protocol = option(libc::SO_PROTOCOL).map_err(self.failed(failed()))?;
        let listening = option(libc::SO_ACCEPTCONN).unwrap_or(0) != 0;
        let mut further = Vec::new();
        let described = match family {
            libc::AF_UNIX => self.unix_socket(&socket, number, inode, kind, listening)?,
            libc::AF_INET | libc::AF_INET6 => {
                self.internet_socket(&socket, (number, inode), kind, protocol, listening)?
            }
            libc::AF_NETLINK => Some(netlink_socket(&socket)),
            libc::AF_PACKET => {
                let packet = self.packet_socket(&socket, (number, inode), kind)?;
                packet.map(|packet| {
                    protocol = packet.protocol;
                    further = packet.options;
                    packet.described
                })
            }
            other => {
                self.refuse(format!("fd {number} is a socket of address family {other}"));
                None
            }
        };
        if family != libc::AF_UNIX
            && is_elsewhere(&socket, (family, kind, protocol), &mut self.fresh_sockets)
        {
            self.refuse(format!(
                "fd {number} is a socket of another network namespace than the tracker's"
            ));
            return Ok(None);
        }
        let Some(Described {
            state,
            address,
            received,
            shutdown,
            reset,
        }) = described
        else {
            return Ok(None);
        };
        let mut options =
            changed_options(&socket, (family, kind, protocol), &mut self.fresh_sockets)
                .map_err(self.failed(failed()))?;
        if kind != libc::SOCK_STREAM
            && has_error_queue(&options)
            && events(&socket, 0) & libc::POLLERR != 0
        {
            self.refuse(format!(
                "fd {number} is a socket with errors or reports that the program has not read (MSG_ERRQUEUE)"
            ));
        }
        // The size that a connection has got is none that the program has chosen.
        if protocol == libc::IPPROTO_TCP
            && matches!(state, SocketState::Idle | SocketState::Listening { .. })
        {
            options.extend(chosen_segment(&socket));
        }
        options.extend(further);
        if reset {
            let error = libc::ECONNRESET.to_ne_bytes().to_vec();
            options.push((libc::SOL_SOCKET, libc::SO_ERROR, error));
        }
        if family == libc::AF_NETLINK {
            options.extend(memberships(&socket, &address));
        }
        match filter_of(&socket) {
            Ok(None) => {}
            // To read a connection takes another filter.
            Ok(Some(instructions))
                if (kind, protocol) != (libc::SOCK_STREAM, libc::IPPROTO_TCP) =>
            {
                options.push((libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, instructions));
                if option(libc::SO_LOCK_FILTER).unwrap_or(0) != 0 {
                    let locked = 1i32.to_ne_bytes().to_vec();
                    options.push((libc::SOL_SOCKET, libc::SO_LOCK_FILTER, locked));
                }
            }
            _ => self.refuse(format!(
                "fd {number} is a socket with a packet filter that is an eBPF program, or of TCP"
            )),
        }
        // Others have the address of the socket that accepted them.
        let has_path = family == libc::AF_UNIX
            && (kind == libc::SOCK_DGRAM
                || matches!(state, SocketState::Idle | SocketState::Listening { .. }));
        let mut directory = match has_path {
            true => self.directory_of(number, inode, &address),
            false => String::new(),
        };
        let detached = has_path && directory.is_empty() && self.is_detached(inode, &address);
        if detached {
            directory = self.renamed(number, inode, &address);
        }
        let absent =
            matches!(family, libc::AF_INET | libc::AF_INET6) && self.addresses.is_absent(&address);
        let index = self.tree.sockets.len() as u32;
        self.tree.sockets.push(Socket {
            family,
            kind,
            protocol,
            state,
            address,
            directory,
            options,
            received,
            passed: Vec::new(),
            shutdown,
            detached,
            connected_to: None,
            absent,
        });
        self.socket_index.insert(inode, index);
        Ok(Some(FileKind::Socket(index)))
    }

    fn internet_socket(
        &mut self,
        socket: &OwnedFd,
        (number, inode): (RawFd, u64),
        kind: i32,
        protocol: i32,
        listening: bool,
    ) -> Result<Option<Described>, Error> {
        let address = address_of(socket);
        Ok(match (kind, protocol) {
            (libc::SOCK_STREAM, libc::IPPROTO_TCP) => {
                let TcpState {
                    state,
                    backlog,
                    waiting,
                } = tcp_state(socket);
                let state = if listening {
                    // Where the kernel lists none, it is not known.
                    let reported = self.internet.listening(inode);
                    if reported.is_ok_and(|found| found.is_some_and(|found| found.keys)) {
                        self.refuse(format!(
                            "fd {number} is a TCP socket that listens with keys (TCP_MD5SIG)"
                        ));
                    }
                    self.tcp_listeners.push(Listener {
                        pid: self.pid,
                        number,
                        local: address.clone(),
                        waiting,
                    });
                    SocketState::Listening {
                        backlog,
                        waiting: Vec::new(),
                    }
                } else if state == TCP_CLOSE {
                    let (ended, failed) = ends(socket);
                    if ended {
                        if has_urgent_data(socket).unwrap_or(false) {
                            self.refuse(format!(
                                "fd {number} is a TCP connection with unread urgent data (MSG_OOB)"
                            ));
                            return Ok(None);
                        }
                        let rest = peek_rest(socket);
                        let rest = rest.map_err(self.failed("read a TCP socket"))?;
                        let state = match failed {
                            true => SocketState::Broken,
                            false => SocketState::Closed(former_peer_of(socket)),
                        };
                        return Ok(Some(Described {
                            received: rest,
                            ..Described::new(state, address)
                        }));
                    }
                    SocketState::Idle
                } else if state == TCP_SYN_SENT {
                    match self.internet.get(libc::IPPROTO_TCP, inode) {
                        Ok(reported) => SocketState::Connecting(
                            reported.map_or_else(Vec::new, |reported| reported.peer.clone()),
                        ),
                        Err(error) => {
                            self.refuse(format!(
                                "fd {number} is a socket that connects, and the kernel does not tell where to \
                                 (tcp_diag): {error}"
                            ));
                            return Ok(None);
                        }
                    }
                } else {
                    if has_connection(state) {
                        let failed = self.failed("duplicate a socket");
                        self.connections.push(Candidate {
                            pid: self.pid,
                            number,
                            index: self.tree.sockets.len() as u32,
                            socket: socket.try_clone().map_err(failed)?,
                            local: address.clone(),
                            peer: peer_of(socket),
                            state,
                        });
                    }
                    // Unless all that belongs to it can be read.
                    SocketState::Broken
                };
                Some(Described::new(state, address))
            }
            (libc::SOCK_DGRAM, libc::IPPROTO_UDP) => {
                let peer = peer_of(socket);
                let state = if peer.is_empty() {
                    SocketState::Idle
                } else {
                    SocketState::Destination(peer)
                };
                let queue = peek_all(socket, (libc::AF_INET, inode), kind);
                let queue = match queue.map_err(self.failed("read a UDP socket"))? {
                    Ok(queue) => queue,
                    Err(what) => {
                        self.refuse(format!("fd {number} is a UDP socket with {what}"));
                        return Ok(None);
                    }
                };
                let received = queue.messages.iter();
                let received = received.map(with_sender).collect();
                let Some(shutdown) = self.shut_down(socket, protocol, (number, inode)) else {
                    return Ok(None);
                };
                let reported = self.internet.get(protocol, inode);
                if reported.is_ok_and(|found| found.is_some_and(|found| found.unsent))
                    && holds_back(socket, self.settled_by())
                {
                    self.refuse(format!(
                        "fd {number} is a UDP socket with a datagram that is held back (MSG_MORE, UDP_CORK)"
                    ));
                    return Ok(None);
                }
                Some(Described {
                    received,
                    shutdown,
                    ..Described::new(state, address)
                })
            }
            (libc::SOCK_STREAM, libc::IPPROTO_MPTCP) => {
                self.multipath_socket(socket, number, listening)
            }
            _ => self.other_internet_socket(socket, (number, inode), kind, protocol),
        })
    }

    /// The directions in which a UDP or UDP-lite socket is shut down; `None`: the kernel does not tell.
    pub(super) fn shut_down(
        &mut self,
        socket: &OwnedFd,
        protocol: i32,
        (number, inode): (RawFd, u64),
    ) -> Option<u8> {
        match self.internet.get(protocol, inode) {
            Ok(Some(reported)) => Some(reported.shutdown),
            Ok(None) => Some(shut_down_unbound(socket)),
            Err(error) => {
                self.refuse(format!(
                    "fd {number} is a UDP socket, and the kernel does not tell which directions are shut down \
                     (udp_diag): {error}"
                ));
                None
            }
        }
    }
}

const TCP_SYN_SENT: u8 = 2;
pub(super) const TCP_CLOSE: u8 = 7;

/// Whether a TCP socket has a connection in this state, of which an end may be closed.
fn has_connection(state: u8) -> bool {
    use super::tcp::states::{CLOSE_WAIT, CLOSING, ESTABLISHED, FIN_WAIT1, FIN_WAIT2, LAST_ACK};
    [
        ESTABLISHED,
        FIN_WAIT1,
        FIN_WAIT2,
        CLOSE_WAIT,
        LAST_ACK,
        CLOSING,
    ]
    .contains(&state)
}

/// The segment size that the program has chosen for connections of a TCP socket.
fn chosen_segment(socket: &OwnedFd) -> Option<(i32, i32, Vec<u8>)> {
    /// Of a socket of which it has not.
    const TCP_MSS_DEFAULT: i32 = 536;
    let bytes = option_i32(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG).ok()?;
    let value = bytes.to_ne_bytes().to_vec();
    (bytes != TCP_MSS_DEFAULT).then_some((libc::IPPROTO_TCP, libc::TCP_MAXSEG, value))
}

/// Whether a UDP socket keeps what it has sent until then: what is on its way in a network device goes, for
/// the program sends nothing more.
fn holds_back(socket: &OwnedFd, deadline: Instant) -> bool {
    const BETWEEN_CHECKS: Duration = Duration::from_micros(200);
    loop {
        let mut bytes = 0i32;
        // SAFETY: the number lives.
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if bytes == 0 || Instant::now() >= deadline {
            return bytes > 0;
        }
        std::thread::sleep(BETWEEN_CHECKS);
    }
}

/// The directions in which a UDP socket is shut down that is not bound, which no list has: only poll tells, and
/// not of writing alone.
fn shut_down_unbound(socket: &OwnedFd) -> u8 {
    let seen = events(socket, libc::POLLRDHUP);
    if seen & libc::POLLHUP != 0 {
        return 3;
    }
    u8::from(seen & libc::POLLRDHUP != 0)
}

/// Whether nothing more can be received, and whether an error waits for the program.
pub(super) fn ends(socket: &OwnedFd) -> (bool, bool) {
    let seen = events(socket, libc::POLLRDHUP);
    (seen & libc::POLLRDHUP != 0, seen & libc::POLLERR != 0)
}

fn netlink_socket(socket: &OwnedFd) -> Described {
    // struct sockaddr_nl: family, pad, port, groups; the kernel is 0.
    let peer = peer_of(socket);
    let state = match peer
        .get(4..)
        .is_some_and(|rest| rest.iter().any(|byte| *byte != 0))
    {
        true => SocketState::Destination(peer),
        false => SocketState::Idle,
    };
    Described::new(state, address_of(socket))
}

/// Groups of a netlink socket that it cannot be bound to: those beyond the 32nd, and all if it was not bound.
fn memberships(socket: &OwnedFd, address: &[u8]) -> Vec<(i32, i32, Vec<u8>)> {
    let lists = option_bytes(
        socket,
        libc::SOL_NETLINK,
        libc::NETLINK_LIST_MEMBERSHIPS,
        64,
    );
    let lists = lists.unwrap_or_default();
    let number = address.get(4..8).unwrap_or(&[]);
    let bound = number.iter().any(|byte| *byte != 0);
    let groups = (if bound { 32 } else { 0 }..lists.len() as u32 * 8)
        .filter(|bit| lists[(bit / 8) as usize] & 1 << (bit % 8) != 0)
        .map(|bit| (bit + 1).to_ne_bytes().to_vec());
    groups
        .map(|group| (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group))
        .collect()
}

/// Addresses of bound internet sockets, without ports: whether the machine lacks them. Many have one.
#[derive(Debug, Default)]
pub(super) struct Addresses(HashMap<Vec<u8>, bool>);

impl Addresses {
    fn is_absent(&mut self, address: &[u8]) -> bool {
        let mut address = address.to_vec();
        let Some(port) = address.get_mut(2..4) else {
            return false;
        };
        port.fill(0);
        let known = self.0.get(&address).copied();
        known.unwrap_or_else(|| {
            let absent = is_absent(&address);
            self.0.insert(address, absent);
            absent
        })
    }
}

/// Whether the machine lacks an address, of which the port is 0.
fn is_absent(address: &[u8]) -> bool {
    // SAFETY: no memory but the address, which is valid for its length; the descriptor is ours.
    unsafe {
        let family = i32::from(u16::from_ne_bytes([address[0], address[1]]));
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return false;
        }
        let bound = libc::bind(fd, address.as_ptr().cast(), address.len() as u32) == 0;
        let error = io::Error::last_os_error().raw_os_error();
        libc::close(fd);
        !bound && error == Some(libc::EADDRNOTAVAIL)
    }
}

/// What a TCP socket says of itself.
pub(super) struct TcpState {
    pub state: u8,
    /// Of a listening one: its backlog.
    pub backlog: u32,
    /// Of a listening one: how many connections it has not accepted.
    pub waiting: u32,
}

pub(super) fn tcp_state(socket: &OwnedFd) -> TcpState {
    // struct tcp_info begins with eight bytes of which the first is the state, then words:
    // rto, ato, snd_mss, rcv_mss, unacked (waiting connections), sacked (backlog).
    let info = option_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, 104).unwrap_or_default();
    let word = |at: usize| {
        info.get(at..at + 4).map_or(0, |bytes| {
            u32::from_ne_bytes(bytes.try_into().expect("a word"))
        })
    };
    TcpState {
        state: info.first().copied().unwrap_or(TCP_CLOSE),
        backlog: word(28),
        waiting: word(24),
    }
}

type NameCall = unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name(socket: &OwnedFd, call: NameCall) -> Vec<u8> {
    let mut address = vec![0u8; 128];
    let mut bytes = address.len() as libc::socklen_t;
    // SAFETY: the buffer is valid for its length.
    if unsafe {
        call(
            socket.as_raw_fd(),
            address.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    } != 0
    {
        return Vec::new();
    }
    address.truncate(bytes as usize);
    address
}

/// The socket's own address; empty if it has none.
pub(super) fn address_of(socket: &OwnedFd) -> Vec<u8> {
    let address = name(socket, libc::getsockname);
    // Of an unbound unix socket, the family is all there is.
    if address.len() <= 2 {
        Vec::new()
    } else {
        address
    }
}

/// The other end of a TCP connection that has ended: `getpeername` does not know it any more.
fn former_peer_of(socket: &OwnedFd) -> Vec<u8> {
    const SO_PEERNAME: i32 = 28;
    // The kernel refuses to be asked for more bytes than the address has.
    let bytes = match option_i32(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Ok(libc::AF_INET) => size_of::<libc::sockaddr_in>(),
        _ => size_of::<libc::sockaddr_in6>(),
    };
    option_bytes(socket, libc::SOL_SOCKET, SO_PEERNAME, bytes).unwrap_or_default()
}

pub(super) fn peer_of(socket: &OwnedFd) -> Vec<u8> {
    name(socket, libc::getpeername)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_unbound_udp_socket_poll_tells_what_is_shut_down_for_reading() {
        for (how, expected) in [
            (None, 0),
            (Some(libc::SHUT_RD), 1),
            (Some(libc::SHUT_RDWR), 3),
        ] {
            use rustix::net::{AddressFamily, SocketType, socket};
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
            if let Some(how) = how {
                // SAFETY: no memory involved. It is shut down, although it answers ENOTCONN.
                assert_eq!(unsafe { libc::shutdown(socket.as_raw_fd(), how) }, -1);
            }
            assert_eq!(shut_down_unbound(&socket), expected);
        }
    }
}
