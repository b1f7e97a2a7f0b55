//! Established TCP connections: sequence numbers, queues and what was agreed on, read in repair
//! mode (`TCP_REPAIR`, tcp_repair_* in the kernel's net/ipv4/tcp.c).
//!
//! If both ends are in the tree they are stopped together, so every epoch contains the connection.
//! An end outside the tree continues meanwhile: such a connection is kept only if the program is
//! killed at this instant, because data exchanged after an epoch would be missing in it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::RecvFlags;

use super::Builder;
use super::options::{option_bytes, option_i32, set_option_i32};
use super::queues::peek_rest;
use crate::ptrace::Pid;
use crate::state::{SocketState, TcpConnection};

const REPAIR_ON: i32 = 1;
/// Off, and nothing is sent.
const REPAIR_OFF_SILENT: i32 = -1;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;
const SIOCOUTQNSD: libc::c_ulong = 0x894b;
/// Of `tcpi_options`.
const OPTION_TIMESTAMPS: u8 = 1;
const OPTION_SACK: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 4;
/// How often something may move between two ends while they are read.
const TRIES: u32 = 20;

/// States of a TCP socket with a connection (include/net/tcp_states.h).
pub(super) mod states {
    pub const ESTABLISHED: u8 = 1;
    pub const FIN_WAIT1: u8 = 4;
    pub const FIN_WAIT2: u8 = 5;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LAST_ACK: u8 = 9;
    pub const CLOSING: u8 = 11;
}

/// A connection that was met, to be read when all are known.
pub(super) struct Candidate {
    /// The process that has it, and its descriptor.
    pub pid: Pid,
    pub number: RawFd,
    /// Its index among the sockets.
    pub index: u32,
    pub socket: OwnedFd,
    pub local: Vec<u8>,
    pub peer: Vec<u8>,
    /// Its state when it was met.
    pub state: u8,
}

/// A socket that listens.
pub(super) struct Listener {
    /// The process that has it, and its descriptor.
    pub pid: Pid,
    pub number: RawFd,
    pub local: Vec<u8>,
    /// How many connections it has not accepted.
    pub waiting: u32,
}

/// A connection to the outside that was read: it neither receives nor sends until this is
/// dropped, so that what was read stays true.
#[derive(Debug)]
pub struct HeldConnection {
    socket: OwnedFd,
    reuse: i32,
    deaf: bool,
}

impl HeldConnection {
    /// Leaves it as it is: it ends with its last descriptor, without a packet to the other end.
    pub fn abandon(self) {
        // SAFETY: a duplicate of ours, closed once: its drop is not run.
        unsafe { libc::close(self.socket.as_raw_fd()) };
        std::mem::forget(self);
    }

    /// Enters repair mode; with `deaf`, input is dropped, and the other end sends it again.
    fn new(socket: OwnedFd, deaf: bool) -> io::Result<Self> {
        let reuse = option_i32(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
        if deaf {
            drop_all(&socket)?;
        }
        let held = Self {
            socket,
            reuse,
            deaf,
        };
        set_option_i32(&held.socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_ON)?;
        Ok(held)
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        let socket = &self.socket;
        let _ = set_option_i32(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            REPAIR_OFF_SILENT,
        );
        // Repair mode has set it to its own ends.
        let _ = set_option_i32(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, self.reuse);
        if self.deaf {
            let _ = set_option_i32(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
        }
    }
}

/// Attaches a filter that lets nothing through. The other end repeats what was not acknowledged.
pub(crate) fn drop_all(socket: &OwnedFd) -> io::Result<()> {
    // BPF_RET | BPF_K: keep 0 bytes.
    let mut instruction = libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut instruction,
    };
    // SAFETY: the program and its instruction live, and the kernel copies them.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Builder<'_> {
    /// Reads the connections that can be restored, now that all are known. The others stay broken.
    pub(super) fn finish_connections(&mut self) {
        let candidates = std::mem::take(&mut self.connections);
        let ends: HashMap<(Place, Place), usize> = candidates
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some(((place(&one.local)?, place(&one.peer)?), at)))
            .collect();
        let other_end = |one: &Candidate| {
            let key = (place(&one.peer)?, place(&one.local)?);
            ends.get(&key).copied()
        };
        for (at, one) in candidates.iter().enumerate() {
            match other_end(one) {
                Some(other) if other > at => self.inner_connection(one, &candidates[other]),
                // Read with its other end.
                Some(_) => {}
                None if self.waits_to_be_accepted(one) => {}
                None if self.options.keep_connections && one.state == states::ESTABLISHED => {
                    self.outer_connection(one);
                }
                None if ends_of(one.state) == (true, true) => self.ending_connection(one),
                // One that is being closed is reset.
                None => {}
            }
        }
    }

