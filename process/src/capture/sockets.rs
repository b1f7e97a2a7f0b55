//! Sockets: unix, TCP, UDP, netlink.
//!
//! They are asked through duplicates of the tree's descriptors; nothing is taken out of a queue.
//! Established TCP connections are in `tcp`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::duplicate;
use super::tcp::Candidate;
use super::{Builder, Error};
use crate::state::{FileKind, Socket, SocketState};

const SO_GET_FILTER: i32 = 26;
const SO_BUF_LOCK: i32 = 72;
const SO_PEEK_OFF: i32 = 42;

/// Options that a program may set and that can be asked: level and name.
const OPTIONS_ANY: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_PASSCRED),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
];
const OPTIONS_TCP: &[(i32, i32)] = &[
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
];
const OPTIONS_IP: &[(i32, i32)] = &[
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
];
const OPTIONS_IP6: &[(i32, i32)] = &[
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

impl Builder<'_> {
    /// Describes the socket behind a descriptor.
    pub(super) fn socket(&mut self, number: RawFd, inode: u64) -> Result<Option<FileKind>, Error> {
        if let Some(&index) = self.socket_index.get(&inode) {
            return Ok(Some(FileKind::Socket(index)));
        }
        let failed = || format!("look at the socket behind its descriptor {number}");
        let socket = duplicate(self.pid, number).map_err(self.failed(failed()))?;
        let ask = |name| option_i32(&socket, libc::SOL_SOCKET, name);
        let family = ask(libc::SO_DOMAIN).map_err(self.failed(failed()))?;
        let kind = ask(libc::SO_TYPE).map_err(self.failed(failed()))?;
        let protocol = ask(libc::SO_PROTOCOL).map_err(self.failed(failed()))?;
        let listening = ask(libc::SO_ACCEPTCONN).unwrap_or(0) != 0;
        let described = match family {
            libc::AF_UNIX => self.unix_socket(&socket, number, inode, kind, listening)?,
            libc::AF_INET | libc::AF_INET6 => {
                self.internet_socket(&socket, number, kind, protocol, listening)?
            }
            libc::AF_NETLINK => Some((SocketState::Idle, address_of(&socket), Vec::new(), 0)),
            other => {
                self.refuse(format!("fd {number} is a socket of address family {other}"));
                None
            }
        };
        let Some((state, address, received, shutdown)) = described else {
            return Ok(None);
        };
        let mut filter_bytes: libc::socklen_t = 0;
        // SAFETY: a length of zero asks for the length only.
        let filter = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_GET_FILTER,
                std::ptr::null_mut(),
                &raw mut filter_bytes,
            )
        };
        if filter == 0 && filter_bytes > 0 {
            self.refuse(format!("fd {number} is a socket with a packet filter"));
        }
        let options =
            changed_options(&socket, family, kind, protocol).map_err(self.failed(failed()))?;
        let directory = match state {
            SocketState::Idle | SocketState::Listening { .. } if family == libc::AF_UNIX => {
                self.directory_of(number, inode, &address)
            }
            _ => String::new(),
        };
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
            shutdown,
        });
        self.socket_index.insert(inode, index);
        Ok(Some(FileKind::Socket(index)))
    }

    #[allow(clippy::type_complexity)]
    fn unix_socket(
        &mut self,
        socket: &OwnedFd,
        number: RawFd,
        inode: u64,
        kind: i32,
        listening: bool,
    ) -> Result<Option<(SocketState, Vec<u8>, Vec<Vec<u8>>, u8)>, Error> {
        let failed = self.failed("ask for unix sockets (the kernel lacks unix_diag?)");
        let told = self
            .unix
            .get(inode)
            .map_err(failed)?
            .cloned()
            .unwrap_or_default();
        let address = address_of(socket);
        if listening {
            let backlog = told.backlog;
            return Ok(Some((
                SocketState::Listening { backlog },
                address,
                Vec::new(),
                0,
            )));
        }
        let messages = match peek_all(socket, kind) {
            Ok(Some(messages)) => messages,
            Ok(None) => {
                self.refuse(format!(
                    "fd {number} is a unix socket with descriptors under way in it"
                ));
                return Ok(None);
            }
            Err(error) => return Err(self.failed("read a unix socket")(error)),
        };
        if kind == libc::SOCK_DGRAM
            && let Some(what) = sender_is_known(socket, &messages)
        {
            self.refuse(format!("fd {number} is a unix socket with {what}"));
            return Ok(None);
        }
        let received = messages.into_iter().map(|message| message.bytes).collect();
        let shutdown = told.shutdown;
        if told.peer == 0 {
            // Never connected, or its peer is gone.
            let connected =
                matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET) && was_connected(socket);
            let state = if connected {
                SocketState::Broken
            } else {
                SocketState::Idle
            };
            return Ok(Some((state, address, received, shutdown)));
        }
        // The peer's index is not known yet: it is put in when all sockets are known.
        self.peers
            .insert(self.tree.sockets.len() as u32, (told.peer, peer_of(socket)));
        Ok(Some((SocketState::Broken, address, received, shutdown)))
    }

    /// Where the relative path of a bound unix socket begins: in the directory of its process, or
    /// in one above it, where its file is found.
    fn directory_of(&mut self, number: RawFd, inode: u64, address: &[u8]) -> String {
        let bytes = address.get(2..).unwrap_or(&[]);
        let path = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if path.is_empty() || path[0] == b'/' {
            return String::new();
        }
        let path = String::from_utf8_lossy(path).into_owned();
        let file = self
            .unix
            .get(inode)
            .ok()
            .flatten()
            .map_or(0, |told| told.file);
        let directory = fs::read_link(format!("/proc/{}/cwd", self.pid)).unwrap_or_default();
        let is_there = |directory: &&Path| {
            let found = fs::symlink_metadata(directory.join(&path));
            // The kernel tells 32 bits of it.
            found.is_ok_and(|found| found.ino() & 0xffff_ffff == file)
        };
        let Some(found) = directory.ancestors().find(is_there) else {
            self.refuse(format!(
                "fd {number} is a unix socket at the relative path {path}, which is not in its \
                 directory"
            ));
            return String::new();
        };
        found.to_string_lossy().into_owned()
    }

    #[allow(clippy::type_complexity)]
    fn internet_socket(
        &mut self,
        socket: &OwnedFd,
        number: RawFd,
        kind: i32,
        protocol: i32,
        listening: bool,
    ) -> Result<Option<(SocketState, Vec<u8>, Vec<Vec<u8>>, u8)>, Error> {
        let address = address_of(socket);
        Ok(match (kind, protocol) {
            (libc::SOCK_STREAM, libc::IPPROTO_TCP) => {
                let (state, backlog) = tcp_state(socket);
                let state = if listening {
                    SocketState::Listening { backlog }
                } else if state == TCP_CLOSE {
                    SocketState::Idle
                } else {
                    if state == TCP_ESTABLISHED {
                        let failed = self.failed("duplicate a socket");
                        self.connections.push(Candidate {
                            index: self.tree.sockets.len() as u32,
                            socket: socket.try_clone().map_err(failed)?,
                            local: address.clone(),
                            peer: peer_of(socket),
                        });
                    }
                    // Unless all that belongs to it can be read.
                    SocketState::Broken
                };
                Some((state, address, Vec::new(), 0))
            }
            (libc::SOCK_DGRAM, libc::IPPROTO_UDP) => {
                let peer = peer_of(socket);
                let state = if peer.is_empty() {
                    SocketState::Idle
                } else {
                    SocketState::Destination(peer)
                };
                let messages = peek_all(socket, kind).map_err(self.failed("read a UDP socket"))?;
                let received = messages.into_iter().flatten();
                let received = received.map(|message| with_sender(&message)).collect();
                Some((state, address, received, 0))
            }
            _ => {
                self.refuse(format!(
                    "fd {number} is an internet socket of type {kind} and protocol {protocol}"
                ));
                None
            }
        })
    }

    /// Joins the ends of unix sockets, now that all are known.
    pub(super) fn finish_sockets(&mut self) {
        for (index, (peer, destination)) in std::mem::take(&mut self.peers) {
            let Some(&other) = self.socket_index.get(&peer) else {
                // Its peer is of outside. A datagram socket finds it again by its name.
                let socket = &mut self.tree.sockets[index as usize];
                if socket.kind == libc::SOCK_DGRAM && destination.len() > 2 {
                    socket.state = SocketState::Destination(destination);
                }
                continue;
            };
            let socket = &mut self.tree.sockets[index as usize];
            if socket.kind == libc::SOCK_DGRAM && destination.len() > 2 {
                socket.state = SocketState::Destination(destination);
            } else {
                socket.state = SocketState::Pair(other);
            }
        }
        // A connection has two ends that know each other.
        for index in 0..self.tree.sockets.len() {
            if let SocketState::Pair(other) = self.tree.sockets[index].state
                && self.tree.sockets[other as usize].state != SocketState::Pair(index as u32)
            {
                self.tree.sockets[index].state = SocketState::Broken;
            }
        }
    }
}

