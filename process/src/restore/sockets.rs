//! Creates sockets and fills their queues.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::SendFlags;

use super::Error;
use super::descriptors::owned;
use super::error::system;
use super::place::{in_place, inherit, remove_stale, taken};
use super::socket_calls::{
    join_fanout, name, new, reset_connection, set_option, set_options, shut_down, unix_path,
    with_room_to_send,
};
use super::tcp::Connections;
use super::{datagrams, leftover};
use crate::state::{Socket, SocketState, Tree};

const IPV6_FREEBIND: i32 = 78;

/// The sockets of a tree.
pub struct Opened {
    /// By index.
    pub all: Vec<Option<OwnedFd>>,
    /// TCP connections, which are held.
    pub connections: Connections,
    /// Other ends that no program has, of sockets with descriptors under way in them.
    pub others: super::under_way::Others,
}

/// Makes all sockets of a tree. Those with descriptors under way in them are filled, and shut down,
/// when the descriptors are there.
///
/// # Errors
/// An address is taken, or the kernel refuses something; named.
pub fn open_all(tree: &Tree) -> Result<Opened, Error> {
    let mut others = super::under_way::Others::default();
    let shared_ports = shared_ports(tree);
    let connecting = connecting_to_detached(tree)?;
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
            SocketState::Broken => broken(socket, index, &mut others)?,
            // The other socket of its pair, which has sent these, is gone.
            SocketState::Idle if !socket.received.is_empty() && socket.address.is_empty() => {
                broken(socket, index, &mut others)?
            }
            // Connections follow when all addresses are bound.
            SocketState::Established(_) | SocketState::Closed(_) => continue,
            _ => match connecting.get(&(index as u32)) {
                Some((_, made)) => made.try_clone().map_err(system("duplicate a socket"))?,
                None => new(socket)?,
            },
        };
        set_options(socket, &made)?;
        if has_place(socket) {
            let shared = shared_ports.contains(&place(socket));
            let callers = connecting.values();
            let callers = callers.filter(|(to, _)| *to == index as u32);
            let callers: Vec<&OwnedFd> = callers.map(|(_, made)| made).collect();
            in_place(socket, || {
                bind(socket, &made, shared)?;
                callers
                    .iter()
                    .try_for_each(|caller| connect_to(caller, socket))
            })?;
            if socket.family != libc::AF_UNIX {
                datagrams::fill_internet(socket, &made);
            }
        }
        if let SocketState::Listening { backlog, .. } = socket.state {
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
        if let SocketState::Listening { waiting, .. } = &socket.state {
            for client in waiting {
                let client = client.map(|client| all[client as usize].as_ref());
                wait_for_acceptance(socket, client.flatten())?;
            }
        }
        if let SocketState::Connecting(peer) = &socket.state {
            connect_without_waiting(made, peer)?;
        }
        if let SocketState::Destination(peer) = &socket.state
            && socket.connected_to.is_none()
        {
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
            && socket.passed.is_empty()
            && let Some(other) = &all[peer as usize]
        {
            send_all(other, &socket.received)?;
        }
    }
    // What sockets of one port share is theirs again when all are there. Those that listen were bound
    // beside connections of the life before, and to listen checks that again.
    for (socket, made) in tree.sockets.iter().zip(&all) {
        if let Some(made) = made
            && has_place(socket)
        {
            let names: &[i32] = match shared_ports.contains(&place(socket)) {
                true => &[libc::SO_REUSEADDR, libc::SO_REUSEPORT],
                false if is_stream(socket) => &[libc::SO_REUSEADDR],
                false => &[],
            };
            for &name in names {
                let value = i32::from(wants(socket, libc::SOL_SOCKET, name));
                set_option(
                    made.as_raw_fd(),
                    libc::SOL_SOCKET,
                    name,
                    &value.to_ne_bytes(),
                )
                .map_err(system("set an option of a socket"))?;
            }
        }
    }
    for (socket, made) in tree.sockets.iter().zip(&all) {
        if let Some(made) = made
            && (socket.family == libc::AF_UNIX || socket.kind == libc::SOCK_DGRAM)
            && !super::under_way::concerns(tree, socket)
        {
            shut_down(socket, made.as_raw_fd())?;
        }
    }
    for (index, socket) in tree.sockets.iter().enumerate() {
        if let SocketState::Closed(peer) = &socket.state {
            let made = super::tcp::ended(socket, peer, rest_of(socket))?;
            set_options(socket, &made)?;
            all[index] = Some(made);
        }
    }
    let connections = Connections::make(tree, &mut all)?;
    Ok(Opened {
        all,
        connections,
        others,
    })
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
fn broken(
    socket: &Socket,
    index: usize,
    others: &mut super::under_way::Others,
) -> Result<OwnedFd, Error> {
    if socket.family == libc::AF_UNIX {
        let (one, other) = pair(socket)?;
        if wants(socket, libc::SOL_SOCKET, libc::SO_ERROR) {
            // The other end goes with this unread, as it did: the program reads ECONNRESET.
            send(&one, &[0])?;
        }
        if !socket.passed.is_empty() {
            others.insert(index as u32, other);
            return Ok(one);
        }
        send_all(&other, &socket.received)?;
        return Ok(one);
    }
    reset_connection(socket.family, rest_of(socket)).map_err(system("make a broken connection"))
}

/// What a stream has received and not read.
fn rest_of(socket: &Socket) -> &[u8] {
    socket.received.first().map_or(&[], Vec::as_slice)
}

/// Whether a socket is bound to its address when it is made.
fn has_place(socket: &Socket) -> bool {
    let state = matches!(
        socket.state,
        SocketState::Idle
            | SocketState::Listening { .. }
            | SocketState::Destination(_)
            | SocketState::Connecting(_)
            | SocketState::Waiting
    );
    let internet = matches!(socket.family, libc::AF_INET | libc::AF_INET6);
    // One that was not bound has the address and the port 0.
    let unbound = internet
        && socket
            .address
            .get(2..)
            .is_none_or(|rest| rest.iter().all(|b| *b == 0));
    // One of netlink has the number 0.
    let unbound = unbound
        || socket.family == libc::AF_NETLINK
            && socket
                .address
                .get(4..8)
                .is_none_or(|number| number.iter().all(|b| *b == 0));
    state && !socket.address.is_empty() && !unbound
}

/// Whether it is a stream of the internet.
fn is_stream(socket: &Socket) -> bool {
    let internet = matches!(socket.family, libc::AF_INET | libc::AF_INET6);
    internet && socket.kind == libc::SOCK_STREAM
}

/// Protocol and port of an internet socket; 0: it has no port.
fn place(socket: &Socket) -> (i32, u16) {
    match (socket.family, socket.address.get(2..4)) {
        (libc::AF_INET | libc::AF_INET6, Some(port)) => {
            (socket.protocol, u16::from_be_bytes([port[0], port[1]]))
        }
        _ => (0, 0),
    }
}

/// Ports at which there are several sockets.
fn shared_ports(tree: &Tree) -> HashSet<(i32, u16)> {
    let mut met = HashSet::new();
    let sockets = tree.sockets.iter().filter(|socket| has_place(socket));
    let places = sockets.map(place).filter(|place| place.1 != 0);
    places.filter(|place| !met.insert(*place)).collect()
}

/// Whether the program has set an option to something else than 0.
fn wants(socket: &Socket, level: i32, name: i32) -> bool {
    let mut options = socket.options.iter();
    options.any(|(own, number, value)| {
        (*own, *number) == (level, name) && value.iter().any(|byte| *byte != 0)
    })
}

/// Connects a unix socket to one that listens and has not accepted it; `None`: the client has closed
/// its end since.
fn wait_for_acceptance(listener: &Socket, client: Option<&OwnedFd>) -> Result<(), Error> {
    let gone = match client {
        Some(_) => None,
        None => Some(new(listener)?),
    };
    let Some(client) = client.or(gone.as_ref()) else {
        return Ok(());
    };
    in_place(listener, || {
        // SAFETY: the address is valid for its length.
        let connected = unsafe {
            let address = &listener.address;
            libc::connect(
                client.as_raw_fd(),
                address.as_ptr().cast(),
                address.len() as u32,
            )
        };
        match connected {
            0 => Ok(()),
            _ => Err(system("connect a unix socket")(io::Error::last_os_error())),
        }
    })
}

/// Has a TCP socket begin to connect. The description gets the program's flags later.
fn connect_without_waiting(made: &OwnedFd, peer: &[u8]) -> Result<(), Error> {
    let fd = made.as_raw_fd();
    // SAFETY: the address is valid for its length.
    let connected = unsafe {
        libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        libc::connect(fd, peer.as_ptr().cast(), peer.len() as u32)
    };
    let error = io::Error::last_os_error();
    if connected != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        // As the program would have read later.
        tracing::warn!(
            "the connection to {} cannot be begun again: {error}",
            name(peer)
        );
    }
    Ok(())
}