    /// Whether a connection ends at a socket of the tree that has not accepted it. The other end has no
    /// descriptor, so what it has received cannot be read.
    fn waits_to_be_accepted(&mut self, one: &Candidate) -> bool {
        let Some((ip, port)) = place(&one.peer) else {
            return false;
        };
        let listens_there = |listener: &&Listener| {
            listener.waiting > 0
                && place(&listener.local).is_some_and(|(its, its_port)| {
                    its_port == port && (its == ip || its.is_unspecified())
                })
        };
        let Some(listener) = self.tcp_listeners.iter().find(listens_there) else {
            return false;
        };
        let (pid, number) = (listener.pid, listener.number);
        if one.state == states::ESTABLISHED && !has_written(&one.socket) {
            self.tree.sockets[one.index as usize].state = SocketState::Connecting(one.peer.clone());
        } else {
            self.turn_to(pid);
            self.refuse(format!(
                "fd {number} is a TCP socket with a client of the program that it has not accepted, and that \
                 has written already or closed a direction"
            ));
        }
        true
    }

    /// Refuses a connection that has urgent data; false: it has none.
    fn is_urgent(&mut self, one: &Candidate) -> bool {
        let urgent = has_urgent_data(&one.socket).unwrap_or(false);
        if urgent {
            self.turn_to(one.pid);
            self.refuse(format!(
                "fd {} is a TCP connection with unread urgent data (MSG_OOB)",
                one.number
            ));
        }
        urgent
    }

    /// A connection of which both ends are here.
    fn inner_connection(&mut self, one: &Candidate, other: &Candidate) {
        if self.is_urgent(one) | self.is_urgent(other) {
            return;
        }
        for _ in 0..TRIES {
            let both = read_once(one).and_then(|first| Ok((first, read_once(other)?)));
            let (mut first, mut second) = match both {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!("a TCP connection cannot be read: {error}");
                    return;
                }
            };
            // Timers of the kernel's may have moved bytes between the two readings.
            if forget_received(&mut first, &second) && forget_received(&mut second, &first) {
                agree(&mut first, &mut second, fixed_buffer(&other.socket));
                agree(&mut second, &mut first, fixed_buffer(&one.socket));
                self.established(one, first);
                self.established(other, second);
                return;
            }
        }
        tracing::debug!("the state of a TCP connection keeps changing");
    }

    fn outer_connection(&mut self, one: &Candidate) {
        if self.is_urgent(one) {
            return;
        }
        let read = one
            .socket
            .try_clone()
            .and_then(|socket| HeldConnection::new(socket, true))
            .and_then(|held| Ok((read(&held.socket, &one.peer)?, held)));
        match read {
            Ok((connection, held)) => {
                self.established(one, connection);
                self.held.push(held);
            }
            Err(error) => tracing::debug!("a TCP connection cannot be read: {error}"),
        }
    }

    /// A connection of which both directions have ended, but the other end has not acknowledged that
    /// yet: for the program there is no difference.
    fn ending_connection(&mut self, one: &Candidate) {
        // The end of the stream itself counts as a byte.
        if !waiting(&one.socket, libc::TIOCOUTQ).is_ok_and(|unacknowledged| unacknowledged <= 1) {
            return;
        }
        match peek_rest(&one.socket) {
            Ok(rest) => {
                let socket = &mut self.tree.sockets[one.index as usize];
                socket.received = rest;
                socket.state = SocketState::Closed(one.peer.clone());
            }
            Err(error) => tracing::debug!("an ending TCP connection cannot be read: {error}"),
        }
    }

    fn established(&mut self, one: &Candidate, connection: TcpConnection) {
        self.tree.sockets[one.index as usize].state =
            SocketState::Established(Box::new(connection));
    }
}