const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;

/// State of a TCP socket; of a listening one also its backlog.
fn tcp_state(socket: &OwnedFd) -> (u8, u32) {
    // struct tcp_info begins with eight bytes of which the first is the state, then words:
    // rto, ato, snd_mss, rcv_mss, unacked (waiting connections), sacked (backlog).
    let info = option_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, 104).unwrap_or_default();
    let word = |at: usize| {
        info.get(at..at + 4).map_or(0, |bytes| {
            u32::from_ne_bytes(bytes.try_into().expect("a word"))
        })
    };
    (info.first().copied().unwrap_or(TCP_CLOSE), word(28))
}

fn was_connected(socket: &OwnedFd) -> bool {
    // A stream whose peer is gone reads as ended, one that never had a peer is not connected.
    let mut byte = 0u8;
    // SAFETY: the byte lives.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            (&raw mut byte).cast(),
            1,
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    got >= 0
        || !matches!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EINVAL | libc::ENOTCONN)
        )
}

/// A message in a receive queue.
struct Message {
    /// The sender's address; empty: it has none.
    from: Vec<u8>,
    bytes: Vec<u8>,
}

/// Why datagrams cannot be put into the queue again as they were: their receiver would learn who
/// has sent them.
fn sender_is_known(socket: &OwnedFd, messages: &[Message]) -> Option<&'static str> {
    if messages.is_empty() {
        return None;
    }
    if option_i32(socket, libc::SOL_SOCKET, libc::SO_PASSCRED).unwrap_or(0) != 0 {
        return Some("unread datagrams that carry their senders' credentials");
    }
    let named = messages.iter().any(|message| message.from.len() > 2);
    named.then_some("unread datagrams from a sender that has an address")
}