/// Unix datagram sockets that are connected to one to which no path leads: to which, by index. They are
/// connected at the moment at which there is a path.
fn connecting_to_detached(tree: &Tree) -> Result<HashMap<u32, (u32, OwnedFd)>, Error> {
    let sockets = (0u32..).zip(&tree.sockets);
    let connected = sockets.filter_map(|(index, socket)| {
        let to = socket.connected_to?;
        Some(new(socket).map(|made| (index, (to, made))))
    });
    connected.collect()
}

fn connect_to(caller: &OwnedFd, socket: &Socket) -> Result<(), Error> {
    let address = &socket.address;
    // SAFETY: the address is valid for its length.
    let connected = unsafe {
        let (start, bytes) = (address.as_ptr().cast(), address.len() as u32);
        libc::connect(caller.as_raw_fd(), start, bytes)
    };
    match connected {
        0 => Ok(()),
        _ => Err(system("connect a unix socket")(io::Error::last_os_error())),
    }
}

fn bind(socket: &Socket, made: &OwnedFd, shared: bool) -> Result<(), Error> {
    let fd = made.as_raw_fd();
    let set = |level, name, value: i32| {
        let failed = system("set an option of a socket");
        set_option(fd, level, name, &value.to_ne_bytes()).map_err(failed)
    };
    if shared {
        // The others of its port need not have wanted it when this one was bound.
        set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    let freely = match socket.family {
        libc::AF_INET6 => (libc::IPPROTO_IPV6, IPV6_FREEBIND),
        _ => (libc::IPPROTO_IP, libc::IP_FREEBIND),
    };
    if socket.absent {
        set(freely.0, freely.1, 1)?;
    }
    // Connections of the life before may still linger on the port: they are no conflict.
    let reuse = is_stream(socket);
    if reuse {
        set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
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
    let in_use = |bound: &io::Result<()>| {
        let error = bound.as_ref().err().and_then(io::Error::raw_os_error);
        error == Some(libc::EADDRINUSE)
    };
    if reuse && in_use(&bound) && leftover::remove_at_port(socket).is_ok_and(|removed| removed > 0)
    {
        bound = bind_to(fd, &address);
    }
    let is_abstract = socket.family == libc::AF_UNIX && unix_path(&address).is_none();
    if is_abstract && in_use(&bound) {
        bound = leftover::when_collected(|| bind_to(fd, &address));
    }
    bound.map_err(|source| taken(socket, source))?;
    if socket.family == libc::AF_PACKET {
        join_fanout(socket, fd)?;
    }
    if socket.family == libc::AF_UNIX && socket.kind == libc::SOCK_DGRAM && socket.passed.is_empty()
    {
        datagrams::fill_unix(socket)?;
    }
    if let (Some(path), Some(old)) = (unix_path(&socket.address), old) {
        inherit(path.as_ref(), &old);
    }
    if socket.absent {
        set(
            freely.0,
            freely.1,
            i32::from(wants(socket, freely.0, freely.1)),
        )?;
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

fn send_all(sender: &OwnedFd, messages: &[Vec<u8>]) -> Result<(), Error> {
    if messages.is_empty() {
        return Ok(());
    }
    with_room_to_send(sender.as_raw_fd(), messages, || {
        messages
            .iter()
            .try_for_each(|message| send(sender, message))
    })
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