/// Whether the program has sent something in a connection.
fn has_written(socket: &OwnedFd) -> bool {
    /// Of `struct tcp_info`: `tcpi_bytes_acked`, in which the beginning of the connection counts as a byte.
    const ACKNOWLEDGED_AT: usize = 120;
    let info = option_bytes(socket, libc::IPPROTO_TCP, libc::TCP_INFO, 128).unwrap_or_default();
    let acknowledged = info
        .get(ACKNOWLEDGED_AT..)
        .and_then(|rest| rest.first_chunk());
    acknowledged.is_none_or(|bytes| u64::from_ne_bytes(*bytes) > 1)
        || waiting(socket, libc::TIOCOUTQ).is_ok_and(|unacknowledged| unacknowledged > 0)
}

/// Whether there is urgent data in the receive queue, or the place where there was some: what can be read
/// ends there, unless the program receives it in the stream (`SO_OOBINLINE`).
pub(super) fn has_urgent_data(socket: &OwnedFd) -> io::Result<bool> {
    let inline = |on| set_option_i32(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE, on);
    let own = option_i32(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE)?;
    inline(1)?;
    let all = waiting(socket, libc::FIONREAD);
    inline(0)?;
    // Asked later: it can only have become more.
    let up_to_mark = waiting(socket, libc::FIONREAD);
    if own != 0 {
        inline(own)?;
    }
    Ok(up_to_mark? < all?)
}

/// Address and port, where addresses of IPv4 in IPv6 are those of IPv4.
type Place = (IpAddr, u16);

