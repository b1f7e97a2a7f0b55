//! Unix sockets: their queues, places and peers, and clients that were not accepted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::objects::is_lossy;
use super::queues::{Queue, peek_all, sender_is_known};
use super::sockets::{Described, address_of, peer_of};
use super::{Builder, Error};
use crate::state::SocketState;

/// Longest path in an address, with its end: `sun_path`.
const PATH_BYTES_MAX: usize = 107;
/// States of a unix socket: one that is connected, also when its peer is gone; and of one that the kernel does
/// not list, because it is of another network namespace.
const ESTABLISHED: u8 = 1;
const UNKNOWN: u8 = 0;

impl Builder<'_> {
    pub(super) fn unix_socket(
        &mut self,
        socket: &OwnedFd,
        number: RawFd,
        inode: u64,
        kind: i32,
        listening: bool,
    ) -> Result<Option<Described>, Error> {
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
            self.listeners.push((
                self.pid,
                number,
                self.tree.sockets.len() as u32,
                reported.clone(),
            ));
            let state = SocketState::Listening {
                backlog,
                waiting: Vec::new(),
            };
            return Ok(Some(Described::new(state, address)));
        }
        let queue = peek_all(socket, (libc::AF_UNIX, inode), kind);
        let queue = queue.map_err(self.failed("read a unix socket"))?;
        let queue = queue.and_then(|queue| {
            let known = match kind {
                libc::SOCK_DGRAM if !queue.messages.is_empty() => {
                    sender_is_known(&queue.messages, &peer_of(socket))
                }
                _ => None,
            };
            known.map_or(Ok(queue), Err)
        });
        let Queue { messages, reset } = match queue {
            Ok(queue) => queue,
            Err(what) => {
                self.refuse(format!("fd {number} is a unix socket with {what}"));
                return Ok(None);
            }
        };
        let index = self.tree.sockets.len() as u32;
        let mut received = Vec::new();
        for message in messages {
            if !message.descriptors.is_empty() {
                let at = received.len() as u32;
                self.under_way.add(self.pid, index, at, message.descriptors);
            }
            received.push(message.bytes);
        }
        let mut described = Described {
            state: SocketState::Broken,
            address,
            received,
            shutdown: reported.shutdown,
            reset,
        };
        if reported.peer == 0 {
            // Never connected, or its peer is gone.
            let connected = match reported.state {
                UNKNOWN => {
                    matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
                        && was_connected(socket)
                }
                state => kind != libc::SOCK_DGRAM && state == ESTABLISHED,
            };
            if connected {
                self.written_ahead
                    .insert(self.tree.sockets.len() as u32, outgoing_bytes(socket));
            }
            if !connected {
                described.state = SocketState::Idle;
            }
            return Ok(Some(described));
        }
        // The peer's index is not known yet: it is put in when all sockets are known.
        self.peers.insert(
            self.tree.sockets.len() as u32,
            (reported.peer, peer_of(socket)),
        );
        Ok(Some(described))
    }

    /// Where the relative path of a bound unix socket begins: in the directory of its process, or
    /// in one above it, where its file is found.
    pub(super) fn directory_of(&mut self, number: RawFd, inode: u64, address: &[u8]) -> String {
        let bytes = address.get(2..).unwrap_or(&[]);
        let path = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if std::str::from_utf8(path).is_err() {
            let path = path.escape_ascii();
            self.refuse(format!(
                "fd {number} is a unix socket at {path}, a name that is not UTF-8"
            ));
            return String::new();
        }
        if path.is_empty() || path[0] == b'/' {
            return String::new();
        }
        let file = self
            .unix
            .get(inode)
            .ok()
            .flatten()
            .map_or(0, |reported| reported.file);
        let directory = fs::read_link(format!("/proc/{}/cwd", self.pid)).unwrap_or_default();
        let is_there = |directory: &&Path| {
            let found = fs::symlink_metadata(directory.join(OsStr::from_bytes(path)));
            // The kernel reports 32 bits of it.
            found.is_ok_and(|found| found.ino() & 0xffff_ffff == file)
        };
        let Some(found) = directory.ancestors().find(is_there) else {
            let path = path.escape_ascii();
            self.refuse(format!(
                "fd {number} is a unix socket at the relative path {path}, which is not in its \
                 directory"
            ));
            return String::new();
        };
        let found = found.to_string_lossy().into_owned();
        if is_lossy(&found) {
            self.refuse(format!(
                "fd {number} is a unix socket in {found}, a name that is not UTF-8"
            ));
        }
        found
    }

    /// Whether the path of a bound unix socket does not lead to it.
    pub(super) fn is_detached(&mut self, inode: u64, address: &[u8]) -> bool {
        let bytes = address.get(2..).unwrap_or(&[]);
        let path = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if path.first() != Some(&b'/') {
            return false;
        }
        let file = self.unix.get(inode).ok().flatten().map_or(0, |s| s.file);
        let found = fs::symlink_metadata(Path::new(OsStr::from_bytes(path)));
        // The kernel reports 32 bits of it.
        found.map_or(true, |found| found.ino() & 0xffff_ffff != file)
    }

    /// Where the file of a bound unix socket is, to which its path does not lead: a program that renames it
    /// does so in its directory. Empty: it was removed.
    pub(super) fn renamed(&mut self, number: RawFd, inode: u64, address: &[u8]) -> String {
        let bytes = address.get(2..).unwrap_or(&[]);
        let path = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let file = self.unix.get(inode).ok().flatten().map_or(0, |s| s.file);
        let directory = Path::new(OsStr::from_bytes(path)).parent();
        let entries = directory.and_then(|directory| fs::read_dir(directory).ok());
        let is_it = |entry: &fs::DirEntry| {
            // The kernel reports 32 bits of it.
            entry.file_type().is_ok_and(|kind| kind.is_socket())
                && entry
                    .metadata()
                    .is_ok_and(|found| found.ino() & 0xffff_ffff == file)
        };
        let Some(found) = entries.into_iter().flatten().flatten().find(is_it) else {
            return String::new();
        };
        let found = found.path();
        let usable = found.to_str().filter(|path| path.len() <= PATH_BYTES_MAX);
        if usable.is_none() {
            self.refuse(format!(
                "fd {number} is a unix socket that was renamed to {}, to which no address leads",
                found.display()
            ));
        }
        usable.unwrap_or_default().to_owned()
    }

    /// Clients that a listening unix socket has not accepted. Those of outside are lost.
    fn finish_listeners(&mut self) {
        for (pid, number, listener, reported) in std::mem::take(&mut self.listeners) {
            let mut waiting = Vec::new();
            for inode in reported.waiting {
                let client = self.socket_index.get(&inode).copied();
                if inode != 0 && client.is_none() {
                    continue;
                }
                let ahead = client.and_then(|client| self.written_ahead.get(&client));
                let ahead = ahead.is_some_and(|bytes| *bytes > 0);
                let detached = self.tree.sockets[listener as usize].detached;
                // What one that is gone may have written before, the kernel does not report.
                let gone = inode == 0;
                if ahead || detached || gone {
                    self.turn_to(pid);
                    self.refuse(format!(
                        "fd {number} is a unix socket with a client that it has not accepted, and \
                         {}",
                        if ahead {
                            "that has written already"
                        } else if gone {
                            "that has closed its end (it may have written before)"
                        } else {
                            "its path does not lead to it"
                        }
                    ));
                }
                if let Some(client) = client {
                    self.tree.sockets[client as usize].state = SocketState::Waiting;
                }
                waiting.push(client);
            }
            if let SocketState::Listening { waiting: known, .. } =
                &mut self.tree.sockets[listener as usize].state
            {
                *known = waiting;
            }
        }
    }

    /// Joins the ends of unix sockets, now that all are known.
    pub(super) fn finish_sockets(&mut self) {
        self.finish_listeners();
        for (index, (peer, destination)) in std::mem::take(&mut self.peers) {
            let Some(&other) = self.socket_index.get(&peer) else {
                // Its peer is of outside. A datagram socket finds it again by its name.
                let socket = &mut self.tree.sockets[index as usize];
                if socket.kind == libc::SOCK_DGRAM && destination.len() > 2 {
                    socket.state = SocketState::Destination(destination);
                }
                continue;
            };
            let to_detached = self.tree.sockets[other as usize].detached;
            let socket = &mut self.tree.sockets[index as usize];
            if socket.kind == libc::SOCK_DGRAM && destination.len() > 2 {
                socket.state = SocketState::Destination(destination);
                if to_detached {
                    socket.connected_to = Some(other);
                    if !socket.received.is_empty() {
                        self.refuse(
                            "it has a unix datagram socket with unread messages, connected to one \
                             to which no path leads",
                        );
                    }
                }
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

/// Bytes that a unix socket has sent and its peer has not read.
fn outgoing_bytes(socket: &OwnedFd) -> i32 {
    let mut bytes = 0i32;
    // SAFETY: the number lives.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    bytes
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
