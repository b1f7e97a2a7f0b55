//! Sockets: unix, TCP, UDP, netlink.
//!
//! They are read through duplicates of the tree's descriptors; nothing is taken out of a queue.
//! Established TCP connections are in `tcp`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::duplicate;
use super::options::{changed_options, option_bytes, option_i32};
use super::queues::{peek_all, sender_is_known, with_sender};
use super::tcp::Candidate;
use super::{Builder, Error};
use crate::state::{FileKind, Socket, SocketState};

const SO_GET_FILTER: i32 = 26;

impl Builder<'_> {
    /// Describes the socket behind a descriptor.
    pub(super) fn socket(&mut self, number: RawFd, inode: u64) -> Result<Option<FileKind>, Error> {
        if let Some(&index) = self.socket_index.get(&inode) {
            return Ok(Some(FileKind::Socket(index)));
        }
        let failed = || format!("read the socket behind its descriptor {number}");
        let socket = duplicate(self.pid, number).map_err(self.failed(failed()))?;
        let option = |name| option_i32(&socket, libc::SOL_SOCKET, name);
        let family = option(libc::SO_DOMAIN).map_err(self.failed(failed()))?;
        let kind = option(libc::SO_TYPE).map_err(self.failed(failed()))?;
        let protocol = option(libc::SO_PROTOCOL).map_err(self.failed(failed()))?;
        let listening = option(libc::SO_ACCEPTCONN).unwrap_or(0) != 0;
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
        // SAFETY: a length of zero requests only the length.
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
        let failed = self.failed("read unix sockets (does the kernel have unix_diag?)");
        let reported = self
            .unix
            .get(inode)
            .map_err(failed)?
            .cloned()
            .unwrap_or_default();
        let address = address_of(socket);
        if listening {
            let backlog = reported.backlog;
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
        let shutdown = reported.shutdown;
        if reported.peer == 0 {
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
        self.peers.insert(
            self.tree.sockets.len() as u32,
            (reported.peer, peer_of(socket)),
        );
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
            .map_or(0, |reported| reported.file);
        let directory = fs::read_link(format!("/proc/{}/cwd", self.pid)).unwrap_or_default();
        let is_there = |directory: &&Path| {
            let found = fs::symlink_metadata(directory.join(&path));
            // The kernel reports 32 bits of it.
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
