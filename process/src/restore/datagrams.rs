//! Puts unread datagrams into the queues of their receivers again.
//!
//! A UDP datagram carries the address of its sender, which need not be on this machine. So it is
//! sent as a raw packet over the loopback device, with that source address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use super::Error;
use super::descriptors::owned;
use super::error::system;
use super::socket_calls::{name, set_option, with_room_to_send};
use crate::state::Socket;

const UDP_HEADER_BYTES: usize = 8;
const IP4_HEADER_BYTES: usize = 20;
const IP6_HEADER_BYTES: usize = 40;
const HOPS: u8 = 64;

/// Sends the unread datagrams of a unix socket to it. It must be bound, and not be connected yet.
///
/// # Errors
/// One of them cannot be sent.
pub fn fill_unix(socket: &Socket) -> Result<(), Error> {
    for message in &socket.received {
        // One sender each: the room that a datagram takes is its sender's.
        // SAFETY: no memory involved.
        let sender =
            owned(unsafe { libc::socket(libc::AF_UNIX, socket.kind | libc::SOCK_CLOEXEC, 0) })
                .map_err(system("make a socket"))?;
        with_room_to_send(sender.as_raw_fd(), std::slice::from_ref(message), || {
            let sent = send_to(&sender, message, &socket.address);
            sent.map_err(system("fill the queue of a socket"))
        })?;
    }
    Ok(())
}

/// Sends the unread datagrams of a UDP socket to it. It must be bound, and not be connected yet. What
/// cannot be sent (without CAP_NET_RAW, or because of a packet filter) is lost, as UDP allows; the
/// log has it.
pub fn fill_internet(socket: &Socket, made: &OwnedFd) {
    let Some(to) = address(&socket.address).filter(|_| !socket.received.is_empty()) else {
        return;
    };
    let count = socket.received.len();
    let lost = |error: &dyn std::fmt::Display| {
        let to = name(&socket.address);
        tracing::warn!("{count} unread datagrams to {to} are lost: {error}");
    };
    for received in &socket.received {
        if let Err(error) = inject(received, to) {
            return lost(&error);
        }
    }
    let mut waiting = 0i32;
    // SAFETY: the number lives.
    unsafe { libc::ioctl(made.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
    if waiting == 0 && socket.received.iter().any(|received| !is_empty(received)) {
        lost(&"they have not arrived (a packet filter?)");
    }
}

fn is_empty(received: &[u8]) -> bool {
    received.len() <= 1 + usize::from(received.first().copied().unwrap_or(0))
}

/// Sends one datagram, with its sender's address in front of it, to a local address.
fn inject(received: &[u8], to: SocketAddr) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (length, rest) = received.split_first().ok_or_else(invalid)?;
    let (from, payload) = rest
        .split_at_checked(usize::from(*length))
        .ok_or_else(invalid)?;
    let from = address(from).ok_or_else(invalid)?;
    // One that is bound to all addresses gets it at the loopback address.
    let to_ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(_), ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        (IpAddr::V6(_), ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        (_, ip) => ip,
    };
    match (from.ip(), to_ip) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let packet = ip4_packet((source, from.port()), (target, to.port()), payload);
            let raw = raw_socket(libc::AF_INET)?;
            send_to(&raw, &packet, &sockaddr(IpAddr::V4(target)))
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let packet = ip6_packet((source, from.port()), (target, to.port()), payload);
            let raw = raw_socket(libc::AF_INET6)?;
            set_option(
                raw.as_raw_fd(),
                libc::IPPROTO_IPV6,
                libc::IPV6_HDRINCL,
                &1i32.to_ne_bytes(),
            )?;
            send_to(&raw, &packet, &sockaddr(IpAddr::V6(target)))
        }
        _ => Err(invalid()),
    }
}

fn raw_socket(family: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory involved.
    owned(unsafe {
        libc::socket(
            family,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::IPPROTO_RAW,
        )
    })
}

