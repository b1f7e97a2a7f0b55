//! Creates sockets and fills their queues.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::net::SendFlags;

use super::Error;
use super::datagrams;
use super::descriptors::owned;
use super::error::system;
use super::socket_calls::{name, new, reset_connection, set_option, set_options, unix_path};
use super::tcp::Connections;
use crate::state::{Socket, SocketState, Tree};

/// Makes all sockets of a tree, by index; and its TCP connections, which are held.
///
/// # Errors
/// An address is taken, or the kernel refuses something; named.
pub fn open_all(tree: &Tree) -> Result<(Vec<Option<OwnedFd>>, Connections), Error> {
    let mut all: Vec<Option<OwnedFd>> = tree.sockets.iter().map(|_| None).collect();
    for (index, socket) in tree.sockets.iter().enumerate() {
        if all[index].is_some() {
            continue;
        }
        let made = match &socket.state {
            SocketState::Pair(peer) => {
                let (one, other) = pair(socket)?;
                let peer_socket = &tree.sockets[*peer as usize];
                set_options(peer_socket, &other)?;
                all[*peer as usize] = Some(other);
                one
            }
            SocketState::Broken => broken(socket)?,
            // The other socket of its pair, which has sent these, is gone.
            SocketState::Idle if !socket.received.is_empty() && socket.address.is_empty() => {
                broken(socket)?
            }
            // Connections follow when all addresses are bound.
            SocketState::Established(_) => continue,
            _ => new(socket)?,
        };
        set_options(socket, &made)?;
        if !socket.address.is_empty()
            && matches!(
                socket.state,
                SocketState::Idle | SocketState::Listening { .. } | SocketState::Destination(_)
            )
        {
            bind_in_place(socket, &made)?;
            if socket.family != libc::AF_UNIX {
                datagrams::fill_internet(socket, &made);
            }
        }
        if let SocketState::Listening { backlog } = socket.state {
            // SAFETY: no memory involved.
            if unsafe { libc::listen(made.as_raw_fd(), backlog as i32) } != 0 {
                return Err(taken(socket, io::Error::last_os_error()));
            }
        }
        all[index] = Some(made);
    }
    // What connects does so when all addresses are bound.
    for (index, socket) in tree.sockets.iter().enumerate() {
        let Some(made) = &all[index] else { continue };
        if let SocketState::Destination(peer) = &socket.state {
            // SAFETY: the address is valid for its length.
            let connected =
                unsafe { libc::connect(made.as_raw_fd(), peer.as_ptr().cast(), peer.len() as u32) };
            if connected != 0 {
                let error = io::Error::last_os_error();
                tracing::warn!(
                    "a datagram socket has lost its destination {}: {error}",
                    name(peer)
                );
            }
        }
        if let SocketState::Pair(peer) = socket.state
            && let Some(other) = &all[peer as usize]
        {
            for message in &socket.received {
                send(other, message)?;
            }
        }
    }
    for (socket, made) in tree.sockets.iter().zip(&all) {
        if let Some(made) = made
            && socket.family == libc::AF_UNIX
            && (1..=3).contains(&socket.shutdown)
        {
            // SAFETY: no memory involved. 1, 2 and 3 are SHUT_RD, SHUT_WR and SHUT_RDWR plus one.
            if unsafe { libc::shutdown(made.as_raw_fd(), i32::from(socket.shutdown) - 1) } != 0 {
                return Err(system("shut down a socket")(io::Error::last_os_error()));
            }
        }
    }
    let connections = Connections::make(tree, &mut all)?;
    Ok((all, connections))
}

fn pair(socket: &Socket) -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    let made = unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            socket.kind | libc::SOCK_CLOEXEC,
            0,
            ends.as_mut_ptr(),
        )
    };
    if made != 0 {
        return Err(system("make a pair of sockets")(io::Error::last_os_error()));
    }
    let both = (owned(ends[0]), owned(ends[1]));
    match both {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(error), _) | (_, Err(error)) => Err(system("make a pair of sockets")(error)),
    }
}

/// A socket that was connected to something that is no more: the program sees what it would see
/// if the other end had died.
fn broken(socket: &Socket) -> Result<OwnedFd, Error> {
    if socket.family == libc::AF_UNIX {
        let (one, other) = pair(socket)?;
        for message in &socket.received {
            send(&other, message)?;
        }
        return Ok(one);
    }
    reset_connection(socket.family).map_err(system("make a broken connection"))
}