fn place(address: &[u8]) -> Option<Place> {
    let family = u16::from_ne_bytes(*address.first_chunk::<2>()?);
    let port = u16::from_be_bytes([*address.get(2)?, *address.get(3)?]);
    let ip = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => {
            IpAddr::V6(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

fn read_once(one: &Candidate) -> io::Result<TcpConnection> {
    let held = HeldConnection::new(one.socket.try_clone()?, false)?;
    read(&held.socket, &one.peer)
}

/// Takes out of a send queue what the other end has received already. False: the other end lacks
/// what this one has forgotten.
fn forget_received(sender: &mut TcpConnection, receiver: &TcpConnection) -> bool {
    let (after_last, queue) = &mut sender.send;
    let first = after_last.wrapping_sub(queue.len() as u32);
    let received = receiver.receive.0.wrapping_sub(first) as usize;
    if received > queue.len() {
        return false;
    }
    queue.drain(..received);
    sender.unsent = sender.unsent.min(queue.len() as u32);
    true
}

/// Makes both ends have the same idea of how much more the receiver takes, and nothing that was sent and
/// not received.
///
/// A recreated receive queue may need more memory than the former one, up to the whole of a buffer of
/// which the program has chosen the size. If the window promised more than that, the kernel would drop
/// what comes and close the window. Then it drops everything with a later sequence number, too:
/// acknowledgements in the other direction, with which the connection would go on.
fn agree(sender: &mut TcpConnection, receiver: &mut TcpConnection, buffer: Option<usize>) {
    /// What the kernel may need beside the bytes of a queue: a part of them, and a fixed amount.
    const OVERHEAD: (usize, usize) = (16, 64 << 10);
    sender.unsent = sender.send.1.len() as u32;
    let (next, content) = (receiver.receive.0, receiver.receive.1.len());
    // struct tcp_repair_window: snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup.
    let end = receiver.window[4].wrapping_add(receiver.window[3]);
    let mut window = end.wrapping_sub(next);
    if (window as i32) < 0 {
        window = 0;
    }
    if let Some(buffer) = buffer {
        let needed = content + content / OVERHEAD.0 + OVERHEAD.1;
        let room = u32::try_from(buffer.saturating_sub(needed)).unwrap_or(u32::MAX);
        // In the header, it is a multiple.
        let scale = receiver
            .window_scale
            .map_or(0, |(_, receive)| receive.min(14));
        window = window.min(room >> scale << scale);
    }
    receiver.window[3] = window;
    receiver.window[4] = next;
    sender.window[1] = sender.window[1].min(window);
}

/// The size of a receive buffer that the program has chosen, so that the kernel does not change it.
fn fixed_buffer(socket: &OwnedFd) -> Option<usize> {
    /// `SOCK_RCVBUF_LOCK`.
    const RECEIVE_LOCK: i32 = 2;
    let locked = option_i32(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK).unwrap_or(0);
    let bytes = option_i32(socket, libc::SOL_SOCKET, libc::SO_RCVBUF).ok()?;
    (locked & RECEIVE_LOCK != 0).then_some(bytes as usize)
}

/// Reads a connection in repair mode.
fn read(socket: &OwnedFd, peer: &[u8]) -> io::Result<TcpConnection> {
    let tcp = libc::IPPROTO_TCP;
    // struct tcp_info: state, ca_state, retransmits, probes, backoff, options, scales.
    let info = option_bytes(socket, tcp, libc::TCP_INFO, 104)?;
    let [options, scales] = *info
        .get(5..)
        .and_then(|rest| rest.first_chunk::<2>())
        .ok_or(io::ErrorKind::InvalidData)?;
    if !option_bytes(socket, tcp, libc::TCP_ULP, 16)?.is_empty() {
        return Err(io::Error::other(
            "an upper-layer protocol of the kernel (such as TLS) is attached to it",
        ));
    }
    let segment_bytes = option_i32(socket, tcp, libc::TCP_MAXSEG)? as u32;
    let timestamp = option_i32(socket, tcp, libc::TCP_TIMESTAMP)? as u32;
    let words = option_bytes(socket, tcp, libc::TCP_REPAIR_WINDOW, 20)?;
    let mut window = [0; 5];
    for (word, bytes) in window.iter_mut().zip(words.chunks_exact(4)) {
        *word = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    }
    // The end of a stream has a number of its own, which the recreated connection does not have yet.
    let state = info.first().copied().unwrap_or(0);
    let (sent_end, received_end) = ends_of(state);
    let mut receive = receive_queue(socket)?;
    let mut send = queue(socket, SEND_QUEUE, libc::TIOCOUTQ)?;
    let mut unsent = waiting(socket, SIOCOUTQNSD)? as u32;
    if received_end {
        receive.0 = receive.0.wrapping_sub(1);
        // The last one is the number that the window begins with.
        if window[4].wrapping_sub(receive.0) as i32 > 0 {
            window[4] = receive.0;
        }
    }
    if sent_end {
        send.0 = send.0.wrapping_sub(1);
        unsent = unsent.saturating_sub(1);
    }
    Ok(TcpConnection {
        peer: peer.to_vec(),
        receive,
        send,
        unsent,
        closed: sent_end,
        segment_bytes,
        window_scale: (options & OPTION_WINDOW_SCALE != 0).then_some((scales & 15, scales >> 4)),
        sack: options & OPTION_SACK != 0,
        timestamp: (options & OPTION_TIMESTAMPS != 0).then_some(timestamp),
        window,
    })
}

/// Whether the end of the stream was sent, and received, in this state.
fn ends_of(state: u8) -> (bool, bool) {
    use states::{CLOSE_WAIT, CLOSING, FIN_WAIT1, FIN_WAIT2, LAST_ACK};
    (
        [FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING].contains(&state),
        [CLOSE_WAIT, LAST_ACK, CLOSING].contains(&state),
    )
}

/// More may arrive between the question for the number and that for the bytes.
fn receive_queue(socket: &OwnedFd) -> io::Result<(u32, Vec<u8>)> {
    for _ in 0..TRIES {
        let (before, content) = queue(socket, RECEIVE_QUEUE, libc::FIONREAD)?;
        if option_i32(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ)? as u32 == before
            && waiting(socket, libc::FIONREAD)? == content.len()
        {
            return Ok((before, content));
        }
    }
    Err(io::Error::other("its state keeps changing"))
}

/// The sequence number after the end of a queue, and its bytes.
fn queue(socket: &OwnedFd, queue: i32, how_many: libc::c_ulong) -> io::Result<(u32, Vec<u8>)> {
    set_option_i32(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue)?;
    let sequence = option_i32(socket, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ)? as u32;
    let mut content = vec![0u8; waiting(socket, how_many)?];
    if content.is_empty() {
        return Ok((sequence, content));
    }
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (got, _) = rustix::net::recv(socket, &mut content[..], flags)?;
    // Acknowledged meanwhile: it is the beginning of a send queue that goes.
    content.truncate(got);
    Ok((sequence, content))
}

fn waiting(socket: &OwnedFd, request: libc::c_ulong) -> io::Result<usize> {
    let mut bytes = 0i32;
    // SAFETY: the number lives.
    if unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(received: u32, send: (u32, &[u8])) -> TcpConnection {
        TcpConnection {
            peer: Vec::new(),
            receive: (received, Vec::new()),
            send: (send.0, send.1.to_vec()),
            unsent: 0,
            closed: false,
            segment_bytes: 1460,
            window_scale: None,
            sack: false,
            timestamp: None,
            window: [0; 5],
        }
    }

    #[test]
    fn what_the_other_end_has_received_is_not_sent_again() {
        // Sequence numbers wrap around.
        let mut sender = connection(0, (3, b"hello"));
        for (received, left) in [(u32::MAX - 1, "hello"), (1, "lo"), (3, "")] {
            assert!(forget_received(
                &mut sender,
                &connection(received, (0, b""))
            ));
            assert_eq!(sender.send.1, left.as_bytes());
        }
        assert!(
            !forget_received(&mut sender, &connection(2, (0, b""))),
            "a byte is lost"
        );
        assert!(
            !forget_received(&mut sender, &connection(4, (0, b""))),
            "a byte never was"
        );
    }

    #[test]
    fn a_window_never_promises_more_than_the_recreated_buffer_has() {
        let full = |bytes: usize, window: u32| {
            let mut receiver = connection(50_000, (0, b""));
            receiver.receive.1 = vec![0; bytes];
            receiver.window_scale = Some((10, 10));
            // As it was advertised 10 bytes ago.
            receiver.window[3] = window + 10;
            receiver.window[4] = 50_000 - 10;
            let mut sender = connection(0, (50_100, &[1; 100]));
            sender.unsent = 3;
            sender.window[1] = window + 5000;
            (sender, receiver)
        };
        for (bytes, window, buffer, left) in [
            (8 << 20, 2048, Some(8 << 20), 0),
            (1000, 4096, Some(1 << 20), 4096),
            (
                1000,
                1 << 20,
                Some(1 << 20),
                ((1 << 20) - 1062 - (64 << 10)) >> 10 << 10,
            ),
            (8 << 20, 2048, None, 2048),
        ] {
            let (mut sender, mut receiver) = full(bytes, window);
            agree(&mut sender, &mut receiver, buffer);
            assert_eq!(receiver.window[3..], [left, 50_000], "{bytes} {window}");
            assert_eq!(sender.window[1], left, "{bytes} {window}");
            assert_eq!(sender.unsent, 100);
        }
        // A window that was closed behind what has come.
        let (mut sender, mut receiver) = full(10, 0);
        (receiver.window[3], receiver.window[4]) = (4, 49_990);
        agree(&mut sender, &mut receiver, None);
        assert_eq!((receiver.window[3], sender.window[1]), (0, 0));
    }

    #[test]
    fn the_same_place_is_known_in_both_families() {
        let four = [2, 0, 0x18, 0xeb, 127, 0, 0, 1];
        let mut six = vec![10, 0, 0x18, 0xeb, 0, 0, 0, 0];
        six.extend([0; 10]);
        six.extend([0xff, 0xff, 127, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(place(&four), place(&six));
        assert_eq!(place(&four), Some((Ipv4Addr::LOCALHOST.into(), 6379)));
        assert_eq!(place(&four[..5]), None);
    }
}