/// A datagram of UDP as the description holds it: the length of the sender's address, the address,
/// the datagram.
fn with_sender(message: &Message) -> Vec<u8> {
    let mut bytes = vec![message.from.len() as u8];
    bytes.extend_from_slice(&message.from);
    bytes.extend_from_slice(&message.bytes);
    bytes
}

/// All that lies in the receive queue of a socket; `None`: descriptors are under way in it.
fn peek_all(socket: &OwnedFd, kind: i32) -> io::Result<Option<Vec<Message>>> {
    let fd = socket.as_raw_fd();
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut waiting) } != 0 || waiting == 0 {
        return Ok(Some(Vec::new()));
    }
    let old = option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF).unwrap_or(-1);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, 0)?;
    let result = peek_from_offset(fd, kind);
    set_option_i32(socket, libc::SOL_SOCKET, SO_PEEK_OFF, old)?;
    result
}

fn peek_from_offset(fd: RawFd, kind: i32) -> io::Result<Option<Vec<Message>>> {
    let mut messages: Vec<Message> = Vec::new();
    let mut buffer = vec![0u8; 256 << 10];
    loop {
        let mut control = [0u64; 64];
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
                Ok(Some(messages))
            } else {
                Err(error)
            };
        }
        if close_passed_descriptors(&header) {
            return Ok(None);
        }
        // Of a datagram socket it is no end, but an empty datagram.
        if got == 0 && kind != libc::SOCK_DGRAM {
            return Ok(Some(messages));
        }
        let bytes = &buffer[..got as usize];
        match (kind, messages.last_mut()) {
            (libc::SOCK_STREAM, Some(stream)) => stream.bytes.extend_from_slice(bytes),
            _ => messages.push(Message {
                from: from[..(header.msg_namelen as usize).min(from.len())].to_vec(),
                bytes: bytes.to_vec(),
            }),
        }
    }
}

