//! Observes sockets, pipes and files by duplicates of a process' descriptors, and by sock_diag(7).

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::capture::{FreshSockets, InternetSockets, UnixSocket, changed_options};
use crate::ptrace::{Pid, sys};
use crate::sock_diag::Sockets as Diagnosed;
use crate::state::{FileKind, SocketState, Tree};

type Values = Vec<(&'static str, String)>;

/// What the kernel reports of all sockets, read once.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    unix: Diagnosed<UnixSocket>,
    internet: InternetSockets,
    seen: HashMap<u64, Values>,
    fresh: FreshSockets,
    /// Process and descriptor of sockets that come back as other ones.
    others: HashSet<(Pid, i32)>,
}

impl Sockets {
    /// For the sockets of a tree.
    pub(super) fn of(tree: &Tree) -> Self {
        let other = |file: u32| match tree.files[file as usize].kind {
            FileKind::Socket(socket) => matches!(
                tree.sockets[socket as usize].state,
                SocketState::Broken | SocketState::Connecting(_) | SocketState::Closed(_)
            ),
            _ => false,
        };
        let mut others = HashSet::new();
        for process in &tree.processes {
            let descriptors = process.descriptors.iter();
            let found = descriptors.filter(|descriptor| other(descriptor.file));
            others.extend(found.map(|descriptor| (process.pid, descriptor.number)));
        }
        Self {
            others,
            ..Self::default()
        }
    }

    /// A socket of a process; one that several descriptors lead to is asked once.
    pub(super) fn observe(&mut self, pid: Pid, number: i32, inode: u64) -> io::Result<Values> {
        if self.others.contains(&(pid, number)) {
            return Ok(Vec::new());
        }
        if let Some(seen) = self.seen.get(&inode) {
            return Ok(seen.clone());
        }
        let socket = sys::take_fd(pid, number)?;
        let option = |name| integer(&socket, name);
        let (family, kind, protocol) = (
            option(libc::SO_DOMAIN)?,
            option(libc::SO_TYPE)?,
            option(libc::SO_PROTOCOL)?,
        );
        let mut values = vec![
            ("kind of socket", format!("{family} {kind} {protocol}")),
            ("listens", option(libc::SO_ACCEPTCONN)?.to_string()),
            ("unread bytes", waiting(&socket, libc::FIONREAD)),
            ("unsent bytes", waiting(&socket, libc::TIOCOUTQ)),
        ];
        let (address, peer) = (
            name(&socket, libc::getsockname),
            name(&socket, libc::getpeername),
        );
        let mut options = changed_options(&socket, (family, kind, protocol), &mut self.fresh)?;
        // A connection that is held for a restore shows another value.
        if protocol == libc::IPPROTO_TCP && !peer.is_empty() {
            options.retain(|(level, name, _)| (*level, *name) != REUSE);
        }
        values.push(("options", format!("{options:x?}")));
        // The ends of a connection inside the tree come back without names.
        if family != libc::AF_UNIX || kind == libc::SOCK_DGRAM || peer.is_empty() {
            values.push(("address", address));
            values.push(("peer", peer));
        }
        match family {
            libc::AF_UNIX => {
                if let Some(found) = self.unix.get(inode)? {
                    values.push(("shut down", found.shutdown.to_string()));
                    values.push(("backlog", found.backlog.to_string()));
                    values.push(("clients that wait", found.waiting.len().to_string()));
                }
            }
            libc::AF_INET | libc::AF_INET6 if kind == libc::SOCK_STREAM => {
                let mut state = [0u8; 1];
                get(&socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
                values.push(("state", state[0].to_string()));
            }
            libc::AF_INET | libc::AF_INET6
                if matches!(protocol, libc::IPPROTO_UDP | libc::IPPROTO_UDPLITE) =>
            {
                if let Some(found) = self.internet.get(protocol, inode)? {
                    values.push(("shut down", found.shutdown.to_string()));
                }
            }
            _ => {}
        }
        self.seen.insert(inode, values.clone());
        Ok(values)
    }
}

/// What is in a pipe, and how much could be.
pub(super) fn pipe(pid: Pid, number: i32) -> io::Result<Values> {
    let Ok(pipe) = sys::take_fd(pid, number) else {
        return Ok(Vec::new());
    };
    // SAFETY: no memory involved.
    let room = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ) };
    Ok(vec![
        ("unread bytes", waiting(&pipe, libc::FIONREAD)),
        ("room", room.to_string()),
    ])
}

/// The receiver of a file's signals, its lease, its seals.
pub(super) fn file(pid: Pid, number: i32, is_memfd: bool) -> io::Result<Values> {
    let file = sys::take_fd(pid, number)?;
    let mut owner = [0i32; 2];
    // SAFETY: the structure (type and number) lives; nothing else involves memory.
    let (got, signal, lease, seals) = unsafe {
        let fd = file.as_raw_fd();
        (
            libc::fcntl(fd, F_GETOWN_EX, owner.as_mut_ptr()),
            libc::fcntl(fd, F_GETSIG),
            libc::fcntl(fd, libc::F_GETLEASE),
            libc::fcntl(fd, libc::F_GET_SEALS),
        )
    };
    let mut values = Vec::new();
    if got == 0 && owner[1] != 0 {
        values.push(("owner", format!("{owner:?} signal {signal}")));
    }
    if lease != libc::F_UNLCK && lease >= 0 {
        values.push(("lease", lease.to_string()));
    }
    // A file of a file system in memory has some, too, and that is where fakes lie.
    if seals >= 0 && is_memfd {
        values.push(("seals", seals.to_string()));
    }
    Ok(values)
}

const REUSE: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
const F_GETOWN_EX: i32 = 16;
const F_GETSIG: i32 = 11;

fn get(socket: &OwnedFd, level: i32, name: i32, value: &mut [u8]) -> io::Result<()> {
    let mut bytes = value.len() as libc::socklen_t;
    let (fd, at) = (socket.as_raw_fd(), value.as_mut_ptr().cast());
    // SAFETY: the value lives, and has the length that is said.
    match unsafe { libc::getsockopt(fd, level, name, at, &raw mut bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn integer(socket: &OwnedFd, name: i32) -> io::Result<i32> {
    let mut value = [0u8; 4];
    get(socket, libc::SOL_SOCKET, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

type Asked = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

/// An address as hexadecimal bytes; empty: none.
fn name(socket: &OwnedFd, asked: Asked) -> String {
    let mut address = [0u8; 128];
    let mut bytes = address.len() as libc::socklen_t;
    // SAFETY: the address lives, and has the length that is said.
    let got = unsafe {
        let at = address.as_mut_ptr().cast();
        asked(socket.as_raw_fd(), at, &raw mut bytes)
    };
    if got != 0 {
        return String::new();
    }
    let address = &address[..(bytes as usize).min(address.len())];
    address.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn waiting(file: &OwnedFd, request: libc::c_ulong) -> String {
    let mut bytes = 0i32;
    // SAFETY: the number lives.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut bytes) } {
        0 => bytes.to_string(),
        _ => String::new(),
    }
}