/// Binds a socket from the directory where its relative path begins.
fn bind_in_place(socket: &Socket, made: &OwnedFd) -> Result<(), Error> {
    if socket.directory.is_empty() {
        return bind(socket, made);
    }
    let enter = || -> io::Result<()> {
        // A thread with a directory of its own: the tracker's stays.
        // SAFETY: no memory involved.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        std::env::set_current_dir(&socket.directory)
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter().map_err(|source| Error::Open {
                path: socket.directory.clone(),
                source,
            })?;
            bind(socket, made)
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn bind(socket: &Socket, made: &OwnedFd) -> Result<(), Error> {
    let fd = made.as_raw_fd();
    let internet = matches!(socket.family, libc::AF_INET | libc::AF_INET6);
    // Connections of the life before may still linger on the port: they are no conflict.
    let reuse = internet && socket.kind == libc::SOCK_STREAM;
    if reuse {
        set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            &1i32.to_ne_bytes(),
        )
        .map_err(system("set an option of a socket"))?;
    }
    let old = if socket.family == libc::AF_UNIX {
        remove_stale(socket)?
    } else {
        None
    };
    let mut address = socket.address.clone();
    let mut bound = bind_to(fd, &address);
    if bound.is_err() && socket.family == libc::AF_NETLINK && address.len() >= 8 {
        // No other process depends on the port number of a netlink socket: let the kernel choose.
        address[4..8].fill(0);
        bound = bind_to(fd, &address);
    }
    bound.map_err(|source| taken(socket, source))?;
    if socket.family == libc::AF_UNIX && socket.kind == libc::SOCK_DGRAM {
        datagrams::fill_unix(socket)?;
    }
    if let (Some(path), Some(old)) = (unix_path(&socket.address), old) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(old.mode() & 0o7777);
        let _ = std::fs::set_permissions(&path, mode);
        let _ = std::os::unix::fs::chown(&path, Some(old.uid()), Some(old.gid()));
    }
    let wanted = socket
        .options
        .iter()
        .any(|(level, name, _)| (*level, *name) == (libc::SOL_SOCKET, libc::SO_REUSEADDR));
    if reuse && !wanted {
        set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            &0i32.to_ne_bytes(),
        )
        .map_err(system("set an option of a socket"))?;
    }
    Ok(())
}

fn bind_to(fd: i32, address: &[u8]) -> io::Result<()> {
    // SAFETY: the address is valid for its length.
    if unsafe { libc::bind(fd, address.as_ptr().cast(), address.len() as u32) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The file of a unix socket outlives its process. Removes it if it is stale, and
/// returns its metadata.
fn remove_stale(socket: &Socket) -> Result<Option<std::fs::Metadata>, Error> {
    let Some(path) = unix_path(&socket.address) else {
        return Ok(None);
    };
    let Ok(metadata) = std::fs::symlink_metadata(&path) else {
        return Ok(None);
    };
    if !metadata.file_type().is_socket() {
        return Err(taken(
            socket,
            io::Error::from_raw_os_error(libc::EADDRINUSE),
        ));
    }
    // SAFETY: no memory involved.
    let probe = owned(unsafe {
        libc::socket(
            libc::AF_UNIX,
            socket.kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    })
    .map_err(system("make a socket"))?;
    // SAFETY: the address is valid for its length.
    let answered = unsafe {
        libc::connect(
            probe.as_raw_fd(),
            socket.address.as_ptr().cast(),
            socket.address.len() as u32,
        ) == 0
            || io::Error::last_os_error().raw_os_error() != Some(libc::ECONNREFUSED)
    };
    if answered {
        return Err(taken(
            socket,
            io::Error::from_raw_os_error(libc::EADDRINUSE),
        ));
    }
    std::fs::remove_file(&path).map_err(|source| Error::Open { path, source })?;
    Ok(Some(metadata))
}

fn send(socket: &OwnedFd, message: &[u8]) -> Result<(), Error> {
    let mut rest = message;
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::send(socket, rest, flags)
            .map_err(|error| system("fill the queue of a socket")(error.into()))?;
        rest = &rest[sent..];
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn taken(socket: &Socket, source: io::Error) -> Error {
    Error::Address {
        address: name(&socket.address),
        source,
    }
}