fn send_to(socket: &OwnedFd, message: &[u8], to: &[u8]) -> io::Result<()> {
    // SAFETY: message and address are valid for their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            to.as_ptr().cast(),
            to.len() as libc::socklen_t,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// An IPv4 packet; the kernel fills in its length, number and checksum. A datagram may go without
/// one.
fn ip4_packet(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0u8; IP4_HEADER_BYTES];
    packet[0] = 0x45;
    packet[8] = HOPS;
    packet[9] = libc::IPPROTO_UDP as u8;
    packet[12..16].copy_from_slice(&from.0.octets());
    packet[16..20].copy_from_slice(&to.0.octets());
    packet.extend_from_slice(&udp_header(from.1, to.1, payload));
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet, in which a datagram must have its checksum.
fn ip6_packet(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16), payload: &[u8]) -> Vec<u8> {
    let bytes = (UDP_HEADER_BYTES + payload.len()) as u16;
    let mut packet = vec![0u8; IP6_HEADER_BYTES];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&bytes.to_be_bytes());
    packet[6] = libc::IPPROTO_UDP as u8;
    packet[7] = HOPS;
    packet[8..24].copy_from_slice(&from.0.octets());
    packet[24..40].copy_from_slice(&to.0.octets());
    packet.extend_from_slice(&udp_header(from.1, to.1, payload));
    packet.extend_from_slice(payload);
    // Of both addresses, the length, the protocol, and the datagram (RFC 8200, 8.1).
    let datagram = packet[IP6_HEADER_BYTES..].chunks(2);
    let words = packet[8..40].chunks(2).chain(datagram);
    let sum: u64 = words
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum::<u64>()
        + u64::from(bytes)
        + libc::IPPROTO_UDP as u64;
    let folded = (0..3).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    let checksum = match !(folded as u16) {
        0 => 0xffff,
        checksum => checksum,
    };
    packet[IP6_HEADER_BYTES + 6..][..2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn udp_header(from: u16, to: u16, payload: &[u8]) -> [u8; UDP_HEADER_BYTES] {
    let bytes = ((UDP_HEADER_BYTES + payload.len()) as u16).to_be_bytes();
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    [from[0], from[1], to[0], to[1], bytes[0], bytes[1], 0, 0]
}

/// An internet address from a `sockaddr`; of one that stands for an IPv4 address, that.
fn address(raw: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*raw.first_chunk::<2>()?));
    let port = u16::from_be_bytes([*raw.get(2)?, *raw.get(3)?]);
    let ip = match family {
        libc::AF_INET => IpAddr::from(*raw.get(4..)?.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::from(*raw.get(8..)?.first_chunk::<16>()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// A `sockaddr` of an address without a port.
fn sockaddr(ip: IpAddr) -> Vec<u8> {
    // Family, port (and flow information of IPv6), address, then zeros.
    let (family, at, bytes) = match ip {
        IpAddr::V4(_) => (libc::AF_INET, 4, 16),
        IpAddr::V6(_) => (libc::AF_INET6, 8, 28),
    };
    let mut raw = vec![0; bytes];
    raw[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match ip {
        IpAddr::V4(ip) => raw[at..at + 4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => raw[at..at + 16].copy_from_slice(&ip.octets()),
    }
    raw
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn raw(address: SocketAddr) -> Vec<u8> {
        let mut raw = sockaddr(address.ip());
        raw[2..4].copy_from_slice(&address.port().to_be_bytes());
        raw
    }

    #[test]
    fn a_datagram_comes_from_its_sender_though_that_is_not_on_this_machine() {
        for (receiver, sender) in [
            ("127.0.0.1:0", "198.51.100.7:4711"),
            ("0.0.0.0:0", "198.51.100.7:4711"),
            ("[::1]:0", "[2001:db8::7]:4711"),
            ("[::]:0", "[2001:db8::7]:4711"),
            ("[::]:0", "198.51.100.7:4711"),
        ] {
            let sender: SocketAddr = sender.parse().expect("an address");
            let receiver = UdpSocket::bind(receiver).expect("bound");
            let limit = Some(Duration::from_secs(20));
            receiver.set_read_timeout(limit).expect("set");
            for payload in [&b"odd"[..], b"even", &[7; 60_000]] {
                let mut received = vec![raw(sender).len() as u8];
                received.extend_from_slice(&raw(sender));
                received.extend_from_slice(payload);
                inject(&received, receiver.local_addr().expect("its address")).expect("sent");
                let mut bytes = vec![0; 1 << 16];
                let (length, from) = receiver.recv_from(&mut bytes).expect("received");
                assert_eq!(&bytes[..length], payload);
                assert_eq!((from.ip().to_canonical(), from.port()), (sender.ip(), 4711));
            }
        }
    }

    #[test]
    fn a_damaged_datagram_is_an_error() {
        let to = "127.0.0.1:9".parse().expect("an address");
        for received in [&b""[..], &[200, 1, 2], &[4, 2, 0, 1, 1, 7]] {
            assert!(inject(received, to).is_err(), "{received:?}");
        }
    }
}