/// Peeking duplicates descriptors that are being passed: closes them. True: there were some.
fn close_passed_descriptors(header: &libc::msghdr) -> bool {
    let mut any = false;
    // SAFETY: the kernel filled the control buffer, which lives, and said how much of it.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            if (*control).cmsg_level == libc::SOL_SOCKET && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let count = ((*control).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for at in 0..count {
                    libc::close(data.add(at).read_unaligned());
                }
                any = true;
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    any
}

/// Options whose value is not that of a fresh socket of the same kind.
fn changed_options(
    socket: &OwnedFd,
    family: i32,
    kind: i32,
    protocol: i32,
) -> io::Result<Vec<(i32, i32, Vec<u8>)>> {
    thread_local! {
        static FRESH: std::cell::RefCell<HashMap<(i32, i32, i32), OwnedFd>> = std::cell::RefCell::default();
    }
    FRESH.with_borrow_mut(|all| {
        let key = (family, kind, protocol);
        let fresh = match all.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                // SAFETY: no memory involved; the descriptor is new and ours.
                let fresh = unsafe {
                    let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
                    if fd < 0 {
                        return Err(io::Error::last_os_error());
                    }
                    OwnedFd::from_raw_fd(fd)
                };
                entry.insert(fresh)
            }
        };
        let mut lists = vec![OPTIONS_ANY];
        if matches!(family, libc::AF_INET | libc::AF_INET6) {
            lists.push(OPTIONS_IP);
            if protocol == libc::IPPROTO_TCP {
                lists.push(OPTIONS_TCP);
            }
        }
        if family == libc::AF_INET6 {
            lists.push(OPTIONS_IP6);
        }
        let mut changed = Vec::new();
        for &(level, name) in lists.into_iter().flatten() {
            // What this kind of socket does not have is not set either.
            let Ok(value) = option_bytes(socket, level, name, 64) else {
                continue;
            };
            if option_bytes(fresh, level, name, 64).is_ok_and(|usual| usual == value) {
                continue;
            }
            changed.push((level, name, value));
        }
        // Buffer sizes count only if the program has set them; the kernel doubles what it is told.
        let locked = option_i32(socket, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
        for (bit, name) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
            if locked & bit != 0 {
                let bytes = option_i32(socket, libc::SOL_SOCKET, name)? / 2;
                changed.push((libc::SOL_SOCKET, name, bytes.to_ne_bytes().to_vec()));
            }
        }
        Ok(changed)
    })
}

pub(super) fn option_bytes(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    room: usize,
) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; room];
    let mut bytes = room as libc::socklen_t;
    // SAFETY: the buffer lives and is as long as said.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    value.truncate(bytes as usize);
    Ok(value)
}

pub(super) fn option_i32(socket: &OwnedFd, level: i32, name: i32) -> io::Result<i32> {
    let value = option_bytes(socket, level, name, 4)?;
    value
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

pub(super) fn set_option_i32(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the value lives.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            4,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

type NameCall = unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name(socket: &OwnedFd, call: NameCall) -> Vec<u8> {
    let mut address = vec![0u8; 128];
    let mut bytes = address.len() as libc::socklen_t;
    // SAFETY: the buffer lives and is as long as said.
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
fn address_of(socket: &OwnedFd) -> Vec<u8> {
    let address = name(socket, libc::getsockname);
    // Of an unbound unix socket, the family is all there is.
    if address.len() <= 2 {
        Vec::new()
    } else {
        address
    }
}

fn peer_of(socket: &OwnedFd) -> Vec<u8> {
    name(socket, libc::getpeername)
}
